"""A libvirtd in namespaces of its own (mounts and processes): it meets no other on this machine, and ends with
everything that it started when the test does.
"""
import os
import shutil
import subprocess
import sys
import unittest

import lib

# The first process of the namespaces: it does what it is told, line by line, and reaps what daemons leave
# behind, because libvirtd waits until a QEMU that it asked for its abilities is gone for good.
INIT = """
import os, signal, subprocess, sys
folder = sys.argv[1]
for place in ("/run/libvirt", "/var/lib/libvirt", "/var/cache/libvirt", "/var/log/libvirt", "/etc/libvirt"):
    os.makedirs(place, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", place], check=True)
os.mkdir("/etc/libvirt/qemu")
subprocess.run(["cp", folder + "/qemu.conf", "/etc/libvirt/qemu.conf"], check=True)
# Its QEMU driver wants a user whom only the package libvirt-daemon-system makes, also where another one is set.
for path, line in (("/etc/passwd", "libvirt-qemu:x:64055:64055::/var/lib/libvirt:/usr/sbin/nologin"),
                   ("/etc/group", "libvirt-qemu:x:64055:")):
    with open(path) as f:
        text = f.read()
    if "libvirt-qemu:" not in text:
        own = folder + "/" + os.path.basename(path)
        with open(own, "w") as f:
            print(text, line, sep="", file=f)
        subprocess.run(["mount", "--bind", own, path], check=True)

def reap(*_):
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass

def end(number):
    if daemon:
        os.kill(daemon, number)

signal.signal(signal.SIGCHLD, reap)
daemon = 0
for line in sys.stdin:
    if line == "start\\n":
        end(signal.SIGKILL)
        if os.path.exists(folder + "/pid"):
            os.unlink(folder + "/pid")
        daemon = os.spawnlp(os.P_NOWAIT, "libvirtd", "libvirtd", "-f", folder + "/libvirtd.conf",
                            "-p", folder + "/pid")
    else:
        end(signal.SIGTERM)
        daemon = 0
"""


class Libvirtd:
    def __init__(self, folder):
        self.folder = folder
        for tool in ("libvirtd", "virsh", "unshare", "qemu-system-x86_64"):
            if not shutil.which(tool):
                raise unittest.SkipTest(f"no {tool}: apt-get install libvirt-daemon-driver-qemu "
                                        "libvirt-clients qemu-system-x86")
        if os.geteuid() != 0:
            raise unittest.SkipTest("libvirtd needs root")
        os.mkdir(os.path.join(folder, "sock"))
        with open(os.path.join(folder, "libvirtd.conf"), "w") as f:
            f.write(f'unix_sock_dir = "{folder}/sock"\n'
                    'auth_unix_ro = "none"\nauth_unix_rw = "none"\n'
                    f'log_outputs = "3:file:{folder}/log"\n')
        with open(os.path.join(folder, "qemu.conf"), "w") as f:
            # max_core: newer ones set no limit, for which root may lack the right (lib.py forbids cores).
            f.write('stdio_handler = "file"\nuser = "root"\ngroup = "root"\nmax_core = 0\n'
                    'security_driver = "none"\nnamespaces = []\ncgroup_controllers = []\n')
        self.init = lib.Process(["unshare", "--mount", "--pid", "--fork", "--kill-child",
                                 "--mount-proc", sys.executable, "-c", INIT, folder])
        try:
            self.start()
        except lib.Stuck as error:
            self.close()
            raise unittest.SkipTest(f"libvirtd does not run here: {error}") from None

    @property
    def url(self):
        return f"qemu+unix:///system?socket={self.folder}/sock/libvirt-sock"

    @property
    def read_only(self):
        return self.url + "-ro"

    def start(self):
        """Start it, or kill it and start another."""
        try:
            self.init.say("start")
        except BrokenPipeError:
            raise lib.Stuck(self.init.tail()) from None

        def answers():
            if not self.init.alive():
                raise lib.Stuck(self.init.tail())
            return subprocess.run(["virsh", "-c", self.url, "list"], timeout=180,
                                  capture_output=True).returncode == 0

        lib.until(answers, 30, "libvirtd answers", 0.1)

    def stop(self):
        self.init.say("stop")
        lib.until(lambda: not os.path.exists(f"{self.folder}/pid"), 10, "libvirtd has ended", 0.05)

    def virsh(self, *args, check=True, limit_s=180):
        result = subprocess.run(["virsh", "-c", self.url, *args], text=True, timeout=limit_s,
                                capture_output=True)
        if check and result.returncode != 0:
            raise lib.Stuck(f"virsh {' '.join(args)}: {result.stderr}")
        return result.stdout

    def close(self):
        self.init.kill()
