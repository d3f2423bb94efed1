#!/usr/bin/env python3
"""isolation = "program": a worker for each program, spares, kept workers, ends and shortages."""
import contextlib
import datetime
import json
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


# A program that tells which SMs its kernel has run on, and what the driver says of them.
SHARE = r"""
import ctypes
from ctypes import byref, c_int, c_uint, c_uint64, c_void_p
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *args):
    result = getattr(cuda, name)(*args)
    assert result == 0, (name, result)
ctx, module, function, marks, one = c_void_p(), c_void_p(), c_void_p(), c_uint64(), c_int()
call("cuInit", 0)
call("cuDeviceGetAttribute", byref(one), 16, 0)
print("attribute", one.value)
call("cuDevicePrimaryCtxRetain", byref(ctx), 0)
call("cuCtxSetCurrent", ctx)
affinity = (c_uint * 2)()
result = cuda.cuCtxGetExecAffinity(affinity, 0)
print("affinity", affinity[1] if result == 0 else f"error {result}")
call("cuModuleLoadData", byref(module), b'''.version 6.4
.target sm_75
.address_size 64
.visible .entry where(.param .u64 marks)
{
    .reg .b32 %r<3>;
    .reg .b64 %d<5>;
    ld.param.u64 %d0, [marks];
    cvta.to.global.u64 %d1, %d0;
    mov.u32 %r0, %smid;
    mov.u32 %r1, 1;
    mul.wide.u32 %d2, %r0, 4;
    add.s64 %d3, %d1, %d2;
    st.global.u32 [%d3], %r1;
    ret;
}
''')
call("cuModuleGetFunction", byref(function), module, b"where")
grid, block = c_int(), c_int()
call("cuOccupancyMaxPotentialBlockSize", byref(grid), byref(block), function, None, 0, 1024)
print("occupancy", grid.value * block.value)
call("cuMemAlloc_v2", byref(marks), 4096)
call("cuMemsetD32_v2", marks, 0, 1024)
params = (c_void_p * 1)(ctypes.cast(byref(marks), c_void_p))
call("cuLaunchKernel", function, 256, 1, 1, 32, 1, 1, 0, None, params, None)
used = (c_uint * 1024)()
call("cuMemcpyDtoH_v2", used, marks, 4096)
print("used", sum(used))
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
        result = subprocess.run(argv, capture_output=True, text=True, env=lib.clean_environment(), timeout=120)
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
                                    text=True, timeout=20, env=dict(os.environ))
            self.assertNotEqual(result.returncode, 0)
            self.assertIn(why, result.stderr)

    def test_connections_that_a_program_wants_come_with_its_worker(self):
        host = self.own()
        self.finished(host, "e2e_minimal", tenant="alice", env={"CUDA_DEVICE_MAX_CONNECTIONS": "3"})
        host.process.wait_log("worker: connections to the GPU connections=3")
        self.kept(host, "alice", 1)
        self.finished(host, "e2e_minimal", tenant="alice")
        self.kept(host, "alice", 2)


# What stands for NVIDIA's control program: a daemon with a file where its socket would be, which writes down
# what it is told.
CONTROL = """#!/bin/sh
if [ "$1" = -f ]; then
    trap 'exit 0' TERM
    : > "$CUDA_MPS_PIPE_DIRECTORY/control"
    while [ ! -e "$CUDA_MPS_PIPE_DIRECTORY/quit" ]; do sleep 0.05; done
    rm "$CUDA_MPS_PIPE_DIRECTORY/quit"
    exit 0
fi
while read -r line; do
    echo "${CUDA_MPS_PIPE_DIRECTORY##*/} $line" >> "$WEIR_TEST_SAID"
    case $line in
        get_server_list) echo SERVER ;;
        quit*) : > "$CUDA_MPS_PIPE_DIRECTORY/quit" ;;
    esac
