#!/usr/bin/env python3
"""The ways of virtual machines beside ivshmem: virtio-serial ports and vsock.

The cases of Port need no QEMU. Those of Guest boot a stock kernel under TCG, most of them only with
WEIR_E2E_FULL=1. A kernel without vsock_loopback cannot connect to itself, so vsock is tested inside a guest,
where host and program are on one kernel.
"""
import os
import random
import re
import shutil
import signal
import socket
import time
import unittest

import kvm
import lib
import test_kvm

PROGRAMS = ["drv_vector_add", "drv_copies_large", "drv_memory", "drv_modules", "drv_streams_events", "drv_graph",
            "drv_graph_functions"]
GUEST_PROGRAMS = [*PROGRAMS, "drv_threads"]
SILENT_S = 10  # until an opener that does not beat is taken for dead (transport/stream_port.c)
LOST = 9  # errors that e2e_lost prints when its host is gone
lib.CASE_LIMIT_S = max(lib.CASE_LIMIT_S, 900 if kvm.FULL else 100)  # a machine in a machine takes its time
expected = test_kvm.expected
transports = test_kvm.transports
DOCTOR = "WEIR_LIB_DIR=/usr/lib/x86_64-linux-gnu weir doctor"


class Port(test_kvm.Base):
    def port(self, host, tenant="alice"):
        port = kvm.PortStandIn(host, tenant)
        self.addCleanup(port.close)
        return port

    def lost(self, guest):
        self.assertEqual(guest.wait(25), 0, guest.tail())
        self.assertEqual(sum(line.startswith("lost ") for line in guest.lines), LOST, guest.tail())

    def test_programs_print_the_same_one_after_the_other(self):
        host = self.host()
        port = self.port(host)
        for program in PROGRAMS:
            with self.subTest(program):
                guest = self.finished_in(port, program)
                self.assertEqual((0, guest.out.strip()), expected(program))
        host.wait_idle()
        self.assertEqual(host.stop(), 0)

    def test_the_socket_is_the_tenant(self):
        host = self.host()
        for tenant in ("alice", "bob"):
            guest = self.start(self.port(host, tenant), "e2e_steady")
            guest.wait_line(r"^round 0$")
        rows = host.status()["session"]
        self.assertEqual(sorted((r["tenant"], r["transport"]) for r in rows),
                         [("alice", "virtio-serial"), ("bob", "virtio-serial")])
        mode = os.stat(os.path.join(host.run_dir, "vm", "alice.serial")).st_mode
        self.assertEqual(mode & 0o777, 0o600)

    def test_killed_programs_make_room_for_the_next(self):
        host = self.host()
        port = self.port(host)
        for seed in range(4):
            guest = self.start(port, "e2e_churn", seed)
            lib.until(lambda: transports(host), 10, "a session")
            time.sleep(random.uniform(0.05, 0.4))
            guest.kill()  # in the middle of a packet, perhaps
            self.finished_in(port, "drv_memory")
        host.wait_idle()

    def test_a_killed_program_is_noticed(self):
        host = self.host()
        port = self.port(host)
        guest = self.start(port, "e2e_steady")
        guest.wait_line(r"^round 0$")
        guest.kill()
        took_s = kvm.until_s(lambda: not transports(host), SILENT_S + 5, "its session is over")
        self.assertGreater(took_s, SILENT_S - 5)
        host.wait_idle()

    def test_a_machine_that_ends_ends_its_session(self):
        host = self.host()
        other = self.steady(host)
        port = self.port(host)
        guest = self.start(port, "e2e_lost")
        guest.wait_line("^ready$")
        port.hang_up()
        self.lost(guest)
        lib.until(lambda: not host.leftovers(sessions=1), 10, "only the other tenant is left", 0.05)
        self.steady_undisturbed(other)

    def test_a_worker_that_dies_is_seen_and_replaced(self):
        host = self.host()
        guest = self.start(self.port(host), "e2e_lost")
        guest.wait_line("^ready$")
        worker = host.worker_pid()
        os.kill(worker, signal.SIGKILL)
        self.lost(guest)
        lib.until(lambda: host.worker_pid() != worker, 10, "the next worker")
        self.finished_in(self.port(host), "drv_modules")

    def test_a_removed_tenant_is_hung_up_on(self):
        host = self.host()
        guest = self.start(self.port(host), "e2e_lost")
        guest.wait_line("^ready$")
        self.assertEqual(host.weir("tenant", "remove", "--run-dir", host.run_dir, "alice").returncode, 0)
        self.lost(guest)
        self.assertFalse(os.path.exists(os.path.join(host.run_dir, "vm", "alice.serial")))
        # A tenant of another name may get its place.
        self.assertEqual(host.weir("tenant", "add", "--run-dir", host.run_dir, "carol").returncode, 0)
        self.finished_in(self.port(host, "carol"), "drv_memory")

    def test_nonsense_harms_nobody(self):
        host = self.host()
        other = self.steady(host)
        rng = random.Random(7)
        header = lambda kind, n, who: (0x50524957).to_bytes(4, "little") + kind.to_bytes(2, "little") \
            + n.to_bytes(2, "little") + who.to_bytes(8, "little")  # noqa: E731
        opened = header(1, 16, 5) + (~5 & (1 << 64) - 1).to_bytes(8, "little") + b"eir open"
        frames = [opened + header(3, 24, 5) + random.Random(n).randbytes(24) for n in range(20)]
        for mess in [rng.randbytes(100000), opened * 1000, opened[:20], header(3, 65535, 5) * 50, *frames]:
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(60)
                client.connect(os.path.join(host.run_dir, "vm", "alice.serial"))
                with self.subTest(len(mess)):
                    try:
                        client.sendall(mess)
                    except OSError:
                        pass  # hung up on in the middle
        self.steady_undisturbed(other)
        self.finished_in(self.port(host), "drv_modules")
        self.assertEqual(host.worker()["restarts"], 0)
        host.wait_idle(limit_s=30)


