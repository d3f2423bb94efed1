#!/usr/bin/env python3
"""Virtual machines: unmodified programs over an ivshmem device, and what can go wrong with it.

The cases of Region need no QEMU. Those of Guest boot a stock kernel under TCG: one of them always, the rest
with WEIR_E2E_FULL=1.
"""
import mmap
import os
import random
import signal
import subprocess
import time
import unittest

import kvm
import lib

# Each uses another part of what a region carries; all say the same on softgpu directly.
PROGRAMS = ["drv_vector_add", "drv_memory", "drv_host_memory", "drv_streams_events", "drv_graph"]
GUEST_PROGRAMS = [*PROGRAMS, "drv_threads", "drv_vmm_map"]
SILENT_S = 10  # until a process that does not count its beat is taken for dead (worker/regions.c)
HOST_GONE = {46, 101, 999}
WORKER_LINK = 3  # the worker's end of what it hears the supervisor through (host_backend/config/link.h)
LONG_ROUNDS = 60000000  # a kernel of some seconds in softgpu, which a session's end waits for
lib.CASE_LIMIT_S = max(lib.CASE_LIMIT_S, 240 if kvm.FULL else 100)  # a machine under TCG boots in 3 to 15 s


def expected(program):
    """What a program says on softgpu itself."""
    env = dict(lib.clean_environment(), LD_LIBRARY_PATH=lib.softgpu_folder())
    result = subprocess.run([lib.places.program(program)], env=env, capture_output=True, text=True,
                            timeout=180)
    return result.returncode, result.stdout.strip()


def transports(host):
    return {row["transport"] for row in host.status()["session"]}


class Base(lib.Case):
    def stand_in(self, host, tenant="alice"):
        machine = kvm.StandIn(host, tenant)
        self.addCleanup(machine.close)
        return machine

    def start(self, machine, program, *args):
        guest = machine.start(program, *args)
        self.addCleanup(guest.kill)
        return guest

    def finished_in(self, machine, program, *args, expect=0, limit_s=30):
        guest = self.start(machine, program, *args)
        code = guest.wait(limit_s)
        said = [line for host in self.hosts for line in host.process.errors[-15:]]
        self.assertEqual(code, expect, "\n".join([guest.tail(), "--- host", *said]))
        return guest