done
"""


CLIENTS = 48  # of an MPS server


class UnderMps(Base):
    REAL = False  # are the tests for NVIDIA's own daemon, too, where there is a GPU?

    def under_mps(self, tenants=None, lines=(), server="4242", **kwargs):
        if lib.DRIVER != "softgpu" and self.REAL and shutil.which("nvidia-cuda-mps-control"):
            return self.own(tenants, lines=['mps = "on"', *lines], **kwargs)
        if lib.DRIVER != "softgpu":
            self.skipTest("a real client of MPS does not talk to what stands for the daemon here")
        folder = self.folder()
        control = os.path.join(folder, "nvidia-cuda-mps-control")
        with open(control, "w") as f:
            f.write(CONTROL.replace("SERVER", server))
        os.chmod(control, 0o755)
        self.said_path = os.path.join(folder, "said")
        with open(self.said_path, "w"):
            os.chmod(self.said_path, 0o666)  # the daemon runs as the workers' user
        tenants = tenants or {name: {"isolation": "program"} for name in ("alice", "bob")}
        env = {"PATH": f"{folder}:{os.environ['PATH']}", "WEIR_TEST_SAID": self.said_path, **kwargs.pop("env", {})}
        return self.own({**tenants, "carol": {"isolation": "strict"}}, lines=['mps = "on"', *lines], env=env, **kwargs)

    def said(self, domain="mps-0"):
        """What the daemon of a domain was told."""
        with open(self.said_path) as f:
            told = [line.split(" ", 1) for line in f.read().splitlines()]
        return [line for where, line in told if where == domain]

    def in_reserve(self, host, count=1):
        """A server has been started before a domain needs it, so many times."""
        lib.until(lambda: host.process.err.count("mps: a server is in reserve") == count, 10, "a server is in reserve")

    def folder_of(self, pid):
        with lib.looking_into(pid), open(f"/proc/{pid}/environ", "rb") as f:
            found = dict(line.split(b"=", 1) for line in f.read().split(b"\0") if b"=" in line)
        return found.get(b"CUDA_MPS_PIPE_DIRECTORY", b"").decode()

    def hold(self, host, tenant, n, **options):
        """So many programs that have a context and do nothing."""
        held = [self.guest(host, "e2e_quota", "hold", 4096, tenant=tenant, **options) for _ in range(n)]
        for guest in held:
            guest.wait_line("^held$")
        return held


class Domains(UnderMps):
    """Programs' workers under MPS: which server, what a fault ends, how a worker is killed."""

    def test_where_its_daemon_does_not_start_contexts_take_turns(self):
        folder = self.folder()
        control = os.path.join(folder, "nvidia-cuda-mps-control")
        with open(control, "w") as f:
            f.write("#!/bin/sh\nexit 1\n")
        os.chmod(control, 0o755)
        host = self.own(lines=['mps = "auto"'], driver=lib.places.softgpu, env={"PATH": f"{folder}:{os.environ['PATH']}"})
        self.finished(host, "e2e_minimal", tenant="alice")
        host.process.wait_log("mps: not used, contexts take turns")
        warned = [line for line in host.process.errors if "mps: not used, contexts take turns" in line]
        self.assertEqual(len(warned), 1, host.process.err)

    def test_workers_of_programs_are_its_clients(self):
        host = self.under_mps()
        steady = [self.steady(host, tenant=t) for t in ("alice", "carol")]
        for pid in self.pids(host, "alice") | self.spares(host):
            self.assertEqual(self.folder_of(pid), os.path.join(host.run_dir, "mps-0"))
        for pid in self.pids(host, "carol"):
            self.assertEqual(self.folder_of(pid), "/nonexistent")
        for s in steady:
            self.steady_undisturbed(s)
        self.assertEqual(host.stop(), 0)
        self.assertEqual(self.said(), ["quit -t 1"])
        for domain in ("mps-0", "mps-1"):
            self.assertFalse(os.path.exists(os.path.join(host.run_dir, domain)))

    def test_a_fault_ends_the_domain_and_it_comes_back(self):
        host = self.under_mps(lines=["quarantine_s = 0"])
        before = self.spares(host)
        strict = self.steady(host, tenant="carol")
        neighbour = self.steady(host, tenant="bob")
        self.in_reserve(host)
        self.faulted(host, tenant="alice")
        self.assertNotEqual(neighbour.wait(10), 0)
        self.assertIn("700", neighbour.out + neighbour.err)
        lib.until(lambda: self.pids(host, state="spare") and before.isdisjoint(self.pids(host)), 10,
                  "none of the old workers is left")
        self.assertEqual(self.domains(self.spares(host)), ["mps-1"])
        for tenant in ("alice", "bob"):
            self.finished(host, "e2e_minimal", tenant=tenant)
        started = next(i for i, line in enumerate(host.process.errors) if "worker started" in line and "mps_domain=2" in line)
        left = [i for i, line in enumerate(host.process.errors) if re.search("worker of a program (ended|died)", line)]
        self.assertLess(started, left[-1], "the next worker does not wait until the old ones have left")
        self.faulted(host, tenant="alice")  # the first domain has recovered, and is in reserve
        self.spares_are_in(host, "mps-0")
        self.finished(host, "e2e_minimal", tenant="bob")
        self.steady_undisturbed(strict)

    def test_without_a_server_in_reserve_programs_wait_until_the_domain_has_recovered(self):
        host = self.under_mps(server="")
        before = self.spares(host)
        self.faulted(host, tenant="alice")
        lib.until(lambda: before.isdisjoint(self.pids(host)), 10, "none of the old workers is left")
        self.spares_are_in(host, "mps-0")
        self.finished(host, "e2e_minimal", tenant="bob")

    def test_an_assert_ends_nothing_but_its_program(self):
        """The driver goes on with the work behind a failed assert and tells of it late; the server serves the others."""
        host = self.under_mps()
        neighbour = self.steady(host, tenant="bob")
        for how in ("assert", "polled"):
            self.faulted(host, how, tenant="alice")
        self.finished(host, "e2e_minimal", tenant="alice")
        self.steady_undisturbed(neighbour)
        self.assertEqual(self.faults_of(host, "alice"), (2, 0))
        self.assertEqual(host.tenant("alice")["quarantined"], 0)
        named = lambda: [line for line in list(host.process.errors)
                         if "fault: caused by" in line and 'kernels="fail_assert"' in line]
        lib.until(lambda: len(named()) >= 2, 5, "the log names the kernel of both")
        self.assertEqual(len(named()), 2, host.process.err)

    def test_a_program_whose_kernels_launch_kernels_is_outside(self):
        """Its own file says so. Programs of the same tenant without that are under MPS as before."""
        host = self.under_mps()
        self.finished(host, "e2e_device_launch", tenant="alice")
        worker, = self.kept(host, "alice", 1)
        self.assertEqual(self.folder_of(worker), "/nonexistent")
        self.finished(host, "e2e_minimal", tenant="alice")
        other, = self.kept(host, "alice", 2) - {worker}
        self.assertEqual(self.folder_of(other), os.path.join(host.run_dir, "mps-0"))
        self.finished(host, "e2e_device_launch", tenant="alice")  # in the worker that is kept
        self.kept(host, "alice", 2)

    def test_one_that_was_not_known_is_told_what_to_set(self):
        host = self.under_mps()
        with open(lib.places.program("e2e_device_launch"), "rb") as f:
            program = f.read()
        self.assertEqual(program.count(b"__nv_relfatbin"), 1)
        path = os.path.join(self.folder(), "unknown")
        with open(path, "wb") as f:
            f.write(program.replace(b"__nv_relfatbin", b"__nv_otherwise"))
        os.chmod(path, 0o755)
        guest = self.finished(host, path, "launch", tenant="alice", env={"WEIR_LOG": "error"})
        worker, = self.kept(host, "alice", 1)
        self.assertEqual(self.folder_of(worker), os.path.join(host.run_dir, "mps-0"))
        for told in (guest.err, host.process.err):
            self.assertEqual(told.count("a kernel launches kernels, which is not possible under MPS"), 1)
            self.assertIn('isolation = "strict"', told)
            self.assertIn('mps = "off"', told)

    def faults_of(self, host, tenant):
        row = host.tenant(tenant)
        return row["faults"], row["suspected_faults"]

    def test_the_fault_is_whose_the_server_says(self):
        """Every client meets the error, so who reports it first need not be whose it is."""
        host = self.under_mps()
        neighbour = self.steady(host, tenant="bob")
        worker, = self.pids(host, "bob", "busy")
        with open(os.path.join(host.run_dir, "mps-0", "server.log"), "a") as log:
            log.write("[2026-11-25 17:53:06.900 Server  6590] Status of client {4242, 1} is ACTIVE\n" * 400)
            log.write(f"[2026-11-25 17:53:06.911 Server  6590] Client {{PID: {worker}, Context: 1}} encountered "
                      "a fatal GPU error.\n")
        self.faulted(host, tenant="alice")
        lib.until(lambda: self.faults_of(host, "bob") == (1, 0), 5, "it is bob's")
        self.assertEqual(self.faults_of(host, "alice"), (0, 0))
        self.assertNotEqual(neighbour.wait(10), 0)

    def test_a_worker_that_is_killed_is_its_tenants_fault(self):
        host = self.under_mps(lines=["quarantine_s = 7"])
        neighbour = self.steady(host, tenant="bob")
        self.steady(host, tenant="alice")
        os.kill(*self.pids(host, "alice", "busy"), signal.SIGKILL)
        lib.until(lambda: self.faults_of(host, "alice") == (1, 0), 5, "it is alice's")
        self.assertNotEqual(host.tenant("alice")["quarantined"], 0)
        self.assertEqual(self.faults_of(host, "bob"), (0, 0))
        self.assertNotEqual(neighbour.wait(10), 0)

    def test_a_tenant_that_has_ended_a_domain_is_kept_out_of_it_for_a_while(self):
        host = self.under_mps(lines=["quarantine_s = 7"])
        self.steady(host, tenant="bob")
        self.in_reserve(host)
        self.faulted(host, tenant="alice")
        lib.until(lambda: self.faults_of(host, "alice") == (0, 1), 5, "the first to report it is suspected")
        self.spares(host)
        neighbour = self.steady(host, tenant="bob")
        self.faulted(host, tenant="alice")
        self.steady_goes_on(neighbour)
        alice = self.steady(host, tenant="alice")
        self.assertEqual({self.folder_of(pid) for pid in self.pids(host, "alice", "busy")}, {"/nonexistent"})
        alice.kill()
        lib.until(lambda: host.tenant("alice")["quarantined"] == 0, 10, "the quarantine has ended")
        self.steady(host, tenant="alice")
        self.assertEqual({os.path.basename(self.folder_of(pid)) for pid in self.pids(host, "alice", "busy")}, {"mps-1"})
        self.steady_undisturbed(neighbour)

    def test_a_user_ends_a_domain_once_with_shares_on_demand(self):
        host = self.under_mps({"bob": {"isolation": "program"}})
        neighbour = self.steady(host, tenant="bob")
        wild = ("run", "--new", "--run-dir", host.run_dir, "--", lib.places.program("e2e_fault"), "address")
        lib.run_weir(*wild, input="")
        self.assertNotEqual(neighbour.wait(10), 0)
        lib.until(lambda: f"quarantine begun uid={os.geteuid()} " in host.process.err, 5, "the user is blamed")
        neighbour = self.steady(host, tenant="bob")
        lib.run_weir(*wild, input="")
        self.assertIn("a share begins in its user's quarantine tenant=run-2", host.process.err)
        self.steady_undisturbed(neighbour)

    def test_a_worker_is_killed_after_its_server_has_let_it_go(self):
        host = self.under_mps()
        steady = {t: self.steady(host, tenant=t) for t in ("alice", "bob")}
        worker, = self.pids(host, "alice")
        os.kill(worker, signal.SIGSTOP)
        result = host.weir("tenant", "remove", "alice", "--run-dir", host.run_dir)
        self.assertEqual(result.returncode, 0, result.stderr)
        lib.until(lambda: not lib.pid_is_alive(worker), 20, "the worker has ended")
        self.assertEqual(self.said(), ["get_server_list", f"terminate_client 4242 {worker}"])
        self.steady_undisturbed(steady["bob"])

    def test_so_is_one_whose_work_was_left_behind(self):
        host = self.under_mps()
        neighbour = self.steady(host, tenant="bob")
        worker = self.endless(host)
        lib.until(lambda: not lib.pid_is_alive(worker), 10, "the worker has been killed")
        self.assertEqual(self.said(), ["get_server_list", f"terminate_client 4242 {worker}"])
        self.steady_undisturbed(neighbour)

    def test_a_host_that_stops_has_it_let_go_too(self):
        host = self.under_mps(lines=["spare_workers = 6"])
        self.spares(host, 6)
        self.steady(host, tenant="alice")
        worker, = self.pids(host, "alice")
        os.kill(worker, signal.SIGSTOP)
        self.assertEqual(host.stop(), 0)
        said = self.said()
        self.assertEqual(said[:2], ["get_server_list", f"terminate_client 4242 {worker}"])
        self.assertNotIn("get_server_list", said[2:])  # the others ended by themselves
        self.assertRegex(host.process.err, r"workers ended workers=\d+ killed=1 ms=\d+")

    def domains(self, pids):
        """Of those that have not ended meanwhile."""
        found = set()
        for pid in pids:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                found.add(os.path.basename(self.folder_of(pid)))
        return sorted(found)

    def spares_are_in(self, host, domain):
        lib.until(lambda: self.domains(self.pids(host, state="spare")) == [domain], 20, f"spares are in {domain}")

    def test_a_second_domain_opens_when_the_first_is_full_of_programs(self):
        """Programs of two domains take turns, so workers that serve nobody leave first."""
        host = self.under_mps(lines=["spare_workers = 32"])
        self.hold(host, "alice", 16)
        self.assertEqual(self.domains(self.spares(host, 32) | self.pids(host)), ["mps-0"])
        self.hold(host, "bob", 2, env={"CUDA_DEVICE_MAX_CONNECTIONS": "1"})  # no spare is like that
        self.assertEqual(len(self.pids(host, "bob", "busy")), 2)
        self.hold(host, "alice", CLIENTS - 18)
        self.assertEqual(self.domains(self.pids(host, state="busy")), ["mps-0"])
        last = self.hold(host, "alice", 1)
        self.assertEqual(self.domains(self.pids(host, state="busy")), ["mps-0", "mps-1"])
        self.assertEqual(self.domains(self.spares(host, 32)), ["mps-1"])
        for guest in last:
            guest.close_stdin()
            self.assertEqual(guest.wait(20), 0)

    def test_spares_leave_a_further_domain_when_the_first_has_room(self):
        host = self.under_mps(lines=["spare_workers = 1", "worker_idle_s = 1"])
        held = self.hold(host, "alice", CLIENTS)
        self.assertEqual(self.pids(host, state="spare"), set(), "no domain opens for spares")
        self.hold(host, "bob", 1)
        self.assertEqual(self.domains(self.spares(host, 1)), ["mps-1"])
        for guest in held[:2]:
            guest.kill()
        self.spares_are_in(host, "mps-0")


