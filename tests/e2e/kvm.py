"""Virtual machines for the end-to-end tests.

StandIn is QEMU as the host sees it, without a machine: it takes the region from the ivshmem server, and
programs of this kernel open it as a file. Machine is a real QEMU with a stock kernel of the distribution
and a root filesystem of busybox, a C library, Weir's guest library and test programs, driven over its
serial console. It runs under TCG: /dev/kvm may be there and not run a stock kernel.

    WEIR_E2E_KERNEL   a vmlinuz for the machine; else one of /boot; else, with WEIR_E2E_FULL=1, Debian's
                      linux-image-cloud package is fetched (not installed)
"""
import array
import ctypes
import glob
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import threading
import time
import unittest

import lib
import libvirtd

FULL = os.environ.get("WEIR_E2E_FULL") == "1"
ADVICE = "apt-get install qemu-system-x86 busybox-static cpio"
RING_S = 0.002
PIDFD_GETFD = 438  # the system call, on all architectures


class StandIn:
    """A connection to <run_dir>/vm/<tenant>.sock with what came through it."""

    def __init__(self, host, tenant="alice"):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(os.path.join(host.run_dir, "vm", f"{tenant}.sock"))
        self.messages = [self._receive() for _ in range(5)]
        self.region = self.messages[2][1]
        self.bell = self.messages[3][1]
        self._stop = threading.Event()
        self._ringer = threading.Thread(target=self._ring, daemon=True)
        self._ringer.start()

    def _receive(self):
        data, ancillary, _flags, _address = self.socket.recvmsg(8, socket.CMSG_SPACE(4))
        fds = array.array("i")
        for _level, _kind, bytes_ in ancillary:
            fds.frombytes(bytes_[:4])
        return struct.unpack("<q", data)[0], fds[0] if fds else None

    def _ring(self):
        """What a guest does with its doorbell; a program of this kernel has none."""
        while not self._stop.wait(RING_S):
            os.write(self.bell, struct.pack("<Q", 1))

    @property
    def url(self):
        return f"ivshmem:///proc/{os.getpid()}/fd/{self.region}"

    def environment(self):
        return dict(lib.clean_environment(), LD_LIBRARY_PATH=lib.places.guest_lib,
                    WEIR_HOST=self.url, WEIR_LOG="error")

    def start(self, program, *args):
        path = lib.places.program(program)
        return lib.Process([path, *map(str, args)], env=self.environment(), name=program)

    def close(self):
        if not self._stop.is_set():
            self._stop.set()
            self._ringer.join(5)
            self.socket.close()
            for _number, fd in self.messages:
                if fd is not None:
                    os.close(fd)


_kernel = None


def kernel():
    """(vmlinuz, folder of its modules or None); skips where there is none."""
    global _kernel
    if _kernel is None:
        _kernel = find_kernel()
    if isinstance(_kernel, str):
        raise unittest.SkipTest(_kernel)
    return _kernel


def find_kernel(package="linux-image-cloud-amd64", needs=(), fetch=FULL):
    """(vmlinuz, folder of its modules or None), or why there is none; needs: modules that it must have."""
    wanted = os.environ.get("WEIR_E2E_KERNEL")
    for path in [wanted] if wanted else sorted(glob.glob("/boot/vmlinuz-*"), reverse=True):
        folder = modules_of(path, "/")
        if os.access(path, os.R_OK) and (not needs or folder and len(modules_in(folder, *needs)) == len(needs)):
            return path, folder
    folder = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"),
                          "weir-e2e-kernel" if "cloud" in package else f"weir-e2e-{package}")
    found = glob.glob(f"{folder}/boot/vmlinuz-*")
    if not found and not fetch:
        return "no kernel for a guest: set WEIR_E2E_KERNEL, or WEIR_E2E_FULL=1 to fetch one"
    if not found:
        why = fetch_kernel(folder, package)
        if why:
            return why
        found = glob.glob(f"{folder}/boot/vmlinuz-*")
    return found[0], modules_of(found[0], folder)


def modules_of(vmlinuz, root):
    version = os.path.basename(vmlinuz).split("-", 1)[1]
    folder = os.path.join(root, "lib/modules", version)
    return folder if os.path.isdir(folder) else None