class Region(Base):
    def test_programs_print_the_same(self):
        host = self.host()
        machine = self.stand_in(host)
        for program in PROGRAMS:
            with self.subTest(program):
                guest = self.finished_in(machine, program)
                self.assertEqual((0, guest.out.strip()), expected(program))
        host.wait_idle()
        machine.close()
        lib.until(lambda: not os.path.exists(f"{host.run_dir}/vm/alice.running"), 5, "it is gone")
        self.assertEqual(host.stop(), 0)

    @unittest.skipUnless(kvm.FULL, "only with WEIR_E2E_FULL=1")
    def test_all_programs_print_the_same(self):
        host = self.host()
        machine = self.stand_in(host)
        prefixes = {"softgpu": f"LD_LIBRARY_PATH={lib.softgpu_folder()}",
                    "region": f"LD_LIBRARY_PATH={lib.places.guest_lib} WEIR_HOST={machine.url}"}
        result = subprocess.run(lib.table_argv(lib.places.cuda, prefixes, jobs=2), text=True,
                                capture_output=True, env=lib.clean_environment())
        failed = [line.split()[1] for line in result.stdout.splitlines() if line.startswith("FAIL")]
        # What a program shares with others already cannot be moved into the region.
        self.assertEqual(failed, ["drv_register_shared"], result.stdout)
        host.wait_idle()

    def test_registered_memory(self):
        host = self.host()
        machine = self.stand_in(host)
        scenarios = {"": ["kernels", "page", "remapped"], "_copies": ["order", "steady"],
                     "_around": ["neighbours", "stack", "fork", "kernel_io"]}
        for part, names in scenarios.items():
            for name in names:
                with self.subTest(name):
                    self.finished_in(machine, "e2e_registered" + part, name)
        host.wait_idle()

    def test_server_hands_out_what_qemu_expects(self):
        host = self.host()
        machine = self.stand_in(host)
        self.assertEqual([number for number, _fd in machine.messages], [0, 1, -1, 0, 1])
        self.assertEqual([fd is not None for _n, fd in machine.messages],
                         [False, False, True, True, True])
        with self.assertRaises(OSError):  # sealed
            os.ftruncate(machine.region, 4096)
        mode = os.stat(os.path.join(host.run_dir, "vm", "alice.sock")).st_mode
        self.assertEqual(mode & 0o777, 0o600)

    def test_the_socket_is_the_tenant(self):
        host = self.host()
        alice, bob = self.stand_in(host, "alice"), self.stand_in(host, "bob")
        guests = [self.start(machine, "e2e_steady") for machine in (alice, bob)]
        for guest in guests:
            guest.wait_line(r"^round 0$")
        rows = host.status()["session"]
        self.assertEqual(sorted((r["tenant"], r["transport"]) for r in rows),
                         [("alice", "ivshmem"), ("bob", "ivshmem")])
        for guest in guests:
            self.steady_undisturbed(guest)

    def test_a_machine_that_ends_ends_its_sessions(self):
        host = self.host()
        other = self.steady(host)
        machine = self.stand_in(host)
        guest = self.start(machine, "e2e_lost")
        guest.wait_line("^ready$")
        machine.socket.shutdown(2)
        self.assertEqual(guest.wait(25), 0, guest.tail())
        errors = [int(line.split()[2]) for line in guest.lines if line.startswith("lost ")]
        self.assertEqual(len(errors), 9, guest.tail())
        self.assertTrue(set(errors) <= HOST_GONE, errors)
        lib.until(lambda: not host.leftovers(sessions=1), 10, "only the other tenant is left", 0.05)
        self.steady_undisturbed(other)
        self.assertEqual(host.worker()["restarts"], 0)

    def test_a_worker_that_dies_is_seen_and_replaced(self):
        host = self.host()
        machine = self.stand_in(host)
        guest = self.start(machine, "e2e_lost")
        guest.wait_line("^ready$")
        worker = host.worker_pid()
        os.kill(worker, signal.SIGKILL)
        self.assertEqual(guest.wait(25), 0, guest.tail())
        self.assertEqual(sum(line.startswith("lost ") for line in guest.lines), 9, guest.tail())
        self.finished_in(machine, "drv_host_memory")  # waits for the new worker
        self.assertNotEqual(host.worker_pid(), worker)
        host.wait_idle()

    def test_what_a_living_process_has_mapped_outlives_the_worker(self):
        host = self.host()
        machine = self.stand_in(host)
        guest = self.start(machine, "e2e_steady")
        guest.wait_line(r"^round 0$")
        owned = self.owned(machine)
        self.assertGreater(len(owned), 0)
        guest.signal(signal.SIGSTOP)  # it lives, and does not find out that its session is over
        worker = host.worker_pid()
        os.kill(worker, signal.SIGKILL)
        lib.until(lambda: host.worker_pid() not in (0, worker), 10, "the next worker")
        self.finished_in(machine, "drv_memory")
        self.assertTrue(owned <= self.owned(machine))
        guest.kill()

    @staticmethod
    def owned(machine):
        """The units of the region that are somebody's (the owners' table of region.h)."""
        table = os.pread(machine.region, 1024, 3 << 19)
        return {unit for unit in range(512) if table[2 * unit:2 * unit + 2] != bytes(2)}

    def test_a_host_that_is_killed_is_seen(self):
        host = self.host()
        machine = self.stand_in(host)
        guest = self.start(machine, "e2e_lost")
        guest.wait_line("^ready$")
        host.process.kill()
        self.assertEqual(guest.wait(30), 0, guest.tail())
        self.assertEqual(sum(line.startswith("lost ") for line in guest.lines), 9, guest.tail())
        # The next host finds the machine, which has not noticed anything.
        host.start()
        self.finished_in(machine, "drv_host_memory")
        lines = [line for line in host.process.errors if "found again" in line]
        self.assertEqual(len(lines), 1, host.process.tail())
        self.assertIn("bell=yes", lines[0])
        host.wait_idle()
        # And the one after an orderly stop.
        self.assertEqual(host.process.popen.poll(), None)
        host.process.signal(signal.SIGTERM)
        host.process.wait(12)
        host.start()
        self.finished_in(machine, "drv_host_memory")
        host.wait_idle()

    def test_drained_programs_and_those_that_come_in_a_restart(self):
        host = self.host(host_lines=["linger_s = 30"])
        machine = self.stand_in(host)
        steady = self.start(machine, "e2e_steady")
        steady.wait_line("^round 0$")
        self.assertEqual(lib.run_weir("drain", "--run-dir", host.run_dir, "alice").returncode, 0)
        refused = self.start(machine, "drv_host_memory")
        self.assertNotEqual(refused.wait(30), 0, refused.tail())
        self.assertIn("is drained (weir drain)", refused.tail())
        self.assertEqual(lib.run_weir("undrain", "--run-dir", host.run_dir).returncode, 0)
        self.finished_in(machine, "drv_host_memory")
        asker = lib.Process([lib.places.weir, "restart", "--run-dir", host.run_dir], env=lib.clean_environment())
        self.addCleanup(asker.kill)
        self.assertEqual(host.process.wait(20), 85)
        self.steady_goes_on(steady)
        early = self.start(machine, "drv_host_memory")  # its worker is there
        self.assertEqual(early.wait(30), 0, early.tail())
        for number in (signal.SIGKILL, signal.SIGTERM):
            host.start()
            self.steady_goes_on(steady)
            self.finished_in(machine, "drv_host_memory")
            host.process.signal(number)
            host.process.wait(12)
            self.steady_goes_on(steady)
        host.start()
        steady.close_stdin()
        self.assertEqual(steady.wait(30), 0, steady.tail())
        host.wait_idle()
        machine.close()
        lib.until(lambda: not os.path.exists(f"{host.run_dir}/vm/alice.running"), 5, "its end is seen")
        self.assertEqual(host.stop(signal.SIGINT), 0)

    def test_a_worker_without_a_host_tells_its_guests_before_their_calls_fail(self):
        host = self.host()
        machine = self.stand_in(host)
        guest = self.start(machine, "e2e_lost", LONG_ROUNDS)
        guest.wait_line("^ready$", 60)
        # As when the host is killed, but that nothing ends the worker in the middle of its own end.
        worker = host.worker_pid()
        host.process.signal(signal.SIGSTOP)
        hung_up_ns = lib.monotonic_ns()
        with lib.looking_into(worker):
            kvm.hang_up(worker, WORKER_LINK)
        self.assertEqual(guest.wait(25), 0, guest.tail())
        lost_ns = [int(line.split()[3]) for line in guest.lines if line.startswith("lost ")]
        self.assertEqual(len(lost_ns), 9, guest.tail())
        self.assertLess(lib.lived_s(max(lost_ns)) - lib.lived_s(hung_up_ns), 1, guest.tail())

    def test_scribbling_guests_harm_nobody_else(self):
        host = self.host()
        other = self.steady(host)
        machine = self.stand_in(host)
        victim = self.start(machine, "e2e_steady")
        victim.wait_line(r"^round 0$")
        with mmap.mmap(machine.region, 64 << 20) as memory:
            end = time.monotonic() + 3
            while time.monotonic() < end:
                # The control part above all; also segments, with their headers and rings.
                at = random.choice([random.randrange(0, 2 << 20), random.randrange(64, 128),
                                    4096 + random.randrange(0, 4096),
                                    65536 + random.randrange(0, 4096),
                                    (2 << 20) + random.randrange(0, 8192),
                                    (2 << 20) + random.randrange(0, 24 << 20)])
                memory[at:at + 8] = random.choice([bytes(8), b"\xff" * 8, random.randbytes(8),
                                                   b"\x02\0\0\0\0\0\1\0", b"\x04\0\0\0\0\0\0\0"])
        victim.kill()
        self.steady_undisturbed(other)
        self.assertEqual(host.worker()["restarts"], 0)
        machine.close()
        host.wait_idle(limit_s=30)
        self.finished_in(self.stand_in(host), "drv_host_memory")

    @unittest.skipUnless(kvm.FULL, "only with WEIR_E2E_FULL=1")
    def test_killed_programs_are_noticed_and_their_memory_comes_back(self):
        host = self.host()
        machine = self.stand_in(host)
        for seed in range(4):
            guest = self.start(machine, "e2e_churn", seed)
            lib.until(lambda: transports(host), 10, "a session")
            time.sleep(random.uniform(0.05, 0.4))
            guest.kill()
        took_s = kvm.until_s(lambda: not host.leftovers(), 3 * SILENT_S, "nothing is left")
        self.assertGreater(took_s, 1)  # or the sessions had ended before
        host.wait_idle()


