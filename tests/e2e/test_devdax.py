#!/usr/bin/env python3
"""Virtual machines whose region is an NVDIMM: /dev/dax0.0 in the guest.

The cases of File need no QEMU: whoever has the tenant's file open is its machine. Those of Guest boot a stock
kernel under TCG: one of them always, the rest with WEIR_E2E_FULL=1.
"""
import os
import re
import signal
import stat
import sys
import unittest

import kvm
import lib
import test_kvm

REGION = 2 << 20  # where the region begins in the file (supervisor/machines/nvdimm.c)
EPOCH = REGION + 64  # of its header (transport/region.h)
SILENT_S = test_kvm.SILENT_S
DOCTOR = "WEIR_LIB_DIR=/usr/lib/x86_64-linux-gnu weir doctor"
GUEST_PROGRAMS = test_kvm.GUEST_PROGRAMS
lib.CASE_LIMIT_S = max(lib.CASE_LIMIT_S, 240 if kvm.FULL else 100)  # a machine under TCG boots in 3 to 15 s
expected = test_kvm.expected
transports = test_kvm.transports

# A QEMU as the host sees it: a process that has the file mapped, and says so. And one that has it open only.
HOLDER = """import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
memory = mmap.mmap(fd, 4 << 20) if sys.argv[2] == "map" else None
print('open', flush=True)
sys.stdin.read()"""

# One that opens it the moment another file takes its name.
NEXT_HOLDER = """import mmap, os, sys
before = os.stat(sys.argv[1]).st_ino
print('ready', flush=True)
while True:
    fd = os.open(sys.argv[1], os.O_RDWR)
    if os.fstat(fd).st_ino != before:
        break
    os.close(fd)
memory = mmap.mmap(fd, 4 << 20)
print('open', flush=True)
sys.stdin.read()"""


# One that has it as HOLDER has, and lets nobody else open it: 45 s, which is fs.lease-break-time.
LESSOR = HOLDER.replace("print('open'", """import fcntl, signal
signal.signal(signal.SIGIO, signal.SIG_IGN)
fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print('open'""")


def number(path, at):
    with open(path, "rb") as f:
        f.seek(at)
        return int.from_bytes(f.read(8), "little")


class Base(test_kvm.Base):
    def setUp(self):
        super().setUp()
        room = os.statvfs("/dev/shm")
        if room.f_blocks * room.f_frsize < 1 << 30:
            self.skipTest("/dev/shm is smaller than an NVDIMM")


