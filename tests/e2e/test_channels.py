#!/usr/bin/env python3
"""The way of virtual machines beside ivshmem: vsock. virtio-serial, which was another, is refused.

The cases of Guest boot a stock kernel under TCG, one of them only with WEIR_E2E_FULL=1. A kernel
without vsock_loopback cannot connect to itself, so vsock is tested inside a guest, where host and program are on one
kernel.
"""
import os
import re
import shutil
import subprocess
import unittest

import kvm
import lib
import test_kvm

PROGRAMS = ["drv_vector_add", "drv_copies_large", "drv_memory", "drv_modules", "drv_streams_events", "drv_graph",
            "drv_graph_functions"]
GUEST_PROGRAMS = [*PROGRAMS, "drv_threads"]
lib.CASE_LIMIT_S = max(lib.CASE_LIMIT_S, 900 if kvm.FULL else 100)  # a machine in a machine takes its time
expected = test_kvm.expected
DOCTOR = "WEIR_LIB_DIR=/usr/lib/x86_64-linux-gnu weir doctor"


class Gone(lib.Case):
    def test_what_replaces_virtio_serial_is_named(self):
        program = subprocess.run([lib.places.program("drv_memory")], capture_output=True, text=True, timeout=180,
                                 env=dict(lib.clean_environment(), LD_LIBRARY_PATH=lib.places.guest_lib,
                                          WEIR_HOST="virtio-serial:///dev/vport0p1"))
        self.assertIn("virtio-serial is gone: use ivshmem://", program.stderr)
        ran = lib.run_weir("run", "--host", "virtio-serial://", "--", "true")
        self.assertEqual(ran.returncode, 2)
        self.assertIn("virtio-serial is gone: use ivshmem://", ran.stderr)
        for words in (("--channel", "virtio-serial"), ("--ports", "3")):
            ran = lib.run_weir("attach", *words, "vm")
            self.assertEqual(ran.returncode, 2)
            self.assertIn("take --channel ivshmem", ran.stderr)


