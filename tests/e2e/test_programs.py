#!/usr/bin/env python3
"""isolation = "program": a worker for each program, spares, kept workers, ends and shortages."""
import datetime
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import lib

SPARES = 2
STARTS_AT_ONCE, SLOW_START_S = 3, 1  # programs.c

# A program that asks NVML how much memory its tenant uses, and no more.
ASKS = """
import ctypes
nvml = ctypes.CDLL("libnvidia-ml.so.1")
device, memory = ctypes.c_void_p(), (ctypes.c_ulonglong * 3)()
assert nvml.nvmlInit_v2() == 0 and nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0
assert nvml.nvmlDeviceGetMemoryInfo(device, memory) == 0
print("used", memory[2] >> 20, "MiB")
class Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("gi", ctypes.c_uint), ("ci", ctypes.c_uint)]
n, processes, name = ctypes.c_uint(64), (Process * 64)(), ctypes.create_string_buffer(96)
assert nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(n), processes) == 0
for process in processes[:n.value]:
    assert nvml.nvmlSystemGetProcessName(process.pid, name, 96) == 0
    print("process", process.pid, process.used >> 20, "MiB", name.value.decode())
"""


# A program that asks for as much stack as it is told to, and tells what it has.
STACK = """
import ctypes, sys
cuda, ctx, now = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_size_t()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(ctx), 0) == 0
assert cuda.cuCtxSetCurrent(ctx) == 0
print("ready", flush=True)
for line in sys.stdin:
    assert cuda.cuCtxSetLimit(0, ctypes.c_size_t(int(line))) == 0 and cuda.cuCtxGetLimit(ctypes.byref(now), 0) == 0
    print("asked", int(line), "has", now.value, flush=True)
"""


IDLE_WAKE_UPS = 3  # of a process in a second: its own, another thread's, and one that falls into the second by chance


def log_time_s(line):
    return datetime.datetime.fromisoformat(line.split(" ", 1)[0]).timestamp()


class Base(lib.Case):
    def own(self, tenants=None, lines=(), **kwargs):
        tenants = tenants or {"alice": {"isolation": "program"}, "bob": {"isolation": "program"}}
        spares = [] if any("spare_workers" in line for line in lines) else [f"spare_workers = {SPARES}"]
        idle = [] if any("worker_idle_s" in line for line in lines) else ["worker_idle_s = 600"]  # kept for longer than a case takes
        mps = [] if any("mps =" in line for line in lines) else ['mps = "off"']  # there a fault ends more than its program
        host = self.host(tenants, host_lines=[*spares, *idle, *mps, *lines], **kwargs)
        if spares:
            self.spares(host)
        return host

    def workers(self, host, tenant=None, state=None):
        return [w for w in host.status()["worker"] if (tenant is None or w["tenant"] == tenant) and
                (state is None or w["state"] == state)]

    def pids(self, host, tenant=None, state=None):
        return {w["pid"] for w in self.workers(host, tenant, state)}

    def spares(self, host, count=SPARES):
        """The spares are there again; their pids."""
        lib.until(lambda: len(self.workers(host, state="spare")) == count, 20, f"{count} spares are ready")
        return self.pids(host, state="spare")

    def kept(self, host, tenant, count):
        lib.until(lambda: len(self.workers(host, tenant, "kept")) == count, 10, f"{count} workers are kept")
        return self.pids(host, tenant, "kept")

    def endless(self, host, tenant="alice"):
        """A program is killed while its kernel runs that does not end; its worker."""
        before = self.pids(host, tenant)
        guest = self.guest(host, "e2e_fault", "endless", tenant=tenant)
        guest.wait_line("^ready$")
        worker, = self.pids(host, tenant) - before
        guest.kill()
        return worker

    def processes(self, asked):
        """Of what ASKS has printed: who, and how many MiB."""
        found = [re.fullmatch(r"process (\d+) (\d+) MiB .*/e2e_quota", line) for line in asked.lines[1:]]
        return {(int(match[1]), int(match[2])) for match in found}


