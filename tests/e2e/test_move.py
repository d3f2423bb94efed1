#!/usr/bin/env python3
"""Programs that go on in another worker while their own lives: weir move, what goes wrong on the way, and mps_alone.

test_rebuild.py has what becomes of a session's parts on the way, and sessions that leave a dying context.
"""
import os
import signal
import time
import unittest

import lib
from test_programs_mps import UnderMps

MOVES = 10


class Moves(UnderMps):
    def weir_move(self, host, *args, expect=0):
        done = lib.run_weir("move", "--run-dir", host.run_dir, *args)
        self.assertEqual(done.returncode, expect, f"{args}: {done.stdout}{done.stderr}{host.process.tail()}")
        return done.stdout + done.stderr

    def session(self, host, tenant):
        rows = [s for s in host.status()["session"] if s["tenant"] == tenant and s["state"] != "monitor"]
        self.assertEqual(len(rows), 1, rows)
        return rows[0]

    def holdings(self, host, tenant):
        """What must be the same before and after, of a program that rests."""
        return [host.tenant(tenant)[k] for k in ("sessions", "used_bytes", "pinned_bytes")]


class Command(Moves):
    def test_a_program_at_work_is_moved(self):
        """It and its neighbour see nothing but a call that takes longer."""
        host = self.own()
        moved, neighbour = (self.steady(host, tenant=t) for t in ("alice", "bob"))
        for i in range(MOVES):
            before = self.session(host, "alice")
            self.assertRegex(self.weir_move(host, "alice"), rf"^session {before['id']} \(e2e_steady, pid {moved.pid}\): moved\n$")
            after = self.session(host, "alice")
            self.assertNotEqual(after["worker"], before["worker"])
            self.assertEqual([after[k] for k in ("id", "pid", "program")], [before[k] for k in ("id", "pid", "program")])
            self.steady_goes_on(moved)
        self.assertEqual(host.tenant("alice")["moved_sessions"], MOVES)
        self.assertEqual(host.tenant("bob")["moved_sessions"], 0)
        for guest in (moved, neighbour):
            self.steady_undisturbed(guest)
        self.assertIn("no such program", self.weir_move(host, "alice", expect=1))

    def test_nothing_is_charged_twice(self):
        """A tenant that has all that it may have, and one session at most."""
        mib = 64
        host = self.own({"alice": {"isolation": "program", "memory": f"{mib} MiB", "sessions": 1}})
        guest = self.guest(host, "e2e_quota", "hold", mib << 20, tenant="alice")
        guest.wait_line("^held$")
        before = self.holdings(host, "alice")
        self.assertEqual(before[1], mib << 20)
        for i in range(3):
            self.assertIn(": moved", self.weir_move(host, "alice"))
            lib.until(lambda: self.holdings(host, "alice") == before, 10, "nothing is held twice")
        guest.close_stdin()
        self.ends(host, guest)
        host.wait_idle(20)
        self.assertEqual(self.holdings(host, "alice")[1], 0)

    def test_what_stays_says_so(self):
        host = self.own()
        managed = self.guest(host, "e2e_ended", "take", "managed", 1 << 20, tenant="alice")
        managed.wait_line("^held$")
        worker = self.session(host, "alice")["worker"]
        self.assertRegex(self.weir_move(host, "alice", expect=1), r"stays: managed memory|not moved, the host's log says why")
        host.process.wait_log('asked to move, but stays .* why="managed memory"')
        self.assertEqual(self.session(host, "alice")["worker"], worker)
        managed.close_stdin()
        self.ends(host, managed)


