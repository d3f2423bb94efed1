"""Network namespaces for tests over TCP."""
import ipaddress
import os
import shutil
import subprocess
import unittest


class Namespaces:
    """Two network namespaces with a veth pair between them: the host's and the guests'."""

    def __init__(self):
        if not shutil.which("ip"):
            raise unittest.SkipTest("no ip command (iproute2)")
        if os.geteuid() != 0:
            raise unittest.SkipTest("network namespaces need root")
        tag = f"{os.getpid() % 100000:05d}"
        self.host = f"weirh{tag}"
        self.guest = f"weirg{tag}"
        net = ipaddress.ip_network("10.231.77.0/30")
        self.host_address, guest_address = (str(a) for a in list(net.hosts())[:2])
        veth_host, veth_guest = f"wh{tag}", f"wg{tag}"
        try:
            self._ip("netns", "add", self.host)
            self._ip("netns", "add", self.guest)
            self._ip("link", "add", veth_host, "netns", self.host, "type", "veth",
                     "peer", "name", veth_guest, "netns", self.guest)
            for space, device, address in ((self.host, veth_host, self.host_address),
                                           (self.guest, veth_guest, guest_address)):
                self._ip("-n", space, "addr", "add", f"{address}/30", "dev", device)
                self._ip("-n", space, "link", "set", device, "up")
                self._ip("-n", space, "link", "set", "lo", "up")
        except subprocess.CalledProcessError as error:
            self.close()
            raise unittest.SkipTest("network namespaces are not permitted here: "
                                    + error.stderr.strip()) from None

    @staticmethod
    def _ip(*args):
        subprocess.run(["ip", *args], check=True, capture_output=True, text=True, timeout=60)

    def close(self):
        for space in (self.host, self.guest):
            subprocess.run(["ip", "netns", "del", space], capture_output=True, timeout=60)
