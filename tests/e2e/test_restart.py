"""Programs go on while the supervisor and the gate end and begin again, in order or killed, at random moments.

By hand, for longer:  python3 tests/e2e/test_restart.py --times 200 [--seed N]   (WEIR_E2E_BUILD is the build tree)
"""
import contextlib
import os
import random
import re
import signal
import sys
import time
import unittest

import lib
from test_ipc import BYTES, Peer


def option(name, usual):
    """The number after an option of this file; unittest does not know it."""
    if name not in sys.argv:
        return usual
    at = sys.argv.index(name)
    number = int(sys.argv[at + 1])
    del sys.argv[at:at + 2]
    return number


TIMES = option("--times", 20)
SEED = option("--seed", int.from_bytes(os.urandom(4), "little"))
LINGER = ["linger_s = 30"]
# Of a status: what a restart of the host must not change.
TENANT = ("name", "weight", "quota_bytes", "used_bytes", "pinned_bytes", "sessions", "isolation", "drained")
SESSION = ("tenant", "pid", "used_bytes", "session")


class Restart(lib.Case):
    def leave(self, host, number=signal.SIGKILL):
        """The supervisor ends; its processes stay. Gives their pids."""
        pids = host.processes()
        host.process.signal(number)
        host.process.wait(10)
        return pids

    def looks(self, host):
        """What is to be the same before and after."""
        status = host.status()
        return {"tenants": [{k: t.get(k) for k in TENANT} for t in status["tenant"]],
                "sessions": sorted([s.get(k) for k in SESSION] for s in status["session"]),
                "kept_fds": [h["kept_fds"] for h in status["host"]],
                "workers": sorted(w["pid"] for w in status["worker"] if w["state"] in ("busy", ""))}

    def settled(self, host, guests):
        """With all sessions, and the same twice: a session's last messages are on their way for a moment."""
        looks = [None]

        def rests():
            looks.append(self.looks(host))
            return looks[-1] == looks[-2] and len(looks[-1]["sessions"]) == len(guests)

        lib.until(rests, 10, "the status has all sessions and stays as it is", 0.1)
        return looks[-1]

    def looks_again(self, host, before, said):
        """As before, once the workers have told a new supervisor what they serve."""
        with contextlib.suppress(lib.Stuck):
            lib.until(lambda: self.looks(host) == before, 10, "the status is as before", 0.1)
        self.assertEqual(self.looks(host), before, said)

    def goes_on(self, guest):
        """It works, and has checked its results until now."""
        self.steady_goes_on(guest, 20)

    def end(self, host, guests):
        for guest in guests:
            guest.close_stdin()
            self.ends(host, guest)
        host.wait_idle()
        self.assertEqual(host.stop(signal.SIGINT), 0)

    def test_programs_of_all_channels_go_on(self):
        print(f"seed {SEED}", flush=True)
        self.limit(60 + 3 * TIMES)
        chance = random.Random(SEED)
        remote = self.remote(("alice", "bob", "carol", "dave"))
        host = self.host({"alice": {}, "bob": {"weight": 300}, "carol": {"isolation": "tenant"}, "dave": {}},
                         remote=remote, host_lines=LINGER)
        guests = [self.guest(host, "e2e_steady", tenant=tenant, arrangement=arrangement)
                  for tenant, arrangement in (("alice", lib.SHM), ("bob", lib.SHM), ("carol", lib.SHM),
                                              ("carol", lib.ZMQ), ("alice", lib.ZMQ), ("dave", lib.TCP))]
        for guest in guests:
            self.goes_on(guest)
        before = self.settled(host, guests)
        for i in range(TIMES):
            short = []
            for _ in range(chance.randrange(3)):  # programs that come and go at the same moment
                short.append(self.guest(host, "drv_batches", tenant=chance.choice(("alice", "bob", "carol"))))
                time.sleep(chance.random() * 0.05)
            kind = chance.choice(("kill", "kill", "end", "gate", "both"))
            if kind in ("gate", "both"):
                os.kill(self.gate(host), signal.SIGKILL)
            if kind != "gate":
                time.sleep(chance.random() * 0.05)
                self.leave(host, signal.SIGTERM if kind == "end" else signal.SIGKILL)
                time.sleep(chance.random() * 0.2)
                host.start()
            for guest in short:
                self.ends(host, guest, said=f"beside {kind} number {i} of seed {SEED}")
            for guest in guests:
                self.goes_on(guest)
            self.looks_again(host, before, f"{kind} number {i} of seed {SEED}")
        self.end(host, guests)

    def gate(self, host):
        found = []

        def there():  # for a moment a new one is a copy of the keeper
            found[:] = filter(self.is_gate, host.processes())
            return found

        lib.until(there, 10, "there is a gate process")
        return found[0]

    @staticmethod
    def is_gate(pid):
        try:
            with open(f"/proc/{pid}/cmdline") as f:
                return f.read().split("\0")[1:2] == ["gate"]
        except OSError:
            return False

    def test_settings_and_drain_stay(self):
        host = self.host(host_lines=LINGER)
        for words in (("tenant", "set", "alice", "weight=400"), ("tenant", "add", "eve", "memory=1GiB"),
                      ("drain", "bob")):
            result = lib.run_weir(*words, "--run-dir", host.run_dir)
            self.assertEqual(result.returncode, 0, result.stderr)
        self.leave(host)
        host.start()
        self.assertEqual(host.tenant("alice")["weight"], 400)
        self.assertEqual(host.tenant("eve")["quota_bytes"], 1 << 30)
        self.assertEqual(host.tenant("bob")["drained"], 1)
        self.finished(host, "drv_batches", tenant="eve")
        self.assertEqual(lib.run_weir("undrain", "--run-dir", host.run_dir).returncode, 0)
        self.assertEqual(host.stop(signal.SIGINT), 0)

    def test_shares_hold(self):
        """The scheduler goes on, and knows its workers and tenants under their numbers."""
        host = self.host({"alice": {"weight": 300}, "bob": {"weight": 100}}, host_lines=[*LINGER, "", "[scheduler]", 'policy = "fair"'])
        for tenant in ("alice", "bob"):
            self.busy(host, tenant)
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL):
            time.sleep(0.5)
            self.leave(host, number)
            time.sleep(0.2)
            host.start()

        def served():
            return {t["name"]: t["service_sm_ns"] for t in host.status()["tenant"]}

        def shares():  # on a machine without a core for them, programs give less work than their share for a while
            before = served()
            time.sleep(0.5)
            after = served()
            alice, bob = (after[name] - before[name] for name in ("alice", "bob"))
            return bob > 0 and 2 < alice / bob < 4

        lib.until(shares, 30, "alice gets three times as much as bob")

    def test_what_programs_share_stays(self):
        """Memory that was published before, and is opened while there is no supervisor and after."""
        host = self.host(host_lines=LINGER)
        maker, taker = Peer(self, host), Peer(self, host)
        maker.do("alloc", BYTES, 11)
        handle = maker.do("give")
        self.leave(host)
        taker.process.say(f"open {handle} {BYTES}")  # its worker asks nobody yet
        time.sleep(0.2)
        host.start()
        self.assertFalse(taker.answer().startswith("error"))
        taker.has(11)
        self.leave(host)
        host.start()
        taker.do("fill", 12)
        maker.has(12)
        taker.do("close")
        for peer in (maker, taker):
            peer.process.close_stdin()
            self.assertEqual(peer.process.wait(), 0, peer.process.tail())
        host.wait_idle()  # with nothing kept
        self.assertEqual(host.stop(signal.SIGINT), 0)

    def test_other_settings_hold_after_a_restart(self):
        host = self.host({"alice": {}, "bob": {}}, host_lines=LINGER)
        guest = self.guest(host, "e2e_steady")
        self.goes_on(guest)
        self.leave(host, signal.SIGTERM)
        host.write_config({"alice": {"isolation": "tenant", "weight": 5}, "carol": {}})
        host.start()
        self.assertEqual([(t["name"], t["isolation"], t["weight"]) for t in host.status()["tenant"]],
                         [("alice", "tenant", 5), ("carol", "program", 100)])
        self.finished(host, "drv_batches", tenant="alice")
        self.finished(host, "drv_batches", tenant="carol")
        self.end(host, [guest])

    def older(self, releases):
        """A program of a host whose workers are that many versions old, and this version's host after it."""
        if lib.DRIVER != "softgpu":
            raise unittest.SkipTest("the older host runs on softgpu")
        host = self.host(start=False, host_lines=LINGER, env={"WEIR_TEST_LINK_VERSION": str(self.link_version() - releases),
                                                              "WEIR_TEST_SOFTGPU": lib.places.softgpu})
        host.program = lib.places.program("e2e_older_host")
        host.start()
        guest = self.guest(host, "e2e_steady")
        self.goes_on(guest)
        self.leave(host)
        host.program = lib.places.weir
        host.start()
        return host, guest

    def link_version(self):
        with open(os.path.join(lib.places.source, "host_backend/config/link.h")) as f:
            return int(re.search(r"define WEIR_LINK_VERSION (\d+)u", f.read())[1])

    def test_workers_of_the_release_before_serve_on(self):
        host, guest = self.older(1)
        self.goes_on(guest)
        self.finished(host, "drv_batches", tenant="bob")
        self.end(host, [guest])

    def test_workers_of_an_older_release_end(self):
        host, guest = self.older(2)
        self.assertNotEqual(guest.wait(20), 0)
        self.assertIn("a worker of the last host is not understood", host.process.err)
        self.finished(host, "drv_batches")
        self.assertEqual(host.stop(signal.SIGINT), 0)

    def test_a_program_that_comes_in_the_gap_waits(self):
        host = self.host(host_lines=LINGER)
        self.leave(host)
        guest = self.guest(host, "drv_batches")
        time.sleep(0.3)
        self.assertTrue(guest.alive(), guest.tail())
        host.start()
        self.ends(host, guest)
        self.assertEqual(host.stop(signal.SIGINT), 0)

    def test_without_a_next_host_all_ends_in_order(self):
        host = self.host(host_lines=["linger_s = 1"])
        guest = self.guest(host, "e2e_steady")
        self.goes_on(guest)
        pids = self.leave(host, signal.SIGTERM)
        lib.until(lambda: not any(lib.pid_is_alive(p) for p in pids), 20, "the keeper and all its processes end")
        self.assertNotEqual(guest.wait(10), 0)
        self.assertEqual([n for n in os.listdir(host.run_dir) if n.endswith(".sock")], [])

    def test_the_keeper_takes_all_along(self):
        host = self.host(host_lines=LINGER)
        guest = self.guest(host, "e2e_steady")
        self.goes_on(guest)
        pids = host.processes()
        os.kill(pids[0], signal.SIGKILL)
        lib.until(lambda: not any(lib.pid_is_alive(p) for p in pids[1:]), 10, "the processes end with the keeper")
        self.assertNotEqual(host.process.wait(10), 0)


if __name__ == "__main__":
    lib.main()