class Programs(Base):
    def test_an_idle_session_hardly_wakes_anybody(self):
        host = self.own()
        guest = self.guest(host, "e2e_quota", "hold", 1 << 20)
        guest.wait_line("^held$")
        watched = {"supervisor": host.supervisor_pid(), "guest": guest.pid}
        watched |= {f"{state} worker {pid}": pid for state in ("busy", "spare") for pid in self.pids(host, state=state)}
        seen = {}

        def woken(before, after):
            """Without the threads of NVIDIA's driver: one of each context polls ten times a second."""
            return sum(n for name, (_, n, _) in lib.threads_since(before, after).items() if not name.startswith("cuda"))

        def rests():
            before = {name: lib.threads_of([pid]) for name, pid in watched.items()}
            time.sleep(1)  # what is counted in
            seen.update({name: woken(before[name], lib.threads_of([pid])) for name, pid in watched.items()})
            return max(seen.values()) <= IDLE_WAKE_UPS

        try:
            lib.until(rests, 15, "all are idle")
        except lib.Stuck:
            self.fail(f"wake-ups in a second: {seen}")

    def test_each_program_has_a_worker(self):
        host = self.own()
        steady = [self.steady(host, tenant=t) for t in ("alice", "alice", "bob")]
        self.assertEqual(len(self.pids(host, "alice", "busy")), 2)
        self.assertEqual(len(self.pids(host, "bob", "busy")), 1)
        self.spares(host)
        sessions = {(s["tenant"], s["pid"]) for s in host.status()["session"]}
        self.assertEqual(sessions, {("alice", steady[0].pid), ("alice", steady[1].pid), ("bob", steady[2].pid)})
        for s in steady:
            self.steady_undisturbed(s)

    def test_a_worker_is_kept_for_the_tenant_and_for_nobody_else(self):
        host = self.own()
        first = self.spares(host)
        self.finished(host, "e2e_minimal", tenant="alice")
        alice = self.kept(host, "alice", 1)
        self.assertLessEqual(alice, first)
        self.finished(host, "e2e_minimal", tenant="bob", arrangement=lib.ZMQ)
        self.assertTrue(self.kept(host, "bob", 1).isdisjoint(alice))
        for _ in range(3):
            self.finished(host, "e2e_minimal", tenant="alice")
            self.assertEqual(self.kept(host, "alice", 1), alice)
        self.spares(host)

    def test_a_spare_has_done_what_need_not_wait_for_a_program(self):
        """A driver does much at the first call of a kind. What a small program needs, its spare has called before; it has
        addresses and memory. And the next spare is not started while the program starts."""
        if lib.DRIVER != "softgpu":
            self.skipTest("only softgpu names the calls that it gets")
        calls = pathlib.Path(self.folder(), "calls")
        calls.touch()
        calls.chmod(0o666)  # workers may have another user
        host = self.own({"alice": {"isolation": "program"}}, lines=["spare_workers = 1"], log="debug",
                        env={"WEIR_SOFTGPU_LOG": f"debug:{calls}"})
        self.spares(host, 1)
        self.finished(host, "e2e_minimal", tenant="alice")
        self.kept(host, "alice", 1)
        self.spares(host, 1)
        lines = sorted([*host.process.errors, *calls.read_text().splitlines()], key=log_time_s)
        handed = next(i for i, line in enumerate(lines) if "a program gets a worker" in line)
        before, after = ([found.group(1) for line in part if (found := re.search(r"softgpu: (cu\w+)", line))]
                         for part in (lines[:handed], lines[handed:]))
        ends = {name for name in after if re.search("Destroy|Unload|Free|Unmap|Release|Unregister", name)}
        self.assertIn("cuLaunchKernel", after)
        self.assertEqual(set(after) - set(before) - ends, set(), "first called when the program was there")
        for name in ("cuMemAddressReserve", "cuMemCreate", "cuMemHostAlloc"):  # once in each of the two spares
            self.assertEqual((before.count(name), after.count(name)), (1, 1), name)
        started = next(line for line in lines[handed:] if "supervisor: worker started" in line)
        self.assertGreaterEqual(log_time_s(started) - log_time_s(lines[handed]), 0.099)

    def test_an_idle_worker_is_stopped_in_time(self):
        host = self.own(lines=["worker_idle_s = 1"])
        self.finished(host, "e2e_minimal", tenant="alice")
        pid, = self.kept(host, "alice", 1)
        lib.until(lambda: not self.workers(host, "alice"), 10, "the kept worker has ended")
        self.assertFalse(lib.pid_is_alive(pid))

    def test_a_fault_ends_its_program_only(self):
        host = self.own()
        steady = [self.steady(host, tenant=t) for t in ("alice", "bob")]
        for kind in ("address", "misaligned"):
            self.faulted(host, kind, tenant="alice")
            for s in steady:
                self.steady_goes_on(s)
        self.spares(host)
        self.finished(host, "e2e_minimal", tenant="alice")
        for s in steady:
            self.steady_undisturbed(s)
        self.assertEqual(sum(w["restarts"] for w in host.status()["worker"]), 0)

    def test_a_killed_program_leaves_a_worker_that_serves_the_next(self):
        host = self.own()
        steady = self.steady(host, tenant="alice")
        worker = self.pids(host, "alice", "busy")
        steady.kill()
        self.assertEqual(self.kept(host, "alice", 1), worker)
        self.finished(host, "e2e_minimal", tenant="alice")
        self.assertEqual(self.kept(host, "alice", 1), worker)

    def test_a_worker_whose_limits_were_changed_serves_nobody_else(self):
        host = self.own()
        before = self.spares(host)
        self.finished(host, "e2e_limits", tenant="alice")
        lib.until(lambda: not self.workers(host, "alice"), 10, "the worker has ended")
        self.assertEqual(len(self.spares(host) & before), SPARES - 1)

    def test_a_fault_after_its_program_has_gone_is_told_of(self):
        host = self.own()
        late = self.guest(host, "e2e_fault", "late", 2000000, tenant="alice")
        late.wait_line("^ready$")
        worker, = self.pids(host, "alice", "busy")
        late.kill()
        lib.until(lambda: not lib.pid_is_alive(worker), 20, "the worker with the dead context has ended")
        host.process.wait_log("fault: caused by .*tenant=alice")
        self.finished(host, "e2e_minimal", tenant="alice")
        lib.until(lambda: host.tenant("alice")["faults"] == 1, 5, "it is counted")

    def test_work_that_a_killed_program_left_behind_ends_its_worker_only(self):
        host = self.own()
        other = self.steady(host, tenant="alice")
        worker = self.endless(host)
        lib.until(lambda: not lib.pid_is_alive(worker), 10, "the worker has been killed")
        host.process.wait_log("killed for work that its program left behind")
        self.spares(host)
        self.finished(host, "e2e_minimal", tenant="alice")
        self.steady_undisturbed(other)

    def test_who_only_asks_gets_no_worker_of_its_own(self):
        host = self.own()
        steady = self.steady(host, tenant="alice")
        spares = self.spares(host)
        for _ in range(2):
            guest = self.finished(host, sys.executable, "-c", ASKS, tenant="alice")
            used, = [int(line.split()[1]) for line in guest.lines if line.startswith("used ")]
            if lib.DRIVER == "softgpu":  # on a GPU contexts take memory, too, and so do others
                self.assertEqual(used, 32)
            self.assertGreaterEqual(used, 32)
        self.assertEqual(len(self.workers(host, "alice")), 1)
        self.assertEqual(self.spares(host), spares)
        self.steady_undisturbed(steady)
        self.kept(host, "alice", 1)

    def test_nvml_lists_the_programs_of_all_workers(self):
        host = self.own()
        held = [self.guest(host, "e2e_quota", "hold", mib << 20, tenant="alice") for mib in (32, 64)]
        for guest in held:
            guest.wait_line("^held$")
        self.steady(host, tenant="bob")
        found = self.finished(host, sys.executable, "-c", ASKS, tenant="alice")
        self.assertEqual(self.processes(found), {(held[0].pid, 32), (held[1].pid, 64)})
        held[0].kill()
        lib.until(lambda: len(self.workers(host, "alice", "kept")) == 1, 10, "its worker waits for another program")
        found = self.finished(host, sys.executable, "-c", ASKS, tenant="alice")
        self.assertEqual(self.processes(found), {(held[1].pid, 64)})

    def test_the_quota_holds_over_all_workers(self):
        host = self.own({"alice": {"isolation": "program", "memory": "256MiB"}, "bob": {"isolation": "program"}})
        first = self.guest(host, "e2e_quota", "hold", 160 << 20, tenant="alice")
        first.wait_line("^held$")
        self.finished(host, "e2e_quota", "fails", 160 << 20, tenant="alice")
        second = self.guest(host, "e2e_quota", "hold", 64 << 20, tenant="alice")
        second.wait_line("^held$")
        self.assertEqual(len(self.pids(host, "alice", "busy")), 2)
        self.assertEqual(host.tenant("alice")["used_bytes"], 224 << 20)
        first.kill()
        lib.until(lambda: host.tenant("alice")["used_bytes"] == 64 << 20, 10, "what the first had is free")
        third = self.guest(host, "e2e_quota", "hold", 160 << 20, tenant="alice")
        third.wait_line("^held$")

    def test_the_quota_comes_back_when_a_worker_dies(self):
        host = self.own({"alice": {"isolation": "program", "memory": "256MiB"}})
        first = self.guest(host, "e2e_quota", "hold", 200 << 20, tenant="alice")
        first.wait_line("^held$")
        worker, = self.pids(host, "alice", "busy")
        other = self.guest(host, "e2e_quota", "hold", 8 << 20, tenant="alice")
        other.wait_line("^held$")
        os.kill(worker, signal.SIGKILL)
        lib.until(lambda: len(self.pids(host, "alice")) < 3, 10, "its worker is gone")
        last = self.guest(host, "e2e_quota", "hold", 200 << 20, tenant="alice")
        last.wait_line("^held$")

    def test_sessions_hold_over_all_workers(self):
        host = self.own({"alice": {"isolation": "program", "sessions": 2}})
        steady = [self.steady(host, tenant="alice") for _ in range(2)]
        third = self.guest(host, "e2e_minimal", tenant="alice")
        self.assertNotEqual(third.wait(20), 0)
        lib.until(lambda: "too many sessions" in host.process.err, 5, "the log says why")
        steady.pop().kill()
        self.kept(host, "alice", 1)
        self.finished(host, "e2e_minimal", tenant="alice")
        self.steady_undisturbed(steady[0])

    def test_who_changes_a_tenant_is_told_of_a_worker_that_does_not_hear(self):
        host = self.own()
        self.steady(host, tenant="alice")
        worker, = self.pids(host, "alice", "busy")
        change = ("tenant", "set", "alice", "weight=7", "--run-dir", host.run_dir)
        os.kill(worker, signal.SIGSTOP)
        self.assertIn("its worker has not said yet that it has this", host.weir(*change).stderr)
        os.kill(worker, signal.SIGCONT)
        lib.until(lambda: host.weir(*change).stderr == "", 10, "it has heard of it")

    def test_many_start_at_once(self):
        host = self.own()
        guests = [self.guest(host, "e2e_minimal", tenant=("alice", "bob")[i % 2]) for i in range(48)]
        for guest in guests:
            self.assertEqual(guest.wait(60), 0, guest.tail())
        lib.until(lambda: not self.workers(host, state="busy"), 10, "no worker is busy any more")
        starting = list(self.starting(host))
        self.assertGreater(len(starting), SPARES)
        self.assertLessEqual(max(starting), STARTS_AT_ONCE, starting)

    @staticmethod
    def starting(host):
        """Of each start how many were under way then, but for slow ones."""
        begun = {}
        for line in host.process.errors:
            if match := re.search(r"supervisor: worker (started|ready) worker=(\d+) ", line):
                begun.pop(match[2], None)
                if match[1] == "started":
                    begun[match[2]] = log_time_s(line)
                    yield sum(begun[match[2]] - at < SLOW_START_S for at in begun.values())

    def test_a_tenant_that_goes_takes_its_workers_along(self):
        host = self.own()
        steady = self.steady(host, tenant="alice")
        other = self.steady(host, tenant="bob")
        pids = self.pids(host, "alice")
        host.write_config({"bob": {"isolation": "program"}})
        host.process.signal(1)
        lib.until(lambda: not any(lib.pid_is_alive(p) for p in pids), 10, "alice's workers have ended")
        self.assertNotEqual(steady.wait(10), 0)
        self.steady_undisturbed(other)
        result = host.weir("tenant", "add", "alice", "isolation=program", "--run-dir", host.run_dir)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.finished(host, "e2e_minimal", tenant="alice")

    def scarce(self, **kwargs):
        """A host with one worker of a program, alice's, and no way to start another one; its driver's file."""
        if lib.DRIVER != "softgpu":
            self.skipTest("takes the driver's file away")
        driver = os.path.join(self.folder(), "driver.so")
        shutil.copy(lib.places.softgpu, driver)
        host = self.host({"alice": {"isolation": "program"}, "bob": {"isolation": "program"}}, driver=driver,
                         host_lines=["spare_workers = 1", *kwargs.pop("lines", ())], **kwargs)
        self.spares(host, 1)
        os.unlink(driver)
        steady = self.steady(host, tenant="alice")
        lib.until(lambda: "died" in host.process.err, 10, "no spare can be started")
        return host, steady, driver

    def refused(self, host, tenant):
        guest = self.guest(host, "e2e_minimal", tenant=tenant)
        self.assertNotEqual(guest.wait(20), 0)
        lib.until(lambda: f"guest refused tenant={tenant}" in host.process.err, 5, "the log says who was refused")
        host.process.wait_log("the last worker could not open the GPU")

    def test_where_contexts_are_short_programs_of_a_tenant_share(self):
        host, steady, driver = self.scarce()
        self.finished(host, "e2e_minimal", tenant="alice")
        host.process.wait_log("a program shares a worker, since it gets no other tenant=alice")
        self.assertEqual(len(self.pids(host, "alice")), 1)
        self.refused(host, "bob")
        self.steady_goes_on(steady)
        shutil.copy(lib.places.softgpu, driver)
        lib.until(lambda: self.guest(host, "e2e_minimal", tenant="bob").wait(20) == 0, 10, "bob's programs work again")
        self.steady_undisturbed(steady)

    def test_who_shares_a_worker_lowers_no_limit_of_another_program(self):
        """Whose kernels need the stack that it has asked for."""
        host, steady, _ = self.scarce()
        steady.kill()
        self.kept(host, "alice", 1)
        first, second = (self.guest(host, sys.executable, "-c", STACK, tenant="alice") for _ in range(2))
        for guest in (first, second):
            guest.wait_line("^ready$")
        self.assertEqual(len(self.pids(host, "alice")), 1)
        for guest, asked, given in ((first, 64 << 10, 64 << 10), (second, 4 << 10, 64 << 10), (second, 128 << 10, 128 << 10)):
            guest.say(str(asked))
            guest.wait_line(f"^asked {asked} has {given}$")
        second.close_stdin()
        self.assertEqual(second.wait(), 0)
        lib.until(lambda: host.tenant("alice")["sessions"] == 1, 5, "the first is alone")
        first.say(str(2 << 10))
        first.wait_line(f"^asked {2 << 10} has {2 << 10}$")

    def test_or_they_are_refused(self):
        host, steady, _ = self.scarce(lines=['on_shortage = "refuse"'])
        self.refused(host, "alice")
        self.steady_undisturbed(steady)

    def test_cuda_programs(self):
        """All programs that need no toolkit, also those of two processes, which have a worker each."""
        names = lib.places.cuda_programs("drv_")
        self.assertLess({"drv_vmm_share", "drv_pool_share"}, set(names))
        host = self.own(log="warn")
        argv = lib.table_argv(lib.places.cuda, lib.arrangements(host, (lib.SOFTGPU, lib.SHM)), only=names, jobs=4)
        result = subprocess.run(argv, capture_output=True, text=True, env=lib.clean_environment(), timeout=600)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr + host.process.err)
        self.assertNotIn("died", host.process.err)
        lib.until(lambda: not self.workers(host, state="busy"), 10, "no worker is busy any more")

    def test_groups_share_a_worker(self):
        host = self.host({"alice": {"isolation": "group", "group": "one"},
                          "bob": {"isolation": "group", "group": "one"},
                          "carol": {"isolation": "group", "group": "two"}, "dora": {"isolation": "group", "group": "three"}})
        self.assertEqual(len(self.workers(host)), 3)
        steady = {t: self.steady(host, tenant=t) for t in ("carol", "dora")}
        self.faulted(host, tenant="alice")
        lib.until(lambda: sum(w["restarts"] for w in self.workers(host)) == 1, 5, "their worker was replaced")
        self.finished(host, "e2e_minimal", tenant="bob")
        for s in steady.values():
            self.steady_undisturbed(s)

    def test_a_group_is_named_by_those_who_are_in_one(self):
        for settings, why in (({"isolation": "group", "group": None}, "a tenant has a 'group' if, and only if"),
                              ({"group": "one"}, "a tenant has a 'group' if, and only if"),
                              ({"isolation": "shared"}, "use 'group', with the same 'group' for all tenants")):
            host = self.host({"alice": settings}, start=False)
            result = subprocess.run([lib.places.weir, "serve", "--config", host.config], capture_output=True,
                                    text=True, timeout=600, env=dict(os.environ))
            self.assertNotEqual(result.returncode, 0)
            self.assertIn(why, result.stderr)

    def test_connections_that_a_program_wants_come_with_its_worker(self):
        host = self.own()
        self.finished(host, "e2e_minimal", tenant="alice", env={"CUDA_DEVICE_MAX_CONNECTIONS": "3"})
        host.process.wait_log("worker: connections to the GPU connections=3")
        self.kept(host, "alice", 1)
        self.finished(host, "e2e_minimal", tenant="alice")
        self.kept(host, "alice", 2)


if __name__ == "__main__":
    lib.CASE_LIMIT_S = 150
    lib.main()
