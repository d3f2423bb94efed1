#!/usr/bin/env python3
"""A kernel that faults: its program hears of it, the host says whose it was, later programs work."""
import os
import re
import shutil
import unittest
import urllib.request

import lib

# How a kernel faults, and the error that its program gets.
KINDS = {"address": 700, "misaligned": 716, "assert": 710, "trap": 719}

SOFTGPU = lib.DRIVER == "softgpu"
LONG_ROUNDS = 150_000_000 if SOFTGPU else 2_000_000_000  # some seconds
ROUNDS_OF_BLOCK, BLOCKS = (100_000, 20_000) if SOFTGPU else (10_000_000, 1_000_000)  # long together
needs_calls_beside_kernels = unittest.skipUnless(SOFTGPU, "a GPU's driver loads modules when it is idle")


class Fault(lib.Case):
    isolation = "group"

    def said(self, host, pattern, limit_s=10):
        """The first line of the host's log that matches."""
        def look():
            return next((line for line in list(host.process.errors) if re.search(pattern, line)), None)

        return lib.until(look, limit_s, f"the host says '{pattern}'", 0.02)

    def fault(self, host, kind, arrangement, tenant="alice"):
        restarts = sum(w["restarts"] for w in host.status()["worker"])
        guest = self.faulted(host, kind, arrangement=arrangement, tenant=tenant)
        if arrangement == lib.SHM:  # a fault is no loss of the host, and the guest's log does not call it one
            self.assertRegex(guest.err, rf"guest: a kernel's fault ended .* result={KINDS[kind]}\b")
            self.assertNotIn("the host is gone", guest.err)
        lib.until(lambda: sum(w["restarts"] for w in host.status()["worker"]) == restarts + 1, 5,
                  "the worker was replaced once", 0.02)

    def test_fault_and_after(self):
        host = self.host(host_lines=["quarantine_s = 0"])
        for arrangement in (lib.SHM, lib.ZMQ):
            for kind in KINDS:
                self.fault(host, kind, arrangement)
                for tenant in ("bob", "alice"):
                    self.finished(host, "e2e_minimal", tenant=tenant, arrangement=arrangement)
        host.wait_idle()
        self.assertEqual(host.stop(), 0)

    def metrics(self, host):
        address = re.search(r"metrics listen=(\S+)", self.said(host, "metrics listen="))[1]
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=180) as answer:
            return answer.read().decode()

    def test_fault_is_its_tenants(self):
        """The log, status and metrics name the tenant, program and kernel; who was touched, too."""
        for kind, error in KINDS.items():
            with self.subTest(kind):
                host = self.host(args=["--metrics", "127.0.0.1:0"])
                beside = self.guest(host, "e2e_fault", "beside", error, tenant="bob")
                beside.wait_line("^ready$")
                self.fault(host, kind, lib.SHM)
                kernel = f"fail_{kind}" if kind in ("assert", "trap") else "mix"
                self.said(host, rf"fault: the GPU context died.* result={error} .*cause=\"tenant=alice\"")
                self.said(host, rf'fault: caused by session=\d+ tenant=alice program="e2e_fault" '
                                rf'kernels="{kernel}"')
                self.said(host, r'fault: ends a session that is not to blame .*tenant=bob '
                                r'program="e2e_fault" cause="tenant=alice"')
                beside.close_stdin()
                self.assertEqual(beside.wait(), 0, beside.tail())
                alice, bob = host.tenant("alice"), host.tenant("bob")
                self.assertEqual((alice["faults"], alice["suspected_faults"]), (1, 0))
                self.assertGreater(alice["fault_age_s"], 0)
                self.assertEqual((bob["faults"], bob["suspected_faults"]), (0, 0))
                metrics = self.metrics(host)
                self.assertIn('weir_tenant_faults_total{tenant="alice",suspects="one"} 1\n', metrics)
                self.assertIn('weir_tenant_faults_total{tenant="bob",suspects="one"} 0\n', metrics)
                shown = host.weir("status", "--run-dir", host.run_dir).stdout
                self.assertRegex(shown, r"FAULTS +SUSPECTED +LAST +QUARANTINE\nalice +1 +0 +\d+s ago +\d+s\n")
                self.assertEqual(host.stop(), 0)

    def test_fault_while_others_compute(self):
        """With kernels of two tenants on the GPU, it is one of theirs."""
        if lib.DRIVER != "softgpu":
            self.skipTest("NVIDIA's driver loads no code in a context where a kernel does not end")
        host = self.host()
        endless = self.guest(host, "e2e_fault", "endless", tenant="bob")
        endless.wait_line("^ready$")
        self.fault(host, "address", lib.SHM)
        self.said(host, r'fault: the GPU context died.*cause="one of tenant=alice tenant=bob"')
        for tenant, kernel in (("alice", "mix"), ("bob", "turn")):
            self.said(host, rf"fault: caused by one of those .*tenant={tenant} .*kernels=\"{kernel}\"")
            self.assertEqual(host.tenant(tenant)["faults"], 0)
            self.assertEqual(host.tenant(tenant)["suspected_faults"], 1)
            self.assertEqual(host.tenant(tenant)["quarantined"], 1)  # the next fault hurts only its own
        for tenant in ("alice", "bob"):
            self.finished(host, "e2e_minimal", tenant=tenant)

    def test_fault_without_a_scheduler(self):
        """Nobody knows then which kernels have ended: all are suspects, so none is moved."""
        host = self.host(host_lines=["[scheduler]", 'policy = "off"'])
        beside = self.guest(host, "e2e_fault", "beside", KINDS["trap"], tenant="bob")
        beside.wait_line("^ready$")
        self.fault(host, "trap", lib.SHM)
        self.said(host, r'fault: the GPU context died.*cause="one of tenant=alice tenant=bob"')
        beside.close_stdin()
        self.assertEqual(beside.wait(), 0, beside.tail())
        for tenant in ("alice", "bob"):
            row = host.tenant(tenant)
            self.assertEqual((row["suspected_faults"], row["quarantined"]), (1, 0))
        self.fault(host, "trap", lib.SHM)  # alone it must have been alice
        alice = host.tenant("alice")
        self.assertEqual((alice["faults"], alice["quarantined"]), (1, 1))

    def test_names_are_escaped(self):
        """What a guest calls itself cannot forge a line of the log."""
        host = self.host()
        path = os.path.join(self.folder(), 'x" tenant=bob\x1b[2J')
        shutil.copy(lib.places.program("e2e_fault"), path)
        self.faulted(host, "trap", path)
        line = self.said(host, "fault: caused by ")
        self.assertIn("tenant=alice program=\"x' tenant=bob", line)
        self.assertNotIn("\x1b", line)

    def left_behind(self, host, *args, tenant="bob"):
        """A program is killed while its kernel runs; the host says that it leaves work behind."""
        guest = self.guest(host, "e2e_fault", *args, tenant=tenant)
        guest.wait_line("^ready$")
        guest.kill()
        return self.said(host, rf"session: its program is gone, but not its work .*tenant={tenant}")

    def orphans(self, host):
        return [s for s in host.status()["session"] if s["orphan_age_s"] > 0]

    @needs_calls_beside_kernels
    def test_endless_kernel_is_left_behind(self):
        """It is its tenant's, stays within the tenant's limits, and others go on."""
        host = self.host({"alice": {}, "bob": {"sessions": 1}})
        steady = self.steady(host, tenant="alice")
        line = self.left_behind(host, "endless")
        self.assertIn('kernels="turn"', line)
        self.steady_goes_on(steady)
        orphan, = self.orphans(host)
        self.assertEqual((orphan["tenant"], orphan["program"]), ("bob", "e2e_fault"))
        self.assertGreater(orphan["used_bytes"], 0)
        bob = host.tenant("bob")
        self.assertEqual((bob["sessions"], bob["orphans"], bob["faults"]), (1, 1, 0))
        self.assertGreater(bob["used_bytes"], 0)
        shown = host.weir("status", "--run-dir", host.run_dir).stdout
        self.assertRegex(shown, r"e2e_fault .* gone, work left behind for \d+s\n")
        refused = self.guest(host, "e2e_minimal", tenant="bob")
        self.assertNotEqual(refused.wait(), 0, refused.tail())  # its one session is taken
        self.steady_undisturbed(steady)
        self.finished(host, "e2e_minimal", tenant="alice")
        self.assertEqual(host.worker()["restarts"], 0)
        self.assertEqual(host.stop(), 0)

    def test_long_kernel_is_left_behind(self):
        """When it ends, all of its session goes, and nobody has noticed anything."""
        host = self.host()
        steady = self.steady(host, tenant="alice")
        self.left_behind(host, "long", LONG_ROUNDS)
        self.said(host, "session: the work of a program that is gone has ended .*tenant=bob", 40)
        self.assertEqual(self.orphans(host), [])
        self.assertEqual(host.tenant("bob")["used_bytes"], 0)
        self.steady_undisturbed(steady)
        host.wait_idle()
        self.assertEqual(host.worker()["restarts"], 0)

    def test_stoppable_kernel_is_not_left_behind(self):
        """A kernel that can be stopped is, for good, when its program is killed."""
        host = self.host(host_lines=lib.forms_lines(self.folder()))
        steady = self.steady(host, tenant="alice")
        guest = self.guest(host, "e2e_fault", "long", ROUNDS_OF_BLOCK, BLOCKS, tenant="bob")
        guest.wait_line("^ready$")
        guest.kill()
        self.said(host, "session: its kernels are stopped for good .*tenant=bob")
        self.said(host, "session: ended .*tenant=bob")
        self.assertFalse(any("tenant=bob" in line and "not its work" in line
                             for line in list(host.process.errors)))
        self.steady_undisturbed(steady)
        host.wait_idle()

    def test_work_left_behind_for_too_long(self):
        """orphan_s: then the worker is replaced, and the log says whose work it was."""
        host = self.host({"alice": {}, "bob": {"orphan_s": 3}})
        beside = self.guest(host, "e2e_fault", "beside", 702, tenant="alice")
        beside.wait_line("^ready$")
        self.left_behind(host, "endless")
        self.assertEqual(host.worker()["restarts"], 0)
        self.said(host, r'fault: the GPU context is given up.* result=702 .*cause="tenant=bob"')
        self.said(host, r'fault: caused by session=\d+ tenant=bob program="e2e_fault" kernels="turn"')
        self.said(host, r'fault: ends a session that is not to blame .*tenant=alice .*cause="tenant=bob"')
        beside.close_stdin()
        self.assertEqual(beside.wait(), 0, beside.tail())
        for tenant in ("alice", "bob"):
            self.finished(host, "e2e_minimal", tenant=tenant)
        host.wait_idle()
        self.assertEqual(host.worker()["restarts"], 1)
        self.assertEqual(host.tenant("bob")["faults"], 1)

    @needs_calls_beside_kernels
    def test_work_left_behind_in_a_worker_of_its_own(self):
        """Nobody waits for it there, so a new worker comes at once; with another program it stays."""
        host = self.host({"alice": {}, "bob": {"isolation": "process"}})
        steady = self.steady(host, tenant="alice")
        beside = self.guest(host, "e2e_fault", "beside", 0, tenant="bob")
        beside.wait_line("^ready$")
        self.left_behind(host, "endless")
        self.assertEqual(len(self.orphans(host)), 1)
        beside.close_stdin()
        self.assertEqual(beside.wait(), 0, beside.tail())
        self.said(host, "supervisor: worker died .*work of a program that is gone was given up")
        self.finished(host, "e2e_minimal", tenant="bob")
        self.steady_undisturbed(steady)
        host.wait_idle()
        self.assertEqual(host.tenant("bob")["faults"], 0)

    def quick_fault(self, host, tenant):
        """A program that faults, without a look at what comes after."""
        guest = self.guest(host, "e2e_fault", "trap", tenant=tenant)
        guest.wait_line("^ok +synchronise after the fault")
        guest.kill()

    def test_faults_in_a_loop(self):
        """They end others' work once; then the tenant has a worker of its own, for a while."""
        host = self.host(host_lines=["quarantine_s = 5"])
        self.finished(host, "e2e_minimal", tenant="bob")
        self.quick_fault(host, "bob")
        self.said(host, "supervisor: quarantine begun tenant=bob worker=1 seconds=5")
        steady = self.steady(host, tenant="alice")
        for _ in range(3):
            self.quick_fault(host, "bob")
            self.steady_goes_on(steady)
        bob = host.tenant("bob")
        self.assertEqual((bob["faults"], bob["quarantined"]), (4, 1))
        self.assertGreater(bob["quarantine_s"], 0)
        self.assertEqual([w["tenant"] for w in host.status()["worker"]], ["", "bob"])
        shown = host.weir("status", "--run-dir", host.run_dir).stdout
        self.assertRegex(shown, r"QUARANTINE\nbob +4 +0 +\d+s ago +\d+s\n")
        self.said(host, "supervisor: quarantine ended tenant=bob", 15)
        self.finished(host, "e2e_minimal", tenant="bob")
        self.assertEqual(host.tenant("bob")["quarantined"], 0)
        self.assertEqual([w["tenant"] for w in host.status()["worker"]], [""])
        self.steady_undisturbed(steady)
        host.wait_idle()
        self.assertEqual(host.stop(), 0)

    def test_quarantine_ends_between_programs(self):
        """A program that is there when the time is over is left alone."""
        host = self.host(host_lines=["quarantine_s = 2"])
        self.quick_fault(host, "bob")
        self.said(host, "supervisor: quarantine begun tenant=bob")
        beside = self.guest(host, "e2e_fault", "beside", 0, tenant="bob")
        beside.wait_line("^ready$")
        lib.until(lambda: host.tenant("bob")["quarantine_s"] == 0, 10, "the time is over", 0.1)
        self.finished(host, "e2e_minimal", tenant="bob")
        self.assertEqual(host.tenant("bob")["quarantined"], 1)
        beside.close_stdin()
        self.assertEqual(beside.wait(), 0, beside.tail())
        late = [self.guest(host, "e2e_minimal", tenant="bob") for _ in range(3)]
        for guest in late:
            self.assertEqual(guest.wait(20), 0, guest.tail())
        self.said(host, "supervisor: quarantine ended tenant=bob")
        self.finished(host, "e2e_minimal", tenant="bob")
        host.wait_idle()

    def test_quarantine_of_a_remote_tenant(self):
        """Only the shared worker hears remote guests: those of the tenant wait until the end."""
        host = self.host(remote=self.remote(), host_lines=["quarantine_s = 3"])
        self.finished(host, "e2e_minimal", tenant="alice", arrangement=lib.TCP)
        faulting = self.guest(host, "e2e_fault", "trap", tenant="alice", arrangement=lib.TCP)
        faulting.wait_line("^ok +synchronise after the fault")
        self.said(host, "supervisor: quarantine begun tenant=alice .*remote guests are turned away")
        self.finished(host, "e2e_minimal", tenant="bob", arrangement=lib.TCP)
        self.finished(host, "e2e_minimal", tenant="alice")  # by the socket
        faulting.close_stdin()
        self.assertEqual(faulting.wait(20), 0, faulting.tail())
        self.said(host, "supervisor: quarantine ended tenant=alice")
        for tenant in ("alice", "bob"):
            self.finished(host, "e2e_minimal", tenant=tenant, arrangement=lib.TCP)
        host.wait_idle(limit_s=20)

    def test_no_quarantine(self):
        host = self.host(host_lines=["quarantine_s = 0"])
        self.fault(host, "trap", lib.SHM)
        self.assertEqual(host.tenant("alice")["quarantined"], 0)
        self.assertEqual(len(host.status()["worker"]), 1)

    def test_programs_that_come_at_once(self):
        """Whoever connects while the worker is being replaced waits, and then works."""
        host = self.host(host_lines=["quarantine_s = 0"])
        for arrangement in (lib.SHM, lib.ZMQ):
            faulting = self.guest(host, "e2e_fault", "address", arrangement=arrangement)
            faulting.wait_line("^ok +synchronise after the fault")
            late = [self.guest(host, "e2e_minimal", tenant="bob", arrangement=arrangement)
                    for _ in range(4)]
            for guest in late:
                self.assertEqual(guest.wait(20), 0, guest.tail())
            faulting.close_stdin()
            self.assertEqual(faulting.wait(20), 0, faulting.tail())
        host.wait_idle()

    def test_isolated_tenant_is_not_disturbed(self):
        """isolation = "process": a fault in one worker is nothing to a tenant that has its own."""
        host = self.host({"alice": {}, "bob": {"isolation": "process"}})
        steady = self.steady(host, tenant="bob")
        for kind in KINDS:
            self.fault(host, kind, lib.SHM, tenant="alice")
            self.steady_goes_on(steady)
        self.finished(host, "e2e_minimal", tenant="alice")
        self.steady_undisturbed(steady)
        # And the other way round.
        steady = self.steady(host, tenant="alice")
        self.fault(host, "address", lib.SHM, tenant="bob")
        self.finished(host, "e2e_minimal", tenant="bob")
        self.steady_undisturbed(steady)
        host.wait_idle()


if __name__ == "__main__":
    lib.main()