@unittest.skipUnless(lib.DRIVER == "softgpu", "WEIR_SOFTGPU_IMPORT_MS is softgpu's")
class Failures(Moves):
    """The other worker takes its time to make the session again."""

    def begin(self, import_ms, lines=()):
        """A program at work, and a worker that could have it."""
        host = self.own(lines=["spare_workers = 1", *lines], env={"WEIR_SOFTGPU_IMPORT_MS": str(import_ms)})
        return host, self.steady(host, tenant="alice")

    def under_way(self, host):
        """It is in its box. @return weir move, which waits; its worker; the other one"""
        lib.until(lambda: self.workers(host, state="spare"), 20, "a spare is ready")
        row, left = self.session(host, "alice"), host.process.err.count("session: left")
        argv = [lib.places.weir, "move", "--run-dir", host.run_dir, "--session", str(row["id"]), "alice"]
        asking = lib.Process(argv, name="weir move")
        self.addCleanup(asking.kill)
        lib.until(lambda: host.process.err.count("session: left") > left, 10, "the session is in its box", 0.001)
        other = lib.until(lambda: self.pids(host, "alice", "busy"), 10, "another worker has got the box")
        return asking, row["worker"], other.pop()

    def test_the_other_worker_dies(self):
        host, guest = self.begin(1500)
        for i in range(3):
            asking, worker, other = self.under_way(host)
            os.kill(other, signal.SIGKILL)
            self.assertEqual(asking.wait(20), 1, asking.tail())
            lib.until(lambda: host.process.err.count("goes on where it was") == i + 1, 10, "it goes on where it was")
            self.steady_goes_on(guest)
            self.assertEqual(self.session(host, "alice")["worker"], worker)
        self.assertEqual(host.tenant("alice")["moved_sessions"], 0)
        self.assertIn(": moved", self.weir_move(host, "alice"))
        self.steady_undisturbed(guest)

    def test_the_supervisor_dies(self):
        """The session arrives, or the other worker ends, while there is none."""
        host, guest = self.begin(600, ["linger_s = 30"])
        for i in range(4):
            asking, worker, other = self.under_way(host)
            host.process.signal(signal.SIGKILL)
            host.process.wait(10)
            if i % 2 == 1:
                os.kill(other, signal.SIGKILL)
            time.sleep(0.8 * (i // 2))  # the session has arrived before there is another one, or not
            host.start()
            asking.kill()
            self.steady_goes_on(guest)
            lib.until(lambda: len(self.workers(host, "alice", "busy")) == 1, 20, "one worker has it")
            self.assertEqual(self.session(host, "alice")["worker"], worker if i % 2 == 1 else other)
        self.assertIn(": moved", self.weir_move(host, "alice"))
        host.process.signal(signal.SIGKILL)
        host.process.wait(10)
        host.start()
        self.assertEqual(host.tenant("alice")["moved_sessions"], 1, "those that arrive while there is none count for nobody")
        self.steady_undisturbed(guest)
        host.wait_idle(20)
        self.assertEqual(host.tenant("alice")["used_bytes"], 0)

    def test_the_program_dies(self):
        host, guest = self.begin(600)
        asking, worker, other = self.under_way(host)
        guest.signal(signal.SIGKILL)
        asking.wait(20)
        host.wait_idle(20)
        self.assertEqual(self.holdings(host, "alice"), [0, 0, 0])
        self.finished(host, "e2e_minimal", tenant="alice")


class Alone(Moves):
    def test_a_program_that_is_alone_is_outside_mps(self):
        """It goes under it when another one works, and leaves it when that has ended."""
        host = self.under_mps(lines=["mps_alone = false"])
        outside = lambda tenant: self.folder_of(self.session(host, tenant)["worker"]) == "/nonexistent"
        first = self.steady(host, tenant="alice")
        self.assertTrue(outside("alice"))
        second = self.steady(host, tenant="bob")
        self.assertFalse(outside("bob"))
        lib.until(lambda: not outside("alice"), 20, "the first goes under MPS")
        self.steady_undisturbed(first)
        begin = time.monotonic()
        lib.until(lambda: outside("bob"), 30, "the one that is left leaves MPS")
        print(f"it left MPS after {time.monotonic() - begin:.1f} s")
        self.assertEqual([host.tenant(t)["moved_sessions"] for t in ("alice", "bob")], [1, 1])
        self.steady_undisturbed(second)

    def test_who_rests_leaves_others_alone(self):
        host = self.under_mps(lines=["mps_alone = false"])
        outside = lambda tenant: self.folder_of(self.session(host, tenant)["worker"]) == "/nonexistent"
        notebook = self.guest(host, "e2e_quota", "hold", 4096, tenant="alice")
        notebook.wait_line("^held$")
        time.sleep(6)  # it has done nothing for longer than ALONE_NS of moves.c
        busy = self.steady(host, tenant="bob")
        self.assertTrue(outside("bob"))
        notebook.close_stdin()
        self.ends(host, notebook)
        self.steady_undisturbed(busy)
        self.assertEqual(host.tenant("bob")["moved_sessions"], 0)


if __name__ == "__main__":
    lib.main()