class Guest(test_kvm.Base):
    def machine(self, host, image, *extra):
        machine = kvm.Machine(host, image, extra=extra, device=False)
        self.addCleanup(machine.discard)
        return machine.up()

    def check(self, machine, program):
        status, output = machine.run(f"/cuda/{program}")
        self.assertEqual((status, output.strip()), expected(program))

    def serial(self, programs, ports, **kwargs):
        kvm.kernel()
        image = kvm.make_root(self.folder(), programs, modules=kvm.modules_called(*kvm.SERIAL), **kwargs)
        host = self.host()
        return host, self.machine(host, image, *kvm.serial_devices(host, ports))

    def test_a_guest_with_ports_alone(self):
        host, machine = self.serial([*GUEST_PROGRAMS, "e2e_steady"], 2, weir=True)
        _status, said = machine.run(DOCTOR)
        self.assertRegex(said, r"no way by ivshmem: no PCI device")
        self.assertRegex(said, r"taken: +by virtio-serial: 2 ports, a program at a time on each")
        self.assertRegex(said, r"ok +a program here sees: Weir softgpu")
        for program in GUEST_PROGRAMS if kvm.FULL else GUEST_PROGRAMS[:3]:
            with self.subTest(program):
                self.check(machine, program)
        # Two at a time, and a third that is told why not.
        machine.run("mkfifo /tmp/in; (sleep 1000 > /tmp/in &)")
        for i in range(2):
            machine.run(f"(/cuda/e2e_steady < /tmp/in > /tmp/out{i} 2>&1; echo $? > /tmp/rc{i}) &")
            machine.run(f"while ! grep -q round /tmp/out{i}; do usleep 100000; done")
        self.assertEqual(len(host.status()["session"]), 2)
        status, said = machine.run("WEIR_LOG=error /cuda/drv_memory")
        self.assertNotEqual(status, 0)
        self.assertIn("exists already", said)
        # A killed one's port is the next one's at once, whatever it left behind.
        machine.run("kill -9 $(pidof e2e_steady | cut -d' ' -f1)")
        self.check(machine, "drv_memory")
        # The worker dies: the other one sees it, and QEMU connects again.
        os.kill(host.worker_pid(), signal.SIGKILL)
        status, _said = machine.run("while ! test -s /tmp/rc0 -a -s /tmp/rc1; do usleep 100000; done")
        self.check(machine, "drv_modules")
        # So does the host, and another one takes its place.
        host.process.kill()
        host.start()
        self.check(machine, "drv_modules")
        machine.process.kill()
        host.wait_idle(limit_s=SILENT_S - 2)

    @unittest.skipUnless(kvm.FULL, "only with WEIR_E2E_FULL=1")
    def test_a_reset_and_a_suspension(self):
        host, machine = self.serial(["drv_modules", "e2e_steady"], 1)
        machine.run("mkfifo /tmp/in; (sleep 1000 > /tmp/in &)")
        machine.run("(/cuda/e2e_steady < /tmp/in > /tmp/out 2>&1) &")
        machine.run("while ! grep -q round /tmp/out; do usleep 100000; done")
        machine.process.signal(signal.SIGSTOP)
        time.sleep(SILENT_S + 4)
        machine.process.signal(signal.SIGCONT)
        time.sleep(1)
        self.assertEqual(transports(host), {"virtio-serial"})
        machine.process.say("reboot -f")
        machine.up()
        self.check(machine, "drv_modules")
        host.wait_idle(limit_s=SILENT_S - 2)

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
    def test_attach_and_detach_while_it_runs(self):
        libvirt = self.libvirt()
        kvm.kernel()
        folder = self.folder()
        image = kvm.make_root(folder, ["drv_modules"], modules=kvm.modules_called(*kvm.SERIAL))
        domain = kvm.Domain(libvirt, "vm-pc", folder, image)
        self.addCleanup(domain.discard)
        host = self.host(tenants=("alice",))
        domain.start()
        said = self.on("attach", domain, host, "--channel", "virtio-serial", "--ports", "1")
        self.assertIn("gets no virtio-serial controller: it has 1 port with the next start", said)
        domain.stop()
        domain.start()
        said = self.on("attach", domain, host, "--channel", "virtio-serial", "--ports", "2")
        self.assertIn("the running machine has 2 ports of tenant vm-pc", said)
        domain.run("while ! test -e /dev/vport0p2 -o -e /dev/vport1p2; do usleep 100000; done")
        status, output = domain.run("/cuda/drv_modules")
        self.assertEqual((status, output.strip()), expected("drv_modules"))
        self.assertIn("2 ports already", self.on("attach", domain, host, "--channel", "virtio-serial",
                                                 "--ports", "2"))
        if not os.path.exists("/dev/vhost-vsock"):
            said = self.on("attach", domain, host, "--channel", "vsock", expect=1)
            self.assertIn("this machine has no /dev/vhost-vsock: modprobe vhost_vsock", said)
        self.on("detach", domain, host)
        lib.until(lambda: "weir.0" not in domain.xml(), 20, "the guest lets go of it", 0.2)
        self.assertNotRegex(domain.xml("--inactive"), r"weir\.(0|dev)")
        domain.stop()
        self.on("attach", domain, host, "--channel", "virtio-serial")
        domain.start()
        status, output = domain.run("/cuda/drv_modules")
        self.assertEqual((status, output.strip()), expected("drv_modules"))

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
        for args, why in ((("--channel", "pigeon"), "no channel 'pigeon'"),
                          (("--ports", "3"), "--ports is for --channel virtio-serial"),
                          (("--channel", "virtio-serial", "--ports", "0"), "from 1 to 30")):
            with self.subTest(args):
                self.assertIn(why, self.weir("attach", *args, "vm", expect=2))

    test_q35_gets_it_with_the_next_start = None  # inherited: test_kvm.py runs it


if __name__ == "__main__":
    lib.main()