class Runs(UnderMps):
    """Connections to the GPU of workers under MPS, and kernels that can be stopped there."""

    STREAMS = 4

    def explored(self, **kwargs):
        return self.under_mps(lines=lib.forms_lines(self.folder()), log="debug", **kwargs)

    def connections(self, host):
        return [int(m[1]) for m in (re.search(r"worker: connections to the GPU connections=(\d+)", line)
                                    for line in host.process.errors) if m]

    def runs(self, host):
        """What the device of each worker counts, by name."""
        result = lib.run_weir("stats", "--run-dir", host.run_dir, "--json")
        return [line["runs"] for line in map(json.loads, result.stdout.splitlines()) if line.get("runs")]

    def run_streams(self, host, **options):
        """A program with kernels under way in several streams at a time; its worker's counts."""
        guest = self.guest(host, "sched_load", "tasks", "--rounds", "200", *["4096:8:4096"] * self.STREAMS,
                           tenant="alice", **options)
        guest.wait_line("^ready$")
        for _ in range(5):
            said = len(guest.lines)
            guest.say(" ".join(["0", *map(str, range(self.STREAMS))]))
            guest.wait_line("^done ", after=said)
        runs, = self.runs(host)
        return runs

    def test_a_program_of_several_streams_has_runs_where_there_are_eight_connections(self):
        host = self.explored()
        runs = self.run_streams(host)
        self.assertEqual(set(self.connections(host)), {8})
        self.assertEqual(runs["crowded"], 0)
        self.assertGreater(runs["started"], 5 * 8 * self.STREAMS / 2)  # not all: a run's room may not be free yet

    def test_and_few_where_there_are_two(self):
        """The host's environment goes before what the supervisor says."""
        host = self.explored(env={"CUDA_DEVICE_MAX_CONNECTIONS": "2"})
        runs = self.run_streams(host)
        self.assertEqual(set(self.connections(host)), {2})
        self.assertGreater(runs["crowded"], 0)

    def test_programs_of_many_streams_and_threads_end_right(self):
        host = self.explored()
        for program in ("drv_streams_many", "drv_threads"):
            guests = [self.guest(host, program, tenant=tenant) for tenant in ("alice", "bob")]
            for guest in guests:
                self.assertEqual(guest.wait(lib.CASE_LIMIT_S), 0, guest.tail())
        for runs in self.runs(host):
            self.assertEqual((runs["started"], runs["stuck"]), (runs["finished"], 0))

    def test_kernels_that_share_sms_set_memory_aside_for_each_other(self):
        """Each in a worker of its own: what the other one's blocks need comes with the grant."""
        forms = lib.forms_lines(self.folder(), mode="always")
        host = self.under_mps(lines=[*forms, "", "[scheduler]", 'policy = "fair,corun"'], log="debug")
        guests = [self.guest(host, "forms_load", kernel, tenant=tenant)
                  for kernel, tenant in (("bs", "alice"), ("rg", "bob"))]
        for guest, kernel in zip(guests, ("bs", "rg")):
            guest.say(f"input {kernel} quick")
            guest.wait_line("^done$")
            guest.say("loop 40 0")
        said = r"forms: shares SMs kernel=\S*{} block_limit=\d+ own_bytes=\d+ beside_bytes=[1-9]"
        for kernel in ("bs", "rg"):
            host.process.wait_log(said.format(kernel), 40)

    def test_a_program_that_was_alone_has_runs_once_there_is_another_tenant(self):
        host = self.own({"alice": {"isolation": "program"}}, lines=lib.forms_lines(self.folder(), mode="default"))
        first = self.guest(host, "forms_load", "rg", tenant="alice")
        first.say("input rg quick")
        first.wait_line("^done$")
        self.assertEqual(self.runs(host), [])
        first.say("loop 40 0")
        added = lib.run_weir("tenant", "add", "bob", "isolation=program", "--run-dir", host.run_dir)
        self.assertEqual(added.returncode, 0, added.stderr)
        second = self.guest(host, "forms_load", "bs", tenant="bob")
        second.say("input bs quick")
        second.wait_line("^done$")
        second.say("loop 40 0")

        def has_runs():
            result = lib.run_weir("stats", "--run-dir", host.run_dir, "--json")
            return any(line.get("tenant") == "alice" and line["kernels"].get("persistent", 0) > 0
                       for line in map(json.loads, result.stdout.splitlines()))

        lib.until(has_runs, 30, "kernels of the first program can be stopped")

    def test_spares_have_the_connections_that_ended_programs_had(self):
        """Four workers have 8; those that come later have 2, until the first ones have ended."""
        host = self.under_mps(lines=["spare_workers = 1", "worker_idle_s = 1"])
        held = self.hold(host, "alice", 5)
        lib.until(lambda: len(self.connections(host)) == 6, 10, "a spare starts")
        self.assertEqual(sorted(self.connections(host)), [2, 2, 8, 8, 8, 8])  # they may start at the same time
        held[0].kill()
        lib.until(lambda: self.connections(host)[6:] == [8], 20, "another spare with 8 comes instead")


