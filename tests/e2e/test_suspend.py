#!/usr/bin/env python3
"""Suspended programs: their memory goes, comes back, and holds what it held; others get it meanwhile.

WEIR_E2E_FULL=1: all programs of tests/cuda before each of their records.
"""
import os
import random
import re
import sys
import time
import unittest

import lib

MIB = 1 << 20
BYTES = 48 * MIB
MONITOR = "import ctypes; print(ctypes.CDLL('libnvidia-ml.so.1').nvmlInit_v2(), flush=True); __import__('sys').stdin.read()"
SEED = int(os.environ.get("WEIR_E2E_SUSPEND_SEED", "0")) or int(time.time())


class Suspend(lib.Case):
    def begin(self, host, tenant="alice", **kwargs):
        guest = self.guest(host, "e2e_away", BYTES, tenant=tenant, **kwargs)
        guest.wait_line("^ready$")
        return guest

    def round(self, guest, n, limit_s=20):
        guest.say("")
        guest.wait_line(f"^round {n}$", limit_s)

    def weir(self, host, *args, expect=0):
        done = host.weir(args[0], "--run-dir", host.run_dir, *args[1:])
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def session(self, host, tenant="alice"):
        return next(s for s in host.status()["session"] if s["tenant"] == tenant and s["state"] != "monitor")

    def state(self, host, want, tenant="alice", limit_s=15):
        return lib.until(lambda: (s := self.session(host, tenant))["state"] == want and s, limit_s, f"state '{want}'")

    def over(self, host, guest):
        guest.close_stdin()
        self.assertEqual(guest.wait(20), 0, guest.tail())
        host.wait_idle()

    def test_by_hand(self):
        host = self.host({"alice": {}, "bob": {}}, remote=self.remote(("alice", "bob")))
        monitor = self.guest(host, sys.executable, "-c", MONITOR, tenant="alice")
        monitor.wait_line("^0$")
        self.assertIn("monitor", [s["state"] for s in host.status()["session"]])
        self.assertIn("no such program", self.weir(host, "suspend", "alice", expect=1), "it has nothing to suspend")
        for arrangement in (lib.SHM, lib.ZMQ, lib.TCP):
            guest = self.begin(host, arrangement=arrangement)
            self.round(guest, 0)
            before = self.session(host)
            said = self.weir(host, "suspend", "alice")
            self.assertRegex(said, rf"session {before['id']} .*: suspended, \d+ of \d+ MiB")
            row = self.session(host)
            self.assertEqual(row["state"], "suspended")
            self.assertGreaterEqual(row["away_bytes"], BYTES)
            self.assertEqual(row["used_bytes"], before["used_bytes"])
            guest.say("")
            time.sleep(0.3)
            self.assertNotIn("round 1", guest.out)
            self.weir(host, "resume", "alice", "--session", str(row["id"]))
            guest.wait_line("^round 1$")
            self.assertEqual(self.session(host)["away_bytes"], 0)
            self.round(guest, 2)
            guest.close_stdin()
            self.assertEqual(guest.wait(20), 0, guest.tail())
        self.over(host, monitor)
        self.assertIn("no such program", self.weir(host, "suspend", "bob", expect=1))
        self.assertIn("no tenant 'carol'", self.weir(host, "suspend", "carol", expect=1))
        self.assertIn("no tenant 'carol'", self.weir(host, "resume", "carol", expect=1))

    def test_a_program_that_works(self):
        """It is stopped between two of its calls, again and again, and notices nothing."""
        host = self.host({"alice": {}})
        guest = self.guest(host, "e2e_away", BYTES, 20)
        guest.wait_line("^ready$")
        for _ in range(4):
            if not guest.alive():
                break
            self.weir(host, "suspend", "alice")
            self.state(host, "suspended")
            self.weir(host, "resume", "alice")
        self.assertEqual(guest.wait(40), 0, guest.tail())
        self.assertIn("round 19", guest.out)
        host.wait_idle()

    def test_its_end_while_it_is_away(self):
        host = self.host({"alice": {}})
        for way in ("kill", "hold", "end"):
            guest = self.begin(host)
            self.weir(host, "suspend", "alice")
            if way == "hold":
                guest.say("")
                time.sleep(0.2)
            if way == "end":  # its last calls wait, too
                guest.close_stdin()
                self.weir(host, "resume", "alice")
                self.assertEqual(guest.wait(20), 0, guest.tail())
            else:
                guest.kill()
            host.wait_idle(20)

    def test_idle(self):
        host = self.host({"alice": {"idle_s": 1}})
        guest = self.begin(host)
        for n in range(2):
            self.round(guest, n)
            self.assertEqual(self.session(host)["state"], "")
            self.state(host, "away")
        self.round(guest, 2)
        self.over(host, guest)

    def test_too_little_host_memory(self):
        """Then it stays where it is, and the log says why."""
        host = self.host({"alice": {"pinned": "8MiB", "idle_s": 1}})
        guest = self.begin(host)
        host.process.wait_log("not suspended .*may pin no more host memory")
        self.assertEqual(self.session(host)["away_bytes"], 0)
        self.round(guest, 0)
        self.over(host, guest)

    def together(self, mib, tenants):
        path = os.path.join(self.folder(), "together")
        with open(path, "wb") as file:
            file.truncate(1 << 16)
        os.chmod(path, 0o666)
        return self.host(tenants, env={"WEIR_SOFTGPU_TOGETHER": path, "WEIR_SOFTGPU_MEMORY": str(mib * MIB)},
                         host_lines=["spare_workers = 1"])

    @unittest.skipUnless(lib.DRIVER == "softgpu" and os.geteuid() == 0, "a GPU's memory is another; managed memory moves for root")
    def test_managed_memory_makes_room_first(self):
        """A program that rests gives its managed memory, piece by piece, before the rest of it is suspended."""
        host = self.together(240, {"alice": {}, "bob": {}})
        rests = self.guest(host, "e2e_managed", "rests")
        rests.wait_line("^ready$")
        self.round(rests, 0)
        others, before = [], set()
        while self.session(host, "alice")["away_bytes"] == 0:
            before.add(host.tenant("alice")["managed_host_bytes"] // MIB)
            time.sleep(0.5)  # who works gives nothing
            others.append(self.begin(host, "bob"))
            self.round(others[-1], 0, 30)
            self.assertLess(len(others), 8, host.process.tail())
        self.assertTrue(before & {32, 64, 96}, before)
        self.assertEqual(host.tenant("alice")["managed_host_bytes"], 96 * MIB, host.process.tail())
        self.assertIn("memory has left the device for others", host.process.tail())
        for n in range(1, 4):
            self.round(rests, n, 30)
        for guest in others:
            self.round(guest, 1, 30)
        for guest in (rests, *others):
            self.over(host, guest) if guest is others[-1] else guest.close_stdin()
            self.assertEqual(guest.wait(30), 0, guest.tail())

    @unittest.skipUnless(lib.DRIVER == "softgpu", "a GPU's memory is another")
    def test_room_on_demand(self):
        """Six programs with three times the device's memory: each works in turn, and finds what it left."""
        self.limit(150)
        host = self.together(180, {"alice": {}, "bob": {}})
        rng = random.Random(SEED)
        print(f"seed {SEED}")
        guests = [self.begin(host, ("alice", "bob")[i % 2]) for i in range(6)]
        rounds = [0] * len(guests)
        for _ in range(24):
            i = rng.randrange(len(guests))
            time.sleep(rng.choice((0, 0.1)))
            self.round(guests[i], rounds[i], 30)
            rounds[i] += 1
        self.assertGreater(sum(s["away_bytes"] for s in host.status()["session"]), 2 * BYTES)
        victim = rng.randrange(len(guests))
        guests[victim].kill()
        for i, guest in enumerate(guests):
            if i != victim:
                self.round(guest, rounds[i], 30)
                guest.close_stdin()
                self.assertEqual(guest.wait(30), 0, guest.tail())
        host.wait_idle(20)

    @unittest.skipUnless(lib.DRIVER == "softgpu", "a GPU's memory is another")
    def test_what_stays(self):
        """memory_min is kept from others, but not from weir suspend."""
        host = self.together(100, {"alice": {"memory_min": "1GiB"}, "bob": {}})
        guest = self.begin(host)
        other = self.guest(host, "e2e_quota", "fails", 80 * MIB, tenant="bob")
        self.assertEqual(other.wait(40), 0, other.tail())
        self.assertEqual(self.session(host)["away_bytes"], 0)
        self.weir(host, "suspend", "alice")
        self.finished(host, "e2e_away", 60 * MIB, 1, tenant="bob")
        self.weir(host, "resume", "alice")
        self.round(guest, 0)
        self.over(host, guest)

    @unittest.skipUnless(lib.DRIVER == "softgpu", "WEIR_SOFTGPU_AWAY is softgpu's")
    def test_before_each_record(self):
        """Programs of tests/cuda whose memory goes and comes back before each of their records."""
        full = os.environ.get("WEIR_E2E_FULL")
        self.limit(1800 if full else 120)
        plain = self.host({"alice": {}})
        host = self.host({"alice": {}}, env={"WEIR_SOFTGPU_AWAY": "1"})
        names = lib.places.cuda_programs("drv_")
        if not full:
            names = random.Random(SEED).sample([n for n in names if n not in SLOW], 12)
            print(f"seed {SEED}: {' '.join(names)}")
        for name in names:
            self.assertEqual(self.result(name, host), self.result(name, plain), name)
        host.wait_idle(20)

    def result(self, name, host):
        argv, env = lib.guest_argv(host, lib.SHM, "alice", lib.places.program(name), [])
        done = lib.Process(argv, env=env, name=name)
        status = done.wait(900)
        return status, re.sub(r"0x[0-9a-f]+", "0x", done.out)


# They need over 10 s: thousands of records.
SLOW = ("drv_capture_threads", "drv_collective", "drv_graph_functions", "drv_streams_many", "drv_vmm_grow")

if __name__ == "__main__":
    lib.main()
