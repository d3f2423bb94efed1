#!/usr/bin/env python3
"""A virtual machine to carry, for the step "guest" of tests/gpu/run on a machine where nothing can be installed.

    WEIR_E2E_BUNDLE=FOLDER tests/gpu/guest_vm.py FOLDER/vm

FOLDER/vm gets bin/qemu-system-x86_64, lib/ (what it needs beyond libc, found by RPATH, and its modules), firmware/, and
a stock kernel of Debian's with an initramfs: a shell on the console, and the modules with which the guest takes the
machine's own root by 9p. The kernel is WEIR_E2E_KERNEL, or the newest of /boot if it has 9p, or fetched by apt-get.
ci/bundle calls this with WEIR_BUNDLE_GUEST=1.
"""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

PROGRAM = "qemu-system-x86_64"
FIRMWARE = ("/usr/share/seabios/bios-256k.bin", "/usr/share/qemu/linuxboot_dma.bin", "/usr/share/qemu/kvmvapic.bin")
LIBC = r"/(libc|libm|libdl|libpthread|librt|libresolv|ld-linux[^/]*)\.so"


class Carried:
    """Where things are in the folder."""

    def __init__(self, folder):
        self.folder = folder
        self.qemu = os.path.join(folder, "bin", PROGRAM)
        self.libraries = os.path.join(folder, "lib")
        self.modules = os.path.join(folder, "lib/qemu")
        self.firmware = os.path.join(folder, "firmware")
        self.kernel = os.path.join(folder, "vmlinuz")
        self.initramfs = os.path.join(folder, "initramfs")

    def is_there(self):
        return all(map(os.path.exists, (self.qemu, self.firmware, self.kernel, self.initramfs)))


def look_beside(path, rpath):
    subprocess.run(["patchelf", "--set-rpath", rpath, path], check=True)


def carry_qemu(vm, kvm):
    program = shutil.which(PROGRAM) or sys.exit(f"guest_vm: no {PROGRAM}: {kvm.ADVICE}")
    for folder in (os.path.dirname(vm.qemu), vm.modules, vm.firmware):
        os.makedirs(folder)
    shutil.copy(program, vm.qemu)
    look_beside(vm.qemu, "$ORIGIN/../lib")
    for library in kvm.needed_libraries(program):
        if not re.search(LIBC, library):
            copied = shutil.copy(library, vm.libraries)
            look_beside(copied, "$ORIGIN")
    for module in glob.glob("/usr/lib/*/qemu/accel-tcg-x86_64.so"):
        shutil.copy(module, vm.modules)
    for path in FIRMWARE:
        shutil.copy(path, vm.firmware)


def carry_kernel(vm, kvm):
    found = kvm.find_kernel("linux-image-amd64", needs=("9p", "9pnet_virtio"), fetch=True)
    if isinstance(found, str):
        sys.exit(f"guest_vm: {found}")
    vmlinuz, modules = found
    shutil.copy(vmlinuz, vm.kernel)
    with tempfile.TemporaryDirectory(prefix="weir-guest-") as folder:
        kvm.start_root(folder, kvm.modules_in(modules, *kvm.NINEP, "virtio_console"))
        shutil.copy(kvm.pack_root(folder), vm.initramfs)
    os.chmod(vm.kernel, 0o644)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../e2e"))
    import kvm
    vm = Carried(sys.argv[1])
    shutil.rmtree(vm.folder, ignore_errors=True)
    carry_qemu(vm, kvm)
    carry_kernel(vm, kvm)


if __name__ == "__main__":
    main()
