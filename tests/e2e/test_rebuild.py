#!/usr/bin/env python3
"""Sessions that go on in another worker: after their records, and when a neighbour's fault has ended their context.

WEIR_E2E_FULL=1: all programs of tests/cuda, moved after each record; those that need nvcc, too, where it is.
"""
import os
import random
import re
import signal
import time
import unittest

import lib
import test_table
from test_programs_mps import UnderMps

MIB = 1 << 20
BYTES = 16 * MIB
SEED = int(os.environ.get("WEIR_E2E_REBUILD_SEED", "0")) or int(time.time())
FULL = os.environ.get("WEIR_E2E_FULL") == "1"
KINDS = ("registered", "shared", "host", "array1", "array2", "array3", "layers", "cube", "mipmap", "captured",
         "texture", "linear", "surface", "linked")  # of e2e_kinds
# Programs that are never moved, and why; all others are, as long as they have nothing of what stays.
STAY = {"drv_init_errors": "it sends no record that could be the last in a worker"}


class EachRecord(lib.Case):
    @unittest.skipUnless(lib.DRIVER == "softgpu", "WEIR_SOFTGPU_MOVE is softgpu's")
    def test_after_records(self):
        """Programs of tests/cuda that go to another worker all the time."""
        self.limit(3000 if FULL else 120)
        chosen = random.Random(SEED)
        paths = [lib.places.program(n) for n in lib.places.cuda_programs("drv_")]
        if FULL:
            paths += self.of_nvcc()
        else:
            paths = chosen.sample(paths, 10)
        every = 1 if FULL else chosen.choice((1, 2, 3))
        print(f"seed {SEED}, after each {every}: {' '.join(map(os.path.basename, paths))}")
        plain = self.host({"alice": {}})
        host = self.host({"alice": {}}, env={"WEIR_SOFTGPU_MOVE": str(every)})
        for path in paths:
            name, before = os.path.basename(path), host.tenant("alice")["moved_sessions"]
            with self.subTest(name):
                self.assertEqual(self.result(path, host), self.result(path, plain))
                moved = host.tenant("alice")["moved_sessions"] - before
                if FULL:
                    print(f"{name}: moved {moved} times", flush=True)
                if name in STAY:
                    self.assertEqual(moved, 0, STAY[name])
                elif every == 1:
                    self.assertGreater(moved, 0)
        for each in (host, plain):
            self.nothing_is_left(each)

    @unittest.skipUnless(lib.DRIVER == "softgpu", "WEIR_SOFTGPU_MOVE is softgpu's")
    def test_other_addresses(self):
        """A program whose variables cannot lie where they lay goes on in its worker, and nothing is left in the other one."""
        plain = self.host({"alice": {}})
        host = self.host({"alice": {}}, env={"WEIR_SOFTGPU_MOVE": "1"})
        program = lib.places.program("drv_variables_asked")
        self.assertEqual(self.result(program, host, "unload"), self.result(program, plain, "unload"))
        self.assertRegex(host.process.err, 'has another number here .* name="')
        self.assertRegex(host.process.err, 'session: not rebuilt session=')
        self.assertRegex(host.process.err, 'session: goes on where it was')
        self.assertGreater(host.tenant("alice")["moved_sessions"], 0)
        self.nothing_is_left(host)

    def nothing_is_left(self, host):
        host.wait_idle(20)
        self.assertEqual([host.tenant("alice")[k] for k in ("sessions", "used_bytes", "pinned_bytes")], [0, 0, 0])

    def of_nvcc(self):
        try:
            folder = test_table.Table.build_with_nvcc(self)
        except unittest.SkipTest as why:
            print(f"without the programs that need nvcc: {why}")
            return []
        with open(os.path.join(folder, "programs.txt")) as f:
            rows = [line.split() for line in f]
        return [os.path.join(folder, name) for name, *flags in rows if "faulting" not in flags]

    def result(self, path, host, *args):
        argv, env = lib.guest_argv(host, lib.SHM, "alice", path, list(args))
        done = lib.Process(argv, env=env, name=path)
        status = done.wait(900)
        return status, re.sub(r"0x[0-9a-f]+|[0-9.]+ ms\b", "a number", done.out)