class Shares(UnderMps):
    """Programs whose tenant has an SM limit have contexts with such a share of the SMs. What they are told is what a
    client of the same MPS server without Weir is told that has this share."""

    REAL = True

    def sms(self, host, tenant, **options):
        """What such a program is told, by what tells it; and how many it has used."""
        guest = self.finished(host, sys.executable, "-c", SHARE, tenant=tenant, **options)
        told = dict(line.split(" ", 1) for line in guest.lines)
        used = int(told.pop("used"))
        self.assertIn(used, range(1, int(told["attribute"]) + 1))  # one core may have run all blocks
        return told

    def native(self, folder, percent=100):
        return self.sms(None, None, arrangement=lib.SOFTGPU if lib.DRIVER == "softgpu" else lib.NATIVE,
                        env={"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(percent)})

    def assertHas(self, host, tenant, percent, **options):
        self.assertEqual(self.sms(host, tenant, **options), self.native(os.path.join(host.run_dir, "mps-0"), percent))

    def shares(self, host, tenant, state=None):
        return sorted(w["sm_share_pct"] for w in self.workers(host, tenant, state))

    def set(self, host, tenant, *settings):
        result = host.weir("tenant", "set", "--run-dir", host.run_dir, tenant, *settings)
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_a_program_has_a_context_with_its_tenants_share(self):
        host = self.under_mps({"alice": {"isolation": "program", "sm_limit": 25}, "bob": {"isolation": "program"},
                               "dora": {"isolation": "strict", "sm_limit": 25}},
                              lines=["worker_idle_s = 600", "", "[forms]", 'mode = "off"'])
        spares = self.spares(host)
        self.assertHas(host, "alice", 25)
        alice = self.kept(host, "alice", 1)
        self.assertEqual(self.spares(host), spares, "no spare serves it")
        self.sms(host, "alice")
        self.assertEqual(self.kept(host, "alice", 1), alice)
        self.assertRegex(host.weir("status", "--run-dir", host.run_dir).stdout, r"kept  only alice  25 % of the SMs\n")
        self.assertRegex(host.weir("doctor", "--run-dir", host.run_dir).stdout,
                         "a worker of tenant alice with 25 % of the multiprocessors")
        self.assertHas(host, "bob", 100)
        self.assertLessEqual(self.pids(host, "bob"), spares)
        self.assertEqual(self.sms(host, "dora"), self.native("/nonexistent"))  # outside MPS there are no shares
        self.assertEqual((self.shares(host, "bob"), self.shares(host, "dora")), ([0], [0]))
        self.set(host, "alice", "sm_limit=50")
        self.assertHas(host, "alice", 50)
        self.assertHas(host, "alice", 12, env={"CUDA_DEVICE_SM_LIMIT": "12"})
        self.assertEqual(self.shares(host, "alice"), [12, 25, 50])
        self.set(host, "alice", "sm_limit=100")
        self.sms(host, "alice", env={"CUDA_DEVICE_SM_LIMIT": "12"})
        self.assertEqual(self.shares(host, "alice"), [0, 12, 25, 50])
        self.spares(host)

    def test_where_all_tenants_have_a_limit_no_spare_is_kept(self):
        """The first worker tells how many SMs there are, which those with a share cannot."""
        host = self.under_mps({name: {"isolation": "program", "sm_limit": 50} for name in ("alice", "bob")},
                              lines=["spare_workers = 2", "", "[forms]", 'mode = "explore"'])
        self.assertHas(host, "alice", 50)
        lib.until(lambda: not self.pids(host, state="spare"), 10, "the first worker has ended")
        self.sms(host, "bob")
        self.assertEqual(self.shares(host, "bob"), [50])
        all_sms, = {d["sms"] for d in host.status()["device"]}
        self.assertEqual(all_sms, int(self.native("/nonexistent")["attribute"]))


if __name__ == "__main__":
    lib.CASE_LIMIT_S = 150
    lib.main()
