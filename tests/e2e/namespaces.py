"""Namespaces: of mounts for all tests of a file, of networks for tests over TCP."""
import ctypes
import ipaddress
import os
import shutil
import subprocess
import unittest


# Where an installed Weir, its running host or another test's have what programs, engines and tests would find.
# An engine that finds two CDI files with one device (there is one named "new" in each) takes neither; and a
# libcuda.so.1 of Weir's that the loader knows is what a host takes for NVIDIA's.
OTHERS = ("/run/weir", "/etc/weir", "/var/cache/weir", "/run/cdi", "/etc/cdi", "/usr/lib/weir", "/usr/local/lib/weir")
USER = "weir-worker"  # as whom workers run where an installation has made it; it need not get to a build tree
CLONE_NEWNS, MS_REC, MS_SLAVE, MS_SHARED, MNT_DETACH = 0x20000, 0x4000, 0x80000, 0x100000, 2


class Mounts:
    """A mount namespace for this process and all that it starts. What is mounted on the machine comes here, and nothing of ours
    goes there; engines want a root that is shared."""

    def __init__(self):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.call("unshare", CLONE_NEWNS)
        self.mount(b"none", "/", None, MS_REC | MS_SLAVE)
        self.mount(b"none", "/", None, MS_REC | MS_SHARED)

    def call(self, name, *args):
        if getattr(self.libc, name)(*args) != 0:
            raise OSError(ctypes.get_errno(), name, args[1] if len(args) > 1 else None)

    def mount(self, source, target, kind, flags=0, data=None):
        self.call("mount", source, os.fsencode(target), kind, ctypes.c_ulong(flags), data)

    def hide(self, folder):
        self.mount(b"weir-e2e", folder, b"tmpfs", 0, b"mode=0755")

    def hide_user(self, name):
        """With an /etc of our own: programs that make users put another file in the place of /etc/passwd."""
        with open("/etc/passwd") as f:
            users = f.readlines()
        if not any(user.startswith(f"{name}:") for user in users):
            return
        self.hide("/mnt")
        for folder in ("/mnt/upper", "/mnt/work"):
            os.mkdir(folder, 0o755)
        self.mount(b"weir-e2e", "/etc", b"overlay", 0, b"lowerdir=/etc,upperdir=/mnt/upper,workdir=/mnt/work")
        self.call("umount2", b"/mnt", MNT_DETACH)
        with open("/etc/passwd", "w") as f:
            f.writelines(user for user in users if not user.startswith(f"{name}:"))


def hide_other_hosts():
    """From this process and all that it starts; only root can."""
    if os.geteuid() != 0:
        return
    try:
        mounts = Mounts()
    except PermissionError:  # of a container that may not mount
        return
    os.makedirs("/run/cdi", exist_ok=True)
    mounts.hide_user(USER)
    for folder in filter(os.path.isdir, OTHERS):
        mounts.hide(folder)


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
        self.veth_host = veth_host = f"wh{tag}"
        veth_guest = f"wg{tag}"
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
        subprocess.run(["ip", *args], check=True, capture_output=True, text=True, timeout=180)

    def cut(self):
        self._ip("-n", self.host, "link", "set", self.veth_host, "down")

    def close(self):
        for space in (self.host, self.guest):
            subprocess.run(["ip", "netns", "del", space], capture_output=True, timeout=180)