class Guest(Base):
    def machine(self, host, image, *args, **kwargs):
        machine = kvm.Machine(host, image, *args, **kwargs)
        self.addCleanup(machine.discard)
        return machine

    def image(self, programs=GUEST_PROGRAMS, **kwargs):
        kvm.kernel()
        return kvm.make_root(self.folder(), programs, **kwargs)

    def start_steady(self, machine):
        """A program that works until its host is gone; its status comes to /tmp/rc."""
        machine.run("mkfifo /tmp/in; (sleep 1000 > /tmp/in &)")
        machine.run("(/cuda/e2e_steady < /tmp/in > /tmp/out 2>&1; echo $? > /tmp/rc) &")
        machine.run("while ! grep -q round /tmp/out; do usleep 100000; done")

    def check(self, machine, program):
        status, output = machine.run(f"/cuda/{program}")
        self.assertEqual((status, output.strip()), expected(program))

    def test_a_stock_guest_runs_unmodified_programs(self):
        image = self.image()
        host = self.host()
        machine = self.machine(host, image).up()
        for program in GUEST_PROGRAMS[:4]:
            with self.subTest(program):
                self.check(machine, program)
        host.wait_idle()

    @unittest.skipUnless(kvm.FULL, "only with WEIR_E2E_FULL=1")
    def test_doctor_says_which_way_is_taken_and_why(self):
        image = self.image(["drv_vector_add"], weir=True)
        host = self.host()
        machine = self.machine(host, image).up()
        status, said = machine.run("WEIR_LIB_DIR=/usr/lib/x86_64-linux-gnu weir doctor")
        self.assertRegex(said, r"taken: +by ivshmem: PCI device 0000:00:03.0, 1024 MiB")
        self.assertRegex(said, r"no way by socket")
        self.assertRegex(said, r"ok +a program here sees: Weir softgpu")
        # A user whom no udev rule has given the device.
        machine.run("echo 'user:x:1000:1000::/:/bin/sh' > /etc/passwd; chmod 755 /; chmod 1777 /tmp")
        _status, said = machine.run("su user -c 'WEIR_LIB_DIR=/usr/lib/x86_64-linux-gnu weir doctor'")
        self.assertRegex(said, r"warning +the way by ivshmem is closed: .*no permission")
        host.process.kill()
        status, said = machine.run("WEIR_LIB_DIR=/usr/lib/x86_64-linux-gnu weir doctor")
        self.assertEqual(status, 1)
        self.assertRegex(said, r"gets CUDA error 100")
        # Without the device there is no way at all.
        bare = self.machine(host, image, device=False).up()
        status, said = bare.run("WEIR_LIB_DIR=/usr/lib/x86_64-linux-gnu weir doctor")
        self.assertEqual(status, 1)
        self.assertRegex(said, r"no way by ivshmem: no PCI device 1af4:1110")
        self.assertRegex(said, r"no way by tcp: taken only where WEIR_HOST")

    @unittest.skipUnless(kvm.FULL, "only with WEIR_E2E_FULL=1")
    def test_more_programs_two_at_a_time_as_any_user(self):
        image = self.image()
        host = self.host()
        machine = self.machine(host, image).up()
        machine.run("chmod 666 /sys/bus/pci/devices/*/resource[02] "
                    "&& echo 1 > $(ls -d /sys/bus/pci/devices/*/resource2_wc | grep -v 02.0 "
                    "| head -1 | sed s/resource2_wc/enable/)")
        for program in GUEST_PROGRAMS:
            with self.subTest(program):
                both = f"(/cuda/{program} > /tmp/a & /cuda/{program} > /tmp/b; wait) ; cat /tmp/a"
                _status, output = machine.run(both)
                _status, second = machine.run("cat /tmp/b")
                self.assertEqual(output.strip(), expected(program)[1])
                self.assertEqual(second.strip(), expected(program)[1])
        host.wait_idle()

    @unittest.skipUnless(kvm.FULL, "only with WEIR_E2E_FULL=1")
    def test_a_reset_and_a_kill_leave_nothing(self):
        image = self.image(["drv_host_memory", "e2e_steady"])
        host = self.host()
        machine = self.machine(host, image).up()
        self.start_steady(machine)
        lib.until(lambda: transports(host) == {"ivshmem"}, 20, "a session")
        # The guest's kernel starts anew inside the same QEMU: its processes never say goodbye.
        machine.process.say("reboot -f")
        machine.up()
        self.check(machine, "drv_host_memory")
        host.wait_idle(limit_s=SILENT_S - 2)  # at once: the new kernel has another boot id
        self.start_steady(machine)
        lib.until(lambda: transports(host) == {"ivshmem"}, 20, "a session")
        machine.process.kill()
        host.wait_idle(limit_s=SILENT_S - 2)

    @unittest.skipUnless(kvm.FULL, "only with WEIR_E2E_FULL=1")
    def test_a_host_that_is_killed_under_a_guest_comes_back(self):
        image = self.image(["drv_host_memory", "e2e_steady"])
        host = self.host()
        machine = self.machine(host, image).up()
        self.start_steady(machine)
        host.process.kill()
        status, output = machine.run("while ! test -s /tmp/rc; do sleep 1; done; cat /tmp/out "
                                     "| tail -n 3; test $(cat /tmp/rc) != 0")
        self.assertEqual(status, 0, output)
        self.assertRegex(output, "gave 46|gave 999|DEVICE_UNAVAILABLE")
        host.start()
        self.check(machine, "drv_host_memory")
        host.wait_idle()

    @unittest.skipUnless(kvm.FULL, "only with WEIR_E2E_FULL=1")
    def test_a_suspended_machine_misses_no_beat_and_an_idle_one_does(self):
        image = self.image(["e2e_steady"])
        host = self.host()
        path = os.path.join(self.folder(), "monitor")
        machine = self.machine(host, image, extra=kvm.as_by_libvirt(path)).up()
        monitor = kvm.Monitor(path)
        self.addCleanup(monitor.close)
        self.start_steady(machine)
        # Suspended as virsh does it, while QEMU itself is busy: somebody looks what it does.
        monitor.run("stop")
        end = time.monotonic() + SILENT_S + 4
        while time.monotonic() < end:
            self.assertEqual(monitor.run("query-status")["status"], "paused")
            monitor.run("query-pci")
        monitor.run("cont")
        time.sleep(1)
        self.assertEqual(transports(host), {"ivshmem"})
        # And by a signal.
        machine.process.signal(signal.SIGSTOP)
        time.sleep(SILENT_S + 4)
        machine.process.signal(signal.SIGCONT)
        time.sleep(1)
        self.assertEqual(transports(host), {"ivshmem"})
        # A program is killed, and from then on nothing runs in the guest.
        machine.run("kill -9 $(pidof e2e_steady)")
        took_s = kvm.until_s(lambda: not transports(host), SILENT_S + 5, "its session is over")
        self.assertGreater(took_s, SILENT_S - 5)
        machine.process.kill()
        host.wait_idle(limit_s=SILENT_S - 2)


