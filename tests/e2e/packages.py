"""The package, and what it is installed on: a container or a virtual machine in which systemd is the first process.

Both have the same root, which mmdebstrap makes of this machine's release: a Debian or Ubuntu with systemd, apt and the
libraries that the package depends on, without network and without Weir. It is kept like the images of containers.py.
"""
import os
import re
import select
import shutil
import subprocess
import tempfile
import time
import unittest

import containers
import kvm
import lib

PACKAGES = ("apt", "systemd-sysv")
START_LIMIT_S = 60
MEMORY_MIB = 3072  # of the virtual machine, whose root is in it

# The first command of a virtual machine's systemd that reads from its console.
CONSOLE_UNIT = """[Unit]
Description=Commands from the console

[Service]
ExecStart=/bin/sh /console
StandardInput=tty-force
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0

[Install]
WantedBy=multi-user.target
"""
CONSOLE = """stty -echo
echo "@@UP"
while read -r line; do eval "$line"; status=$?; echo; echo "@@RC $status"; done
"""


def cpack(generator, out, *options):
    """{component: path} of the packages that cpack makes of the build tree into a folder; a TGZ is all in one, ""."""
    config = os.path.join(lib.places.build, "CPackConfig.cmake")
    done = subprocess.run(["cpack", "--config", config, "-G", generator, "-B", out, *options],
                          capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise lib.Stuck(f"cpack: {done.stdout}{done.stderr}")
    end = {"TGZ": ".tar.gz", "DEB": ".deb", "RPM": ".rpm"}[generator]
    found = {}
    for name in os.listdir(out):
        if name.endswith(end):
            component = "" if generator == "TGZ" else re.match("weir-([a-z]+)[-_]", name)[1]
            found[component] = os.path.join(out, name)
    return found


def later(package, path, version):
    """The same DEB with another version, for an upgrade."""
    with tempfile.TemporaryDirectory(prefix="weir-e2e-") as folder:
        subprocess.run(["dpkg-deb", "--raw-extract", package, folder], check=True)
        control = os.path.join(folder, "DEBIAN/control")
        with open(control) as f:
            text = re.sub("(?m)^Version: .*$", f"Version: {version}", f.read())
        with open(control, "w") as f:
            f.write(text)
        subprocess.run(["dpkg-deb", "--root-owner-group", "-Znone", "--build", folder, path], check=True,
                       stdout=subprocess.DEVNULL)


def dependencies(package):
    """The names of the packages that a package depends on."""
    said = subprocess.run(["dpkg-deb", "--field", package, "Depends"], capture_output=True, text=True,
                          check=True).stdout
    return re.findall(r"(?:^|, )([a-z0-9][a-z0-9.+-]*)", said)


def root_image(package):
    """A root filesystem as a tar file on which the package can be installed without a network."""
    options = ["--variant=essential", *containers.own_components()]
    names = ",".join([*PACKAGES, *(["rpm"] if shutil.which("rpmbuild") else []), *sorted(dependencies(package))])
    return containers.debian_image(containers.own_release(), names, options)


class Container:
    """A container with these folders mounted, as {place: folder}."""

    def __init__(self, engine, image, *program, mounts, options=()):
        self.engine = engine
        for place, folder in mounts.items():
            options = [*options, "--volume", f"{folder}:{place}:ro"]
        self.id = engine.start(image, *program, options=options)
        # One shell for all lines: starting one takes longer than most of what it is asked.
        self.shell = subprocess.Popen([*engine.base, "exec", "--interactive", "--env", "DEBIAN_FRONTEND=noninteractive",
                                       self.id, "sh"], env=engine.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      stderr=subprocess.DEVNULL)

    def run(self, line, limit_s=300):
        """(exit status, output) of a command line."""
        end = time.monotonic() + limit_s
        self.shell.stdin.write(f"(\n{line}\n) </dev/null 2>&1; status=$?; echo; echo @@RC $status\n".encode())
        self.shell.stdin.flush()
        said = b""
        while not (found := re.search(rb"\n@@RC (\d+)\n$", said)):
            ready, _, _ = select.select([self.shell.stdout], [], [], max(0, end - time.monotonic()))
            piece = os.read(self.shell.stdout.fileno(), 65536) if ready else b""
            said += piece
            if not piece:
                raise lib.Stuck(f"{line}: no end after {limit_s} s, or no shell: {said.decode()}")
        return int(found[1]), said[:found.start()].decode().rstrip()

    def discard(self):
        self.shell.kill()
        self.shell.wait()
        self.shell.stdin.close()
        self.shell.stdout.close()
        self.engine.remove(self.id)


def booted_container(engine, image, mounts, options=()):
    """A container whose systemd has started everything; skips where none comes up.

    The unit's protection needs mounts of its own: CAP_SYS_ADMIN. The devices of this machine stay out.
    """
    container = Container(engine, image, "/sbin/init", mounts=mounts,
                          options=["--systemd=always", "--cap-add", "SYS_ADMIN", *options])
    said = [""]

    def up():
        _status, said[0] = container.run("systemctl is-system-running")
        return said[0] in ("running", "degraded")

    try:
        lib.until(up, START_LIMIT_S, "systemd is up", 0.1)
    except lib.Stuck:
        container.discard()
        raise unittest.SkipTest(f"systemd does not run in a container here: {said[0]}") from None
    return container


def booted_machine(folder, image, mounts):
    """A virtual machine with a copy of these folders, up to its console."""
    for tool in ("cpio", "qemu-system-x86_64"):
        containers.need_program(tool)
    root = os.path.join(folder, "root")
    os.mkdir(root)
    subprocess.run(["tar", "-C", root, "-xf", image], check=True)
    for place, source in mounts.items():
        shutil.copytree(source, root + place)
    units = os.path.join(root, "etc/systemd/system")
    wants = os.path.join(units, "multi-user.target.wants")
    os.makedirs(wants, exist_ok=True)
    for path, text in ((f"{units}/console.service", CONSOLE_UNIT), (f"{root}/console", CONSOLE)):
        with open(path, "w") as f:
            f.write(text)
    os.symlink("../console.service", f"{wants}/console.service")
    os.symlink("/dev/null", f"{units}/serial-getty@ttyS0.service")
    os.symlink("sbin/init", f"{root}/init")
    initramfs = kvm.pack_root(folder)
    shutil.rmtree(root)
    machine = kvm.Machine(None, initramfs, device=False, extra=["-m", str(MEMORY_MIB)],
                          kernel_args="systemd.show_status=0 loglevel=1")
    try:
        machine.up(300)
        machine.run("export DEBIAN_FRONTEND=noninteractive; exec 2>&1; systemctl is-system-running --wait", 120)
    except BaseException:
        machine.discard()
        raise
    return machine