class File(Base):
    def holder(self, host, how="map", program=HOLDER):
        process = lib.Process([sys.executable, "-c", program, kvm.nvdimm_path(host), how], name="holder")
        self.addCleanup(process.kill)
        process.wait_line("^open$")
        return process

    def served(self, host, tenant="alice", limit_s=5):
        lib.until(lambda: number(kvm.nvdimm_path(host, tenant), EPOCH), limit_s, "the region is served", 0.02)

    def says(self, host, what):
        return [line for line in host.process.errors if what in line]

    def test_each_tenant_has_a_file_that_nobody_else_opens(self):
        host = self.host()
        for tenant in ("alice", "bob"):
            info = os.stat(kvm.nvdimm_path(host, tenant))
            self.assertEqual(stat.S_IMODE(info.st_mode), 0o600)
            self.assertEqual(info.st_size, 1 << 30)
            self.assertLess(info.st_blocks * 512, 1 << 20)  # address space, not memory
        folder = os.path.dirname(kvm.nvdimm_path(host))
        self.assertEqual(stat.S_IMODE(os.stat(folder).st_mode), 0o711)
        host.weir("tenant", "remove", "--run-dir", host.run_dir, "bob")
        self.assertEqual(os.listdir(folder), ["alice.nvdimm"])
        self.assertEqual(host.stop(), 0)
        self.assertFalse(os.path.exists(folder))

    def test_who_opens_it_is_the_machine_and_the_next_finds_nothing_of_it(self):
        host = self.host()
        path = kvm.nvdimm_path(host)
        self.assertEqual(number(path, EPOCH), 0)  # who only reads is no machine, ..
        self.holder(host, "open")  # .. nor who does not map it: libvirt, when it labels it
        machine = self.holder(host)
        self.served(host)
        with open(path, "r+b") as f:
            f.seek(REGION + (4 << 20))
            f.write(b"a secret")
        before = os.stat(path)
        machine.kill()
        lib.until(lambda: os.stat(path).st_ino != before.st_ino, 5, "another file", 0.02)
        self.assertEqual(number(path, EPOCH), 0)
        self.assertEqual(number(path, REGION + (4 << 20)), 0)
        self.holder(host)
        self.served(host)
        self.assertEqual(len(self.says(host, f"virtual machine tenant=alice pid={machine.pid} ")), 1)
        lib.until(lambda: len(self.says(host, "virtual machine tenant=")) == 2, 5, "the next one is told of")

    def test_a_machine_that_starts_at_once_when_the_last_has_ended_is_seen(self):
        host = self.host()
        machine = self.holder(host)
        self.served(host)
        for _ in range(40):  # what it looks for is a few microseconds wide
            following = lib.Process([sys.executable, "-c", NEXT_HOLDER, kvm.nvdimm_path(host)], name="holder")
            self.addCleanup(following.kill)
            following.wait_line("^ready$")
            machine.kill()
            following.wait_line("^open$")
            # Nobody may open the file to see it: that would be seen.
            lib.until(lambda pid=following.pid: self.says(host, f"pid={pid} nvdimm="), 5, "the next one is told of")
            machine = following

    def test_a_machine_outlives_its_host(self):
        host = self.host()
        path = kvm.nvdimm_path(host)
        self.holder(host)
        self.served(host)
        inode = os.stat(path).st_ino
        for killed in (True, False):
            if killed:
                host.process.kill()
            else:
                host.process.signal(signal.SIGTERM)
                host.process.wait(12)
            with open(path, "r+b") as f:
                f.seek(REGION + (4 << 20))
                f.write(b"its data")
            epoch = number(path, EPOCH)
            host.start()
            lib.until(lambda: number(path, EPOCH) not in (0, epoch), 5, "the region is served", 0.02)
            self.assertEqual(len(self.says(host, "found again")), 1, host.process.tail())
            self.assertEqual(os.stat(path).st_ino, inode)
            self.assertNotEqual(number(path, REGION + (4 << 20)), 0)

    def test_a_machine_that_came_while_there_was_no_host(self):
        host = self.host()
        path = kvm.nvdimm_path(host)
        first = self.holder(host)
        self.served(host)
        host.process.kill()
        first.kill()
        with open(path, "r+b") as f:
            f.seek(REGION + (4 << 20))
            f.write(b"a secret")
        self.holder(host)
        host.start()
        self.served(host)
        self.assertEqual(self.says(host, "found again"), [])
        self.assertEqual(number(path, REGION + (4 << 20)), 0)

    def test_a_machine_that_lets_nobody_open_its_file_holds_no_host_up(self):
        host = self.host()
        path = kvm.nvdimm_path(host)
        host.process.kill()
        self.holder(host, program=LESSOR)
        before = os.stat(path).st_ino
        host.start()
        self.assertEqual(len(self.says(host, "is not served any more tenant=alice")), 1, host.process.tail())
        self.assertNotEqual(os.stat(path).st_ino, before)
        self.holder(host)
        self.served(host)

    def test_a_file_that_is_cut_short_harms_nobody_else(self):
        host = self.host()
        other = self.steady(host)
        path = kvm.nvdimm_path(host)
        machine = self.holder(host)
        self.served(host)
        os.truncate(path, 4096)  # by a QEMU that its guest has taken over
        lib.until(lambda: self.says(host, "cut short"), 5, "it is seen", 0.02)
        os.truncate(path, 0)
        self.steady_undisturbed(other)
        self.assertEqual(host.worker()["restarts"], 0)
        machine.kill()
        lib.until(lambda: os.path.getsize(path) == 1 << 30, 5, "another file", 0.02)
        self.holder(host)
        self.served(host)

    def test_a_folder_that_another_user_has_made_is_not_used(self):
        if os.geteuid() != 0:
            self.skipTest("only root can give a folder away")
        host = self.host()
        folder = os.path.dirname(kvm.nvdimm_path(host))
        self.assertEqual(host.stop(), 0)
        os.mkdir(folder)
        self.addCleanup(os.rmdir, folder)
        os.chown(folder, 65534, 65534)
        host.start()
        self.assertEqual(len(self.says(host, "no NVDIMM for virtual machines")), 2, host.process.tail())
        self.assertEqual(os.listdir(folder), [])
        self.finished_in(self.stand_in(host), "drv_memory")  # ivshmem is as ever


