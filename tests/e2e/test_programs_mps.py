#!/usr/bin/env python3
"""Workers of programs under MPS: domains and their faults, connections and kernels that can be stopped, shares of the SMs."""
import contextlib
import json
import os
import re
import shutil
import signal
import sys

import lib
from test_programs import Base

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
        lib.until(lambda: "mps-0" not in self.domains(self.pids(host)), 10, "all have left the first domain")
        self.faulted(host, tenant="alice")  # the first domain has recovered, and is in reserve
        self.spares_are_in(host, "mps-0")
        self.finished(host, "e2e_minimal", tenant="bob")
        self.steady_undisturbed(strict)

    def test_lists_with_a_gpu_in_common_are_in_one(self):
        """Contexts of two servers would take turns on it. Other GPUs' programs are apart, as a fault reaches all of a domain."""
        lists = {"alice": "0", "bob": "0,1", "dora": "1", "erin": "2"}
        host = self.under_mps({name: {"isolation": "program", "devices": devices} for name, devices in lists.items()},
                              lines=["quarantine_s = 0", "spare_workers = 0"], env={"WEIR_SOFTGPU_DEVICES": "3"})
        steady = {tenant: self.steady(host, tenant=tenant) for tenant in lists}
        where = {tenant: self.domains(self.pids(host, tenant, "busy")) for tenant in lists}
        self.assertEqual([where[tenant] for tenant in ("bob", "dora")], 2 * [where["alice"]])
        self.assertEqual([len(where[tenant]) for tenant in ("alice", "erin")], [1, 1])
        self.assertNotEqual(where["erin"], where["alice"])
        self.faulted(host, tenant="alice")
        for tenant in ("bob", "dora"):
            self.assertNotEqual(steady[tenant].wait(10), 0)
        self.steady_undisturbed(steady["erin"])

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
        self.spares(host, CLIENTS - 18)  # else some of the next programs come before their workers
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
            guest.say("loop 200 0")
        said = r"forms: shares SMs kernel=\S*{} block_limit=\d+ own_bytes=\d+ beside_bytes=[1-9]"
        for kernel in ("bs", "rg"):
            host.process.wait_log(said.format(kernel), 120)

    def test_a_program_that_was_alone_has_runs_once_there_is_another_tenant(self):
        host = self.own({"alice": {"isolation": "program"}}, lines=lib.forms_lines(self.folder(), mode="default"))
        first = self.guest(host, "forms_load", "rg", tenant="alice")
        first.say("input rg quick")
        first.wait_line("^done$")
        self.assertEqual(self.runs(host), [])
        first.say("loop 200 0")
        added = lib.run_weir("tenant", "add", "bob", "isolation=program", "--run-dir", host.run_dir)
        self.assertEqual(added.returncode, 0, added.stderr)
        second = self.guest(host, "forms_load", "bs", tenant="bob")
        second.say("input bs quick")
        second.wait_line("^done$")
        second.say("loop 200 0")

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