class NeighboursFault(UnderMps):
    """Six programs at rest, three with graphs, one that stays, one at work; then a ninth has a fault."""

    REAL = True

    def rebuilt(self, host, guest):
        return next(s for s in host.status()["session"] if s["pid"] == guest.pid)["rebuild"]

    def holdings(self, host):
        """What must be the same before and after, by tenant."""
        rows = host.status()
        sessions = sorted((s["tenant"], s["id"], s["pid"], s["used_bytes"]) for s in rows["session"])
        tenants = [[t[k] for k in ("name", "sessions", "used_bytes", "pinned_bytes", "contexts")] for t in rows["tenant"]]
        return sessions, tenants

    def first_round(self, host, guest, rebuilt="^portable"):
        """It does a round, and rests: for 50 ms, or 20 times as long as the last copy of its variables took."""
        guest.wait_line("^ready$")
        guest.say("")
        guest.wait_line("^round 0$")
        time.sleep(0.5)  # what the status says is of its last rest, which may have been before the round
        lib.until(lambda: re.search(rebuilt, self.rebuilt(host, guest)), 10, f"it can be moved, not: {self.rebuilt(host, guest)}")

    def descriptors(self, host):
        return len(os.listdir(f"/proc/{host.supervisor_pid()}/fd"))

    def test_who_rests_goes_on(self):
        names = [f"rests{i}" for i in range(6)]
        host = self.under_mps({name: {"isolation": "program"} for name in (*names, "managed", "busy", "alice")},
                              lines=["quarantine_s = 30"])
        guests = [self.guest(host, "e2e_away", BYTES, 0, *["plain"] * (i % 2), tenant=name) for i, name in enumerate(names)]
        managed = self.guest(host, "e2e_ended", "take", "managed", MIB, tenant="managed")
        managed.wait_line("^held$")
        for guest in guests:
            self.first_round(host, guest)
        busy = self.steady(host, tenant="busy")
        self.in_reserve(host)
        lib.until(lambda: self.rebuilt(host, managed) == "stays: managed memory", 10, "managed memory stays")
        spares = self.spares(host)
        mine = lambda: [[row for row in rows if row[0] in names] for rows in self.holdings(host)]
        before, descriptors = mine(), self.descriptors(host)
        begin = time.monotonic()
        self.faulted(host, tenant="alice")
        for guest in guests:
            guest.say("")
        for guest in guests:
            guest.wait_line("^round 1$", 20)
        print(f"all go on {time.monotonic() - begin:.2f} s after the fault's program was started")
        for other in (managed, busy):
            other.close_stdin()
            status = other.wait(20)
        self.assertNotEqual(status, 0, "the context of the one at work has died")
        self.assertIn('program="e2e_ended" why="managed memory"', host.process.err)
        self.assertIn('program="e2e_steady" why="it has work under way"', host.process.err)
        lib.until(lambda: mine() == before, 10, f"{mine()} as {before}")
        lib.until(lambda: host.tenant("alice")["quarantined"] == 1, 10, "the guilty one is named")
        self.assertEqual([host.tenant(name)["moved_sessions"] for name in names], 6 * [1])
        self.assertEqual([host.tenant(name)["quarantined"] for name in (*names, "busy")], 7 * [0])
        told = host.weir("events", "--json", "--run-dir", host.run_dir).stdout
        self.assertEqual(told.count('"kind":"session-moved"'), 6, told)
        for guest in guests:
            guest.say("")
            guest.wait_line("^round 2$", 20)
        lib.until(lambda: spares.isdisjoint(self.pids(host)), 10, "all workers of the first domain have left")
        lib.until(lambda: self.descriptors(host) <= descriptors, 10, "no descriptor is left behind")
        for guest in guests:
            guest.close_stdin()
            self.assertEqual(guest.wait(20), 0, guest.tail())
        host.wait_idle(20)
        self.assertEqual([host.tenant(name)["used_bytes"] for name in names], 6 * [0])

    def test_each_kind(self):
        """A program for each kind of thing that another worker makes again: after a neighbour's fault, and by weir move."""
        host = self.under_mps({name: {"isolation": "program"} for name in (*KINDS, "alice")}, lines=["quarantine_s = 30"])
        guests = {kind: self.guest(host, "e2e_kinds", kind, tenant=kind) for kind in KINDS}
        for guest in guests.values():
            self.first_round(host, guest)
        mine = lambda: [[row[:4] for row in rows if row[0] in KINDS] for rows in self.holdings(host)]
        before = mine()

        def goes_on(r, moves):
            for guest in guests.values():
                guest.say("")
            for kind, guest in guests.items():
                with self.subTest(kind):
                    guest.wait_line(f"^round {r}$", 20)
            lib.until(lambda: mine() == before, 10, f"{mine()} as {before}")
            self.assertEqual({kind: host.tenant(kind)["moved_sessions"] for kind in KINDS}, {kind: moves for kind in KINDS})

        self.faulted(host, tenant="alice")
        goes_on(1, 1)
        goes_on(2, 1)
        for kind in KINDS:
            done = lib.run_weir("move", "--run-dir", host.run_dir, kind)
            self.assertEqual(done.returncode, 0, f"{kind}: {done.stdout}{done.stderr}{host.process.tail()}")
        goes_on(3, 2)
        goes_on(4, 2)
        for guest in guests.values():
            guest.close_stdin()
            self.assertEqual(guest.wait(20), 0, guest.tail())
        host.wait_idle(20)
        self.assertEqual([host.tenant(kind)[k] for kind in KINDS for k in ("used_bytes", "pinned_bytes")], 2 * len(KINDS) * [0])

    def test_without_the_supervisor(self):
        """It is killed when it has got the first of three sessions. The next one finds workers for all."""
        names = [f"rests{i}" for i in range(3)]
        host = self.under_mps({name: {"isolation": "program"} for name in (*names, "alice")},
                              lines=["quarantine_s = 30", "linger_s = 30"])
        guests = [self.guest(host, "e2e_away", BYTES, 0, "plain", tenant=name) for name in names]
        for guest in guests:
            self.first_round(host, guest)
        fault = self.guest(host, "e2e_fault", "address", tenant="alice")
        lib.until(lambda: any(host.tenant(name)["moved_sessions"] for name in names), 20, "a session has left", 0.001)
        host.process.signal(signal.SIGKILL)
        host.process.wait(10)
        host.start()
        self.assertRegex(host.process.err, "sessions of the last host wait for workers sessions=[123]")
        for guest in guests:
            guest.say("")
        for guest in guests:
            guest.wait_line("^round 1$", 20)
            guest.close_stdin()
            self.assertEqual(guest.wait(20), 0, guest.tail())
        fault.close_stdin()
        self.ends(host, fault, said="the one with the fault")
        host.wait_idle(20)
        self.assertEqual([host.tenant(name)["used_bytes"] for name in names], 3 * [0])


if __name__ == "__main__":
    lib.main()