class Guest(Base):
    def boot(self, host, programs, extra=(), **kwargs):
        kvm.kernel()
        image = kvm.make_root(self.folder(), programs, modules=kvm.modules_called(*kvm.NVDIMM), weir=True)
        machine = kvm.Machine(host, image, extra=[*kvm.nvdimm_devices(host), *extra],
                              **{"device": False, **kwargs})
        self.addCleanup(machine.discard)
        return machine.up()

    def check(self, machine, program):
        status, output = machine.run(f"/cuda/{program}")
        self.assertEqual((status, output.strip()), expected(program))

    def start_steady(self, machine):
        """A program that works until its host is gone; its status comes to /tmp/rc."""
        machine.run("rm -f /tmp/rc /tmp/in; mkfifo /tmp/in; (sleep 1000 > /tmp/in &)")
        machine.run("(/cuda/e2e_steady < /tmp/in > /tmp/out 2>&1; echo $? > /tmp/rc) &")
        machine.run("while ! grep -q round /tmp/out; do usleep 100000; done")

    def lost(self, machine):
        status, output = machine.run("for i in $(seq 150); do test -s /tmp/rc && break; usleep 100000; done; "
                                     "tail -n 3 /tmp/out; test $(cat /tmp/rc) != 0")
        self.assertEqual(status, 0, output)
        self.assertRegex(output, "gave 46|gave 999|DEVICE_UNAVAILABLE")

    def test_a_locked_down_guest_runs_unmodified_programs(self):
        host = self.host()
        other = self.steady(host)
        machine = self.boot(host, [*GUEST_PROGRAMS[:3], "e2e_steady"], kernel_args="lockdown=confidentiality",
                             device=True)  # with the ivshmem device as well
        _status, said = machine.run(DOCTOR)
        self.assertRegex(said, r"taken: +by devdax: /dev/dax0.0, 1022 MiB")
        self.assertRegex(said, r"the way by ivshmem is closed: .*locked down \(Secure Boot\)")
        self.assertRegex(said, r"ok +a program here sees: Weir softgpu")
        for program in GUEST_PROGRAMS[:3]:
            with self.subTest(program):
                self.check(machine, program)
        # What a QEMU can do to the file that its guest cannot.
        self.start_steady(machine)
        self.assertEqual(transports(host), {"devdax", "shm"})
        os.truncate(kvm.nvdimm_path(host), REGION)
        lib.until(lambda: transports(host) == {"shm"}, 10, "its session is over", 0.05)
        self.steady_undisturbed(other)
        self.assertEqual(host.worker()["restarts"], 0)

    @unittest.skipUnless(kvm.FULL, "only with WEIR_E2E_FULL=1")
    def test_more_programs_two_at_a_time_as_any_user(self):
        host = self.host()
        machine = self.boot(host, GUEST_PROGRAMS)
        machine.run("echo 'user:x:1000:1000::/:/bin/sh' > /etc/passwd; chmod 755 /; chmod 1777 /tmp")
        _status, said = machine.run(f"su user -c '{DOCTOR}'")
        self.assertRegex(said, r"the way by devdax is closed: /dev/dax0.0: no permission")
        machine.run("chmod 660 /dev/dax0.0; chown 0:1000 /dev/dax0.0")  # what the udev rule does
        for program in GUEST_PROGRAMS:
            with self.subTest(program):
                _status, output = machine.run(f"su user -c '(/cuda/{program} > /tmp/a & /cuda/{program} > /tmp/b; "
                                              "wait); cat /tmp/a'")
                _status, second = machine.run("cat /tmp/b; rm /tmp/a /tmp/b")
                self.assertEqual(output.strip(), expected(program)[1])
                self.assertEqual(second.strip(), expected(program)[1])
        host.wait_idle()
        # Without the drivers the doctor says which; and that nobody serves it, when nobody does.
        host.process.kill()
        _status, said = machine.run(DOCTOR)
        self.assertRegex(said, r"gets CUDA error 100")
        machine.run("rmmod device_dax dax_pmem")
        _status, said = machine.run(DOCTOR)
        self.assertRegex(said, r"no way by devdax: no dax device of the NVDIMM \(modprobe")

    @unittest.skipUnless(kvm.FULL, "only with WEIR_E2E_FULL=1")
    def test_a_reset_a_host_that_is_killed_and_a_machine_that_is(self):
        host = self.host()
        machine = self.boot(host, ["drv_host_memory", "e2e_steady"])
        self.start_steady(machine)
        # The guest's kernel starts anew inside the same QEMU: its processes never say goodbye.
        machine.process.say("reboot -f")
        machine.up()
        self.check(machine, "drv_host_memory")
        host.wait_idle(limit_s=SILENT_S - 2)  # at once: the new kernel has another boot id
        # The worker, and the host.
        self.start_steady(machine)
        os.kill(host.worker_pid(), signal.SIGKILL)
        self.lost(machine)
        self.check(machine, "drv_host_memory")
        self.start_steady(machine)
        host.process.kill()
        self.lost(machine)
        host.start()
        self.check(machine, "drv_host_memory")
        # A program that is killed, and the machine.
        self.start_steady(machine)
        machine.run("kill -9 $(pidof e2e_steady)")
        took_s = kvm.until_s(lambda: not transports(host), SILENT_S + 5, "its session is over")
        self.assertGreater(took_s, SILENT_S - 5)
        self.start_steady(machine)
        machine.process.kill()
        host.wait_idle(limit_s=SILENT_S - 2)
        machine = self.boot(host, ["drv_host_memory"])
        self.check(machine, "drv_host_memory")