class Attach(Base):
    """weir attach and weir detach, with libvirt's own daemon."""

    def domain(self, libvirt, machine="pc", programs=("drv_host_memory", "e2e_steady")):
        kvm.kernel()
        folder = self.folder()
        image = kvm.make_root(folder, programs)
        domain = kvm.Domain(libvirt, f"vm-{machine}", folder, image, machine)
        self.addCleanup(domain.discard)
        return domain, self.host(tenants=("alice",))

    def libvirt(self):
        libvirt = kvm.Libvirt(self.folder())
        self.addCleanup(libvirt.close)
        return libvirt

    def weir(self, *args, expect=0):
        result = lib.run_weir(*args, limit_s=60)
        self.assertEqual(result.returncode, expect, result.stdout + result.stderr)
        return result.stdout + result.stderr

    def on(self, command, domain, host, *args, **kwargs):
        return self.weir(command, "--connect", domain.libvirt.url, "--run-dir", host.run_dir,
                         domain.name, *args, **kwargs)

    @unittest.skipUnless(kvm.FULL, "only with WEIR_E2E_FULL=1")
    def test_attach_and_detach_while_it_runs(self):
        libvirt = self.libvirt()
        domain, host = self.domain(libvirt)
        domain.start()
        said = self.on("attach", domain, host, "--weight", "300", "--memory", "64MiB")
        self.assertIn("the running machine has the device", said)
        self.assertEqual(host.tenant(domain.name)["weight"], 300)
        self.assertEqual(host.tenant(domain.name)["quota_bytes"], 64 << 20)
        self.assertIn("weight='300'", domain.xml("--inactive").replace('"', "'"))
        domain.run("while ! ls /sys/bus/pci/devices/*/resource2_wc > /dev/null 2>&1; "
                   "do usleep 100000; done")
        status, output = domain.run("/cuda/drv_host_memory")
        self.assertEqual((status, output.strip()), expected("drv_host_memory"))
        # Again: nothing changes.
        self.assertIn("already", self.on("attach", domain, host))
        # libvirtd goes and comes; the guest does not notice.
        libvirt.start()
        status, output = domain.run("/cuda/drv_host_memory")
        self.assertEqual((status, output.strip()), expected("drv_host_memory"))
        self.on("detach", domain, host)
        lib.until(lambda: "ivshmem" not in domain.xml(), 20, "the guest lets go of it", 0.2)
        self.assertNotIn("ivshmem", domain.xml("--inactive"))
        self.assertNotIn("weir.dev", domain.xml("--inactive"))
        self.assertIn("no device", self.on("detach", domain, host, expect=1))
        domain.stop()
        # Attached while it is off, it is there from the start.
        self.on("attach", domain, host)
        domain.start()
        status, output = domain.run("/cuda/drv_host_memory")
        self.assertEqual((status, output.strip()), expected("drv_host_memory"))

    @unittest.skipUnless(kvm.FULL, "only with WEIR_E2E_FULL=1")
    def test_q35_gets_it_with_the_next_start(self):
        domain, host = self.domain(self.libvirt(), "q35", ["drv_host_memory"])
        domain.start()
        self.assertIn("next start", self.on("attach", domain, host))
        domain.stop()
        domain.start()
        status, output = domain.run("/cuda/drv_host_memory")
        self.assertEqual((status, output.strip()), expected("drv_host_memory"))

    def test_what_is_wrong_is_said(self):
        if not os.path.exists("/usr/lib/x86_64-linux-gnu/libvirt.so.0"):
            self.skipTest("no libvirt.so.0")
        host = self.host()
        said = self.weir("attach", "--connect", "test:///default", "--run-dir", host.run_dir,
                         "nobody", expect=1)
        self.assertIn("no such virtual machine", said)
        said = self.weir("attach", "--connect", "test:///default", "--run-dir", host.run_dir,
                         "test", "--weight", "0", expect=2)
        self.assertIn("'weight' must lie between 1 and 10000", said)
        said = self.weir("attach", "--connect", "test:///default", "--run-dir", "/nowhere", "test",
                         expect=1)
        self.assertIn("is weir serve running?", said)
        said = self.weir("detach", "--connect", "test:///default", "--run-dir", host.run_dir,
                         "test", expect=1)
        self.assertIn("no device", said)


if __name__ == "__main__":
    lib.main()