# In the order in which they need each other.
VIRTIO = ("virtio_ring", "virtio", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci")
NVDIMM = ("libnvdimm", "nd_btt", "nd_pmem", "nfit", "dax_pmem", "device_dax")
NINEP = (*VIRTIO, "9pnet", "9pnet_virtio", "netfs", "fscache", "9p", "overlay")
VSOCK_LOOPBACK = ("vsock", "vmw_vsock_virtio_transport_common", "vsock_loopback")
VSOCK_GUEST = (*VIRTIO, "vsock", "vmw_vsock_virtio_transport_common", "vmw_vsock_virtio_transport")
VSOCK_HOST = ("vsock", "vmw_vsock_virtio_transport_common", "vhost_iotlb", "vhost", "vhost_vsock")


def modules_called(*names):
    """Files of the guest's kernel modules; one that is built in has none."""
    _vmlinuz, folder = kernel()
    if folder is None:
        raise unittest.SkipTest("the guest's kernel comes without modules")
    return modules_in(folder, *names)


def modules_in(folder, *names):
    found = [glob.glob(f"{folder}/**/{name}.ko*", recursive=True) for name in names]
    return [paths[0] for paths in found if paths]


UNPACK = {".ko": "cat", ".xz": "xz -dc", ".zst": "zstd -dc", ".gz": "gzip -dc"}


def copy_module(source, place):
    """As busybox loads it: not compressed, as those of Debian 13 and of Ubuntu are."""
    command = UNPACK[os.path.splitext(source)[1]].split()
    if not shutil.which(command[0]):
        raise unittest.SkipTest(f"the guest's kernel has modules for {command[0]}, which is not here")
    with open(place, "wb") as f:
        subprocess.run([*command, source], stdout=f, check=True)


def fetch_kernel(folder, package):
    """Why it cannot be had, or None."""
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        return "no kernel for a guest, and no apt-get to fetch one"
    part = folder + ".part"
    shutil.rmtree(part, True)
    os.makedirs(part)
    depends = subprocess.run(["apt-cache", "depends", package], text=True,
                             capture_output=True).stdout
    package = re.search(r"Depends: (linux-image-\S+)", depends)
    got = package and subprocess.run(["apt-get", "download", package[1]], cwd=part, timeout=300,
                                     capture_output=True, text=True).returncode == 0
    debs = glob.glob(f"{part}/*.deb")
    if not got or not debs:
        return f"no kernel for a guest: apt-get download {package} failed"
    subprocess.run(["dpkg-deb", "-x", debs[0], part], check=True)
    os.unlink(debs[0])
    os.rename(part, folder)
    return None


INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev 2>/dev/null
for m in /modules/*.ko; do test -e $m && insmod $m; done
export WEIR_LOG=error
exec 0</dev/ttyS0
stty -echo
echo "@@UP $(cut -d' ' -f1 /proc/uptime)"
while read -r line; do eval "$line"; status=$?; echo; echo "@@RC $status"; done
poweroff -f
"""

LIBRARIES = ("libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1")


def needed_libraries(path):
    """Where the loader finds what a program needs."""
    said = subprocess.run(["ldd", path], capture_output=True, text=True, timeout=180).stdout
    return re.findall(r"=> (/\S+)", said)


def qemu_files():
    """(file, folder in the root) of what QEMU needs to run inside a guest."""
    places = [(shutil.which("qemu-system-x86_64"), "bin")]
    accelerators = glob.glob("/usr/lib/*/qemu/accel-tcg-x86_64.so")
    for path in [*accelerators, *glob.glob("/usr/share/seabios/bios-256k.bin"),
                 *(f"/usr/share/qemu/{name}" for name in ("linuxboot_dma.bin", "kvmvapic.bin"))]:
        places.append((path, os.path.dirname(path).lstrip("/")))
    return places


def make_root(folder, programs, modules=(), weir=False, files=()):
    """An initramfs with these programs in /cuda, and files as (source, folder); gives its path."""
    root = start_root(folder, modules)
    lib_folder = os.path.join(root, "usr/lib/x86_64-linux-gnu")
    for name in ("cuda", "lib64", "etc", lib_folder):
        os.makedirs(os.path.join(root, name))
    os.symlink("usr/lib", os.path.join(root, "lib"))
    shutil.copy("/lib64/ld-linux-x86-64.so.2", os.path.join(root, "lib64"))
    for name in LIBRARIES:
        shutil.copy(f"/lib/x86_64-linux-gnu/{name}", lib_folder)
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        path = os.path.join(lib.places.guest_lib, name)
        if os.path.exists(path):
            shutil.copy(path, lib_folder)
    for program in programs:
        shutil.copy(lib.places.program(program), os.path.join(root, "cuda"))
    if weir:
        shutil.copy(lib.places.weir, os.path.join(root, "bin/weir"))
        for path in needed_libraries(lib.places.weir):
            shutil.copy(path, lib_folder)
    for source, place in files:
        place = os.path.join(root, place)
        os.makedirs(place, exist_ok=True)
        shutil.copy(source, place)
        for path in needed_libraries(source):
            shutil.copy(path, lib_folder)
    return pack_root(folder)


def start_root(folder, modules=()):
    """folder/root with a shell that loads these modules and takes commands from the console."""
    for tool in ("busybox", "cpio", "qemu-system-x86_64"):
        if not shutil.which(tool):
            raise unittest.SkipTest(f"no {tool}: {ADVICE}")
    root = os.path.join(folder, "root")
    for name in ("bin", "proc", "sys", "dev", "tmp", "modules"):
        os.makedirs(os.path.join(root, name))
    shutil.copy(shutil.which("busybox"), os.path.join(root, "bin/busybox"))
    for number, module in enumerate(modules):
        copy_module(module, os.path.join(root, "modules", f"{number:02d}.ko"))
    with open(os.path.join(root, "init"), "w") as f:
        f.write(INIT)
    os.chmod(os.path.join(root, "init"), 0o755)
    return root


def pack_root(folder):
    """The initramfs of folder/root."""
    root, image = os.path.join(folder, "root"), os.path.join(folder, "initramfs")
    subprocess.run(f"find . | cpio -o -H newc --quiet > {image}", shell=True, cwd=root, check=True)
    return image


class Console:
    """A guest's shell: lines go in, output and "@@RC status" come out."""

    def __init__(self, process):
        self.process = process
        self.seen = 0

    def wait_up(self, limit_s=60):
        self.process.wait_line(r"@@UP", limit_s, after=self.seen)
        self.seen = len(self.process.lines)
        # The line that says so may not be the last one that has come.
        for number in range(self.seen - 1, -1, -1):
            if "@@UP" in self.process.lines[number]:
                self.seen = number + 1
                break

    def run(self, line, limit_s=60):
        """(exit status, output) of a command line."""
        self.process.say(line)
        try:
            match = self.process.wait_line(r"@@RC (\d+)", limit_s, after=self.seen)
        except lib.Stuck as error:
            raise lib.Stuck(f"in the machine: {line}: {error}") from None
        lines = list(self.process.lines)
        end = next(i for i in range(self.seen, len(lines)) if "@@RC" in lines[i])
        output = "\n".join(text.replace("\r", "") for text in lines[self.seen:end]).rstrip()
        self.seen = end + 1
        return int(match[1]), output


def nvdimm_path(host, tenant="alice"):
    return os.path.join(host.vm_memory, f"{tenant}.nvdimm")


def nvdimm_devices(host, tenant="alice"):
    """QEMU's arguments for the tenant's NVDIMM."""
    path = nvdimm_path(host, tenant)
    return ["-machine", "pc,nvdimm=on", "-m", "512,slots=2,maxmem=4G", "-object",
            f"memory-backend-file,id=weir,share=on,mem-path={path},size={os.path.getsize(path)}",
            "-device", "nvdimm,memdev=weir"]


def ivshmem_device(host, tenant):
    return ["-chardev", f"socket,id=weir,path={host.run_dir}/vm/{tenant}.sock",
            "-device", "ivshmem-doorbell,chardev=weir,vectors=1,ioeventfd=on"]


class Machine:
    """A QEMU with the tenant's device."""

    def __init__(self, host, image, tenant="alice", extra=(), device=True, kernel_args=""):
        vmlinuz, _modules = kernel()
        argv = ["qemu-system-x86_64", "-accel", "tcg,thread=multi", "-m", "512", "-smp", "2",
                "-nographic", "-monitor", "none", "-serial", "stdio", "-nic", "none",
                "-kernel", vmlinuz, "-initrd", image, "-append", f"console=ttyS0 quiet panic=-1 {kernel_args}"]
        if device:
            argv += ivshmem_device(host, tenant)
        self.process = lib.Process([*argv, *extra], env=lib.clean_environment(), name="qemu")
        self.console = Console(self.process)

    @property
    def pid(self):
        return self.process.pid

    def up(self, limit_s=90):
        self.console.wait_up(limit_s)
        return self

    def run(self, line, limit_s=60):
        return self.console.run(line, limit_s)

    def discard(self):
        self.process.kill()


def as_by_libvirt(path):
    """QEMU's arguments for a monitor at a path, and for threads with names."""
    return ["-qmp", f"unix:{path},server=on,wait=off", "-name", "guest,debug-threads=on"]


class Monitor:
    """QEMU's monitor."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(path)
        self.stream = self.socket.makefile("rw")
        self.stream.readline()
        self.run("qmp_capabilities")

    def run(self, command):
        self.stream.write(json.dumps({"execute": command}) + "\n")
        self.stream.flush()
        while True:
            answer = json.loads(self.stream.readline())
            if "error" in answer:
                raise OSError(f"{command}: {answer['error']}")
            if "return" in answer:
                return answer["return"]

    def close(self):
        self.stream.close()
        self.socket.close()


def hang_up(pid, fd):
    """End the connection that a process has under a descriptor, for both of its ends."""
    pid_fd = os.pidfd_open(pid)
    copy = ctypes.CDLL(None, use_errno=True).syscall(PIDFD_GETFD, pid_fd, fd, 0)
    why = ctypes.get_errno()
    os.close(pid_fd)
    if copy < 0:
        raise OSError(why, os.strerror(why))
    with socket.socket(fileno=copy) as connection:
        connection.shutdown(socket.SHUT_RDWR)


def until_s(condition, limit_s, what):
    """How long it took for the condition to come true."""
    start = time.monotonic()
    lib.until(condition, limit_s, what, 0.05)
    return time.monotonic() - start


Libvirt = libvirtd.Libvirtd

DOMAIN = """<domain type='qemu'>
  <name>{name}</name>
  {room}<memory unit='MiB'>512</memory><vcpu>2</vcpu>
  <features><acpi/></features>
  <os><type arch='x86_64' machine='{machine}'>hvm</type>
    <kernel>{kernel}</kernel><initrd>{initrd}</initrd>
    <cmdline>console=ttyS0 quiet panic=-1</cmdline></os>
  <on_reboot>restart</on_reboot>
  <devices>
    <emulator>{emulator}</emulator>
    <serial type='unix'><source mode='bind' path='{console}'/></serial>
    <memballoon model='none'/>
  </devices>
</domain>
"""


# What a domain needs before it can have an NVDIMM.
MEMORY_ROOM = """<maxMemory slots='4' unit='MiB'>4096</maxMemory>
  <cpu><numa><cell id='0' cpus='0-1' memory='512' unit='MiB'/></numa></cpu>
"""


class SocketProcess:
    """A domain's console with the face of a lib.Process, as Console wants it."""

    def __init__(self, path):
        self.name = "console"
        self.lines = []
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        with self.socket.makefile("rb") as stream:
            for line in stream:
                self.lines.append(line.decode("utf-8", "replace").rstrip("\r\n"))

    def say(self, text):
        self.socket.sendall(text.encode() + b"\n")

    def wait_line(self, pattern, limit_s=20, after=0):
        regex = re.compile(pattern)

        def look():
            return next((m for m in map(regex.search, list(self.lines)[after:]) if m), None)

        try:
            return lib.until(look, limit_s, f"the guest says '{pattern}'")
        except lib.Stuck as error:
            raise lib.Stuck("\n".join([str(error), *self.lines[-20:]])) from None

    def close(self):
        self.socket.close()


class Domain:
    """A guest of libvirt."""

    def __init__(self, libvirt, name, folder, image, machine="pc", room=""):
        self.libvirt = libvirt
        self.name = name
        self.path = os.path.join(folder, "console.sock")
        vmlinuz, _modules = kernel()
        self.kernel = shutil.copy(vmlinuz, os.path.join(folder, "vmlinuz"))
        os.chmod(self.kernel, 0o644)
        xml = os.path.join(folder, "domain.xml")
        with open(xml, "w") as f:
            f.write(DOMAIN.format(name=name, machine=machine, kernel=self.kernel, initrd=image, room=room,
                                  emulator=shutil.which("qemu-system-x86_64"), console=self.path))
        self.libvirt.virsh("define", xml)
        self.process = None
        self.console = None

    def start(self):
        self.libvirt.virsh("start", self.name)
        self.process = SocketProcess(self.path)
        self.console = Console(self.process)
        self.console.wait_up(90)
        return self

    def run(self, line, limit_s=60):
        return self.console.run(line, limit_s)

    def xml(self, *flags):
        return self.libvirt.virsh("dumpxml", self.name, *flags)

    def stop(self):
        if self.process:
            self.process.close()
            self.process = None
        self.libvirt.virsh("destroy", self.name, check=False)

    def discard(self):
        self.stop()
        self.libvirt.virsh("undefine", self.name, check=False)