class Attach(test_kvm.Attach):
    """weir attach --channel devdax, with libvirt's own daemon."""

    def devdax_domain(self, libvirt, machine, room=kvm.MEMORY_ROOM):
        kvm.kernel()
        folder = self.folder()
        image = kvm.make_root(folder, ["drv_host_memory"], modules=kvm.modules_called(*kvm.NVDIMM))
        domain = kvm.Domain(libvirt, f"vm-{machine}", folder, image, machine, room)
        self.addCleanup(domain.discard)
        return domain

    def check(self, domain):
        status, output = domain.run("/cuda/drv_host_memory")
        self.assertEqual((status, output.strip()), expected("drv_host_memory"))

    @unittest.skipUnless(kvm.FULL, "only with WEIR_E2E_FULL=1")
    def test_attach_and_detach_while_it_runs(self):
        libvirt = self.libvirt()
        host = self.host(tenants=("alice",))
        domain = self.devdax_domain(libvirt, "pc")
        domain.start()
        said = self.on("attach", domain, host, "--channel", "devdax", "--weight", "300")
        self.assertIn("the machine's definition has the NVDIMM of tenant vm-pc", said)
        self.assertIn("it has the NVDIMM with the next start", said)
        domain.stop()
        domain.start()  # at once: the file is under its name at all times
        self.check(domain)
        self.assertEqual(host.tenant(domain.name)["weight"], 300)
        self.assertIn("has the NVDIMM already", self.on("attach", domain, host, "--channel", "devdax"))
        # libvirtd goes and comes; the guest does not notice.
        libvirt.start()
        self.check(domain)
        # A second NVDIMM can be added while it runs: that of another tenant, which the guest sees as well.
        said = self.on("attach", domain, host, "--channel", "devdax", "--tenant", "alice")
        self.assertIn("the running machine has the NVDIMM of tenant alice", said)
        domain.run("while ! test -e /dev/dax1.0; do usleep 100000; done")
        status, output = domain.run("WEIR_HOST=devdax:///dev/dax1.0 /cuda/drv_host_memory")
        self.assertEqual((status, output.strip()), expected("drv_host_memory"))
        said = self.on("detach", domain, host, "--tenant", "alice")
        self.assertIn("the running machine keeps the NVDIMM until it ends", said)
        self.on("detach", domain, host)
        self.assertNotRegex(domain.xml("--inactive"), "nvdimm|weir.dev")

    @unittest.skipUnless(kvm.FULL, "only with WEIR_E2E_FULL=1")
    def test_q35_gets_it_with_the_next_start(self):
        host = self.host(tenants=("alice",))
        domain = self.devdax_domain(self.libvirt(), "q35")
        self.on("attach", domain, host, "--channel", "devdax")
        domain.start()
        self.check(domain)

    @unittest.skipUnless(kvm.FULL, "only with WEIR_E2E_FULL=1")
    def test_a_domain_without_a_place_for_it_is_told_what_to_add(self):
        libvirt = self.libvirt()
        host = self.host(tenants=("alice",))
        domain = self.devdax_domain(libvirt, "pc", room="")
        said = self.on("attach", domain, host, "--channel", "devdax", expect=1)
        self.assertIn("its definition has no place for an NVDIMM", said)
        self.assertNotIn(domain.name, [row["name"] for row in host.status()["tenant"]])  # nothing was done
        # What it says to add is enough.
        lines = [line.strip() for line in said.splitlines() if line.startswith("    <")]
        self.assertEqual(len(lines), 2, said)
        xml = domain.xml("--inactive").replace("<memory unit", lines[0] + "<memory unit", 1)
        xml = re.sub(r"<cpu.*?</cpu>|<cpu[^>]*/>", "", xml, flags=re.S)
        xml = xml.replace("</os>", "</os>" + lines[1].replace("<cpu ...>", "<cpu>"), 1)
        path = os.path.join(self.folder(), "edited.xml")
        with open(path, "w") as f:
            f.write(xml)
        libvirt.virsh("define", path)
        self.on("attach", domain, host, "--channel", "devdax")
        domain.start()
        self.check(domain)

    def test_what_is_wrong_is_said(self):
        if not os.path.exists("/usr/lib/x86_64-linux-gnu/libvirt.so.0"):
            self.skipTest("no libvirt.so.0")
        host = self.host()
        said = self.weir("attach", "--connect", "test:///default", "--run-dir", host.run_dir, "--channel",
                         "devdax", "test", expect=1)
        self.assertIn("<maxMemory slots='4' unit='KiB'>", said)


if __name__ == "__main__":
    lib.main()