class Guest(test_kvm.Base):
    def machine(self, host, image, *extra):
        machine = kvm.Machine(host, image, extra=extra, device=False)
        self.addCleanup(machine.discard)
        return machine.up()

    def check(self, machine, program):
        status, output = machine.run(f"/cuda/{program}")
        self.assertEqual((status, output.strip()), expected(program))

    def vsock_image(self):
        kvm.kernel()
        self.assertTrue(kvm.modules_called("vsock_loopback"), "the kernel has no vsock_loopback")
        folder = self.folder()
        config = os.path.join(folder, "weir.toml")
        with open(config, "w") as f:
            f.write('[host]\nvm_region = "64MiB"\nwindow_bytes = "1GiB"\ncdi = "none"\n'
                    f'driver = "softgpu"\nsoftgpu = "/softgpu/{os.path.basename(lib.places.softgpu)}"\n'
                    '[[tenant]]\nname = "alice"\nvsock_cid = 1\n[[tenant]]\nname = "bob"\nvsock_cid = 77\n')
        return kvm.make_root(folder, GUEST_PROGRAMS, weir=True,
                             modules=kvm.modules_called(*kvm.VSOCK_LOOPBACK),
                             files=[(config, "etc"), (lib.places.softgpu, "softgpu")])

    def test_vsock_inside_a_guest(self):
        """Host and programs in one machine, which its own loopback connects: CID 1 is the tenant."""
        host = self.host()
        machine = self.machine(host, self.vsock_image())
        _status, said = machine.run(DOCTOR + " | grep vsock")
        self.assertIn("no way by vsock: /dev/vsock leads to no host from here", said)
        machine.run("mkdir -p /run; (weir serve --config /etc/weir.toml --log info > /tmp/serve 2>&1 &) ; "
                    "until grep -q 'ready run_dir' /tmp/serve; do usleep 100000; done")
        _status, said = machine.run("cat /tmp/serve")
        self.assertIn("listening on vsock port=7070", said)
        for program in GUEST_PROGRAMS if kvm.FULL else GUEST_PROGRAMS[:3]:
            with self.subTest(program):
                status, output = machine.run(f"WEIR_HOST=vsock://1:7070 /cuda/{program}")
                self.assertEqual((status, output.strip()), expected(program))
        _status, said = machine.run("grep 'session: begun' /tmp/serve | tail -n 1")
        self.assertIn("tenant=alice", said)
        self.assertIn("transport=vsock", said)
        # A CID that is nobody's: the tenant's is taken away.
        machine.run("weir tenant set alice vsock_cid=78")
        status, said = machine.run("WEIR_HOST=vsock://1 /cuda/drv_memory")
        self.assertNotEqual(status, 0)
        self.assertIn("no tenant of this host has the vsock_cid 1", said)


    @unittest.skipUnless(kvm.FULL, "only with WEIR_E2E_FULL=1")
    def test_vsock_from_a_guest_to_its_host(self):
        """A machine with a host in it, and a machine in that one: few test machines have vhost_vsock."""
        kvm.kernel()
        vmlinuz, _modules = kvm.kernel()
        inner, outer = self.folder(), self.folder()
        image = kvm.make_root(inner, ["drv_memory"], modules=kvm.modules_called(*kvm.VSOCK_GUEST))
        config = os.path.join(outer, "weir.toml")
        with open(config, "w") as f:
            f.write('[host]\nvm_region = "64MiB"\nwindow_bytes = "1GiB"\ncdi = "none"\n'
                    f'driver = "softgpu"\nsoftgpu = "/softgpu/{os.path.basename(lib.places.softgpu)}"\n'
                    '[[tenant]]\nname = "alice"\n[[tenant]]\nname = "bob"\nvsock_cid = 42\n')
        kernel = shutil.copy(vmlinuz, os.path.join(outer, "vmlinuz"))
        root = kvm.make_root(outer, [], weir=True, modules=kvm.modules_called(*kvm.VSOCK_HOST),
                             files=[(config, "etc"), (lib.places.softgpu, "softgpu"), (kernel, "vm"),
                                    (image, "vm"), *kvm.qemu_files()])
        machine = self.machine(self.host(), root, "-m", "2048")
        machine.run("mkdir -p /run; (weir serve --config /etc/weir.toml --log info > /tmp/serve 2>&1 &)")
        machine.run("mkfifo /tmp/in; (sleep 1000 > /tmp/in &)")
        machine.run("(qemu-system-x86_64 -L /usr/share/seabios -L /usr/share/qemu -accel tcg -m 256 -nographic "
                    "-monitor none -serial stdio -vga none -nic none -kernel /vm/vmlinuz -initrd /vm/initramfs "
                    "-append 'console=ttyS0 quiet panic=-1' -device vhost-vsock-pci,guest-cid=42 "
                    "< /tmp/in > /tmp/out 2>&1; echo $? > /tmp/gone) &")
        status, said = machine.run("for i in $(seq 500); do grep -q @@UP /tmp/out && break; test -e /tmp/gone && break;"
                                   " sleep 1; done; sed s/@@/:/ /tmp/out; grep -q @@UP /tmp/out", 600)
        self.assertEqual(status, 0, said)
        machine.run("echo /cuda/drv_memory > /tmp/in")
        _status, said = machine.run("until grep -q @@RC /tmp/out; do sleep 1; done; sed s/@@/:/ /tmp/out", 300)
        self.assertIn("PASS drv_memory", said)
        _status, said = machine.run("grep 'session: begun' /tmp/serve")
        self.assertIn("tenant=bob", said)
        self.assertIn("transport=vsock", said)


class Attach(test_kvm.Attach):
    """weir attach --channel, with libvirt's own daemon."""

    @unittest.skipUnless(kvm.FULL, "only with WEIR_E2E_FULL=1")
    def test_vsock_is_written_into_the_definition(self):
        """No more can be seen where the kernel has no vhost_vsock."""
        domain, host = self.domain(self.libvirt(), programs=())
        said = self.on("attach", domain, host, "--channel", "vsock")
        cid = host.weir("tenant", "show", "--run-dir", host.run_dir, domain.name).stdout
        cid = re.search(r"vsock_cid\s*=?\s*(\d+)", cid)[1]
        self.assertIn(f"vsock with CID {cid}", said)
        self.assertIn(f"<cid auto='no' address='{cid}'/>", domain.xml("--inactive"))
        self.assertIn("already", self.on("attach", domain, host, "--channel", "vsock"))
        self.on("detach", domain, host)
        self.assertNotIn("vsock", domain.xml("--inactive"))

    def test_what_is_wrong_is_said(self):
        self.assertIn("no channel 'pigeon'", self.weir("attach", "--channel", "pigeon", "vm", expect=2))

    test_q35_gets_it_with_the_next_start = None  # inherited: test_kvm.py runs it


if __name__ == "__main__":
    lib.main()
