#!/usr/bin/env python3
"""Programs with bad manners, or short of things: each works or is told why, and nobody else notices (e2e_manners.c)."""
import ctypes
import os
import re
import signal
import subprocess
import sys

import lib

PTRACE_ATTACH = 16


class Manners(lib.Case):
    def check(self, run, **kwargs):
        """run(host) beside another tenant's program; then everything is as before."""
        for isolation in ("group", "program"):
            with self.subTest(isolation=isolation):
                host = self.host({name: {"isolation": isolation} for name in ("alice", "bob")}, **kwargs)
                steady = self.steady(host)
                before = len(lib.fds_of(host.supervisor_pid()))
                run(host)
                self.finished(host, "e2e_minimal")
                self.steady_undisturbed(steady)
                host.wait_idle()
                if isolation == "group":  # else there are spare workers, and some that are kept
                    lib.until(lambda: len(lib.fds_of(host.supervisor_pid())) <= before, 10,
                              "the supervisor's descriptors are those that it had")
                self.assertFalse(re.search("worker died|worker.*killed", host.process.err), host.process.tail())
                self.assertEqual(host.stop(), 0)

    def manners(self, way):
        def run(host):
            for arrangement in (lib.SHM, lib.ZMQ):
                self.finished(host, "e2e_manners", way, arrangement=arrangement)

        self.check(run)

    def test_descriptors_that_the_program_closes(self):
        self.manners("closes")

    def test_numbers_that_the_program_uses_again(self):
        self.manners("reuses")

    def test_numbers_that_a_child_inherits(self):
        self.manners("reuses-fork")

    def test_descriptors_that_the_program_closes_at_any_moment(self):
        self.manners("races")

    def test_no_descriptor_of_zmq_is_the_program_s(self):
        self.finished(self.host(), "e2e_manners", "keeps", arrangement=lib.ZMQ)

    def test_children_that_use_cuda(self):
        self.manners("forks")

    def test_contexts_that_go_while_threads_use_them(self):
        def run(host):
            for end in ("resets", "destroys", "releases"):
                self.finished(host, "e2e_contexts", end, limit_s=60)

        self.check(run)

    def test_second_copy_of_the_library(self):
        """The addresses that it shares with the host are taken; the first copy works on."""
        script = """
import ctypes, shutil, sys
first = ctypes.CDLL("libcuda.so.1")
assert first.cuInit(0) == 0
context, memory = ctypes.c_void_p(), ctypes.c_void_p()
assert first.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0 and first.cuCtxSetCurrent(context) == 0
shutil.copy(next(l.split()[-1] for l in open("/proc/self/maps") if "libcuda.so" in l), sys.argv[1])
print("second", ctypes.CDLL(sys.argv[1]).cuInit(0))
print("first", first.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(4096)))
"""
        host = self.host()
        copy = os.path.join(self.folder(), "libcopy.so")
        guest = self.finished(host, sys.executable, "-c", script, copy)
        self.assertEqual(list(guest.lines), ["second 303", "first 0"], guest.tail())

    def limited(self, host, program, limit, value, arrangement=lib.SHM):
        """A program's output and status, under a limit of its own."""
        argv, env = lib.guest_argv(host, arrangement, "alice", lib.places.program(program), [])
        command = argv.index("--") + 1
        argv[command:command] = ["prlimit", f"--{limit}={value}"]
        done = subprocess.run(argv, env=dict(env, WEIR_LOG="error"), capture_output=True, text=True, timeout=180)
        return done.returncode, done.stdout + done.stderr

    def test_limits_of_the_program(self):
        def run(host):
            self.assertEqual(self.limited(host, "e2e_minimal", "nofile", 20)[0], 0)
            self.assertEqual(self.limited(host, "e2e_minimal", "memlock", 0)[0], 0)
            status, said = self.limited(host, "e2e_minimal", "as", 256 << 20)
            self.assertEqual(status, 1, said)
            self.assertRegex(said, r"cu.Init\(0\) gave 2")
            self.assertRegex(said, "raise its limit of address space")
            status, said = self.limited(host, "drv_host_memory", "fsize", 0)
            self.assertEqual(status, 0, said)  # the host makes the files

        self.check(run)

    def test_few_descriptors_of_a_program_over_zmq(self):
        """libzmq aborts where some of its descriptors are missing."""
        def run(host):
            outcomes = {n: self.limited(host, "e2e_minimal", "nofile", n, lib.ZMQ) for n in range(6, 28)}
            self.assertLessEqual({status for status, _ in outcomes.values()}, {0, 1}, outcomes)
            self.assertEqual(outcomes[24][0], 0, outcomes[24])
            self.assertRegex(outcomes[10][1], "no file descriptor left")

        self.check(run)

    def test_a_host_with_a_limit_of_files(self):
        """A memory file that is too large for RLIMIT_FSIZE is refused; nobody dies of SIGXFSZ."""
        host = self.host({"alice": {"isolation": "group"}}, prefix=["prlimit", f"--fsize={8 << 20}"])
        argv, env = lib.guest_argv(host, lib.SHM, "alice", lib.places.program("e2e_minimal"), [])
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=180)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertFalse(re.search("worker died", host.process.err), host.process.tail())

    def test_one_that_is_stopped(self):
        def run(host):
            for program in ("e2e_churn", "e2e_steady"):
                guest = self.guest(host, program, *(["1"] if program == "e2e_churn" else []))
                guest.wait_line("^(going|round 0)$")
                os.kill(guest.pid, signal.SIGSTOP)
                self.finished(host, "e2e_minimal")
                self.finished(host, "e2e_minimal", tenant="bob")
                os.kill(guest.pid, signal.SIGKILL)

        self.check(run)

    def test_one_that_a_debugger_kills_in_a_call(self):
        """Attached to, it stops wherever it is: in a call, a copy, a wait."""
        def run(host):
            ptrace = ctypes.CDLL(None, use_errno=True).ptrace
            for seed in range(8):
                guest = self.guest(host, "e2e_churn", seed)
                guest.wait_line("^going$")
                if ptrace(PTRACE_ATTACH, guest.pid, None, None) != 0:
                    self.skipTest("ptrace is not allowed")
                os.kill(guest.pid, signal.SIGKILL)

        self.check(run)


if __name__ == "__main__":
    lib.main()
