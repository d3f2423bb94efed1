#!/usr/bin/env python3
"""weir events: what happened, to a host as it runs, for who asks and for who follows."""
import contextlib
import json
import os
import pathlib
import re
import socket

import lib

MIB = 1 << 20


class Events(lib.Case):
    isolation = "group"

    def events(self, host, **wanted):
        result = lib.run_weir("events", "--json", "--run-dir", host.run_dir)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        rows = [json.loads(line) for line in result.stdout.splitlines()]
        return [r for r in rows if all(r[key] == value for key, value in wanted.items())]

    def event(self, host, **wanted):
        """The only one of a kind, once it is there."""
        found = lib.until(lambda: self.events(host, **wanted), 5, f"event {wanted}", 0.05)
        self.assertEqual(len(found), 1, found)
        return found[0]

    def test_a_tenant_from_its_beginning_to_its_end(self):
        host = self.host({"alice": {"memory": "64MiB", "sessions": 1}, "bob": {}})
        self.assertEqual(self.event(host, kind="tenant-added", tenant="alice")["why"], "by weir.toml")
        worker = self.event(host, kind="worker-started")
        self.assertEqual(worker["worker"], host.worker_pid())
        guest = self.guest(host, "e2e_quota", "hold", 16 * MIB)
        guest.wait_line("^held$")
        began = self.event(host, kind="session-began")
        self.assertEqual((began["tenant"], began["program"], began["pid"], began["why"]),
                         ("alice", "e2e_quota", guest.pid, "shm"))
        # A second session is turned away.
        self.assertNotEqual(self.guest(host, "e2e_minimal").wait(), 0)
        refused = self.event(host, kind="session-refused")
        self.assertEqual((refused["tenant"], refused["program"], refused["why"]),
                         ("alice", "e2e_minimal", "too many sessions: tenant 'alice' may have 1 at a time"))
        guest.close_stdin()
        self.assertEqual(guest.wait(), 0, guest.tail())
        self.assertEqual(self.event(host, kind="session-ended")["session"], began["session"])
        host.wait_idle()
        # More memory than the quota.
        self.finished(host, "e2e_quota", "fails", 80 * MIB)
        refused = self.event(host, kind="allocation-refused")
        self.assertEqual((refused["tenant"], refused["program"], refused["bytes"], refused["n"]),
                         ("alice", "e2e_quota", 80 * MIB, 1))
        self.assertIn("quota", refused["why"])
        self.assertEqual(refused["call"], "cuMemAlloc")
        self.assertEqual(host.tenant("alice")["refused_device"], 1)
        self.assertEqual((host.tenant("alice")["refused_sessions"], host.tenant("bob")["refused_device"]),
                         (1, 0))
        # An operator's hands.
        for argv in (("set", "bob", "weight=7"), ("remove", "bob"), ("add", "carol")):
            result = lib.run_weir("tenant", *argv, "--run-dir", host.run_dir)
            self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(self.event(host, kind="tenant-changed")["why"], "weight=7 by weir tenant")
        self.assertEqual(self.event(host, kind="tenant-removed")["tenant"], "bob")
        self.assertEqual(self.event(host, kind="tenant-added", tenant="carol")["why"], "by weir tenant")
        rows = self.events(host)
        self.assertEqual([r["number"] for r in rows], list(range(1, len(rows) + 1)))
        for row in rows:
            self.assertRegex(row["time"], r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
        text = lib.run_weir("events", "--tenant", "alice", "--run-dir", host.run_dir).stdout
        self.assertRegex(text, r'allocation-refused +tenant=alice program="e2e_quota" pid=\d+ worker=\d+ '
                         r'call=\w+ size="80 MiB": over the tenant\'s quota\n')
        self.assertNotIn("carol", text)

    def numbers(self, host, *args):
        result = lib.run_weir("events", "--json", "--run-dir", host.run_dir, *args)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return [json.loads(line)["number"] for line in result.stdout.splitlines()]

    def test_a_part_of_them(self):
        host = self.host({"alice": {}, "bob": {}})
        rows = self.events(host)
        all_numbers = [r["number"] for r in rows]
        bobs = [r["number"] for r in rows if r["tenant"] == "bob"]
        self.assertEqual(self.numbers(host, "--tail", "2"), all_numbers[-2:])
        self.assertEqual(self.numbers(host, "--tail", "0"), [])
        self.assertEqual(self.numbers(host, "--tail", "1024"), all_numbers)
        self.assertEqual(self.numbers(host, "--tail", "1", "--tenant", "bob"), bobs[-1:])
        self.assertEqual(self.numbers(host, "--since", "1h"), all_numbers)
        self.assertEqual(self.numbers(host, "--since", rows[1]["time"]), [r["number"] for r in rows if r["time"] >= rows[1]["time"]])
        self.assertEqual(self.numbers(host, "--since", "2199-12-31"), [])
        self.assertEqual(self.numbers(host, "--since", "2199-12-31T12:00", "--tail", "3"), [])
        for option, value in (("--since", "yesterday"), ("--since", "10"), ("--since", "-1h"), ("--since", "5w"), ("--since", ""),
                              ("--tail", "-1"), ("--tail", "1025"), ("--tail", "x")):
            result = lib.run_weir("events", "--run-dir", host.run_dir, option, value)
            self.assertEqual((result.returncode, result.stdout), (2, ""), (option, value))
            self.assertIn(f"{option}", result.stderr)
        follower = lib.Process([lib.places.weir, "events", "--follow", "--json", "--tail", "1", "--run-dir", host.run_dir],
                               env=lib.clean_environment(), name="weir events")
        self.addCleanup(follower.kill)
        follower.wait_line(rf'"number":{all_numbers[-1]},')
        self.assertEqual(lib.run_weir("tenant", "set", "bob", "weight=7", "--run-dir", host.run_dir).returncode, 0)
        follower.wait_line("tenant-changed")
        self.assertNotIn(f'"number":{all_numbers[-2]},', follower.out)

    def test_follow(self):
        host = self.host(("alice", "bob"), host_lines=["quarantine_s = 60"])
        followers = [lib.Process([lib.places.weir, "events", "--follow", "--json", "--run-dir", host.run_dir],
                                 env=lib.clean_environment()) for _ in range(2)]
        for follower in followers:
            self.addCleanup(follower.kill)
            follower.wait_line("worker-started")
        followers[0].kill()
        self.faulted(host)
        follower = followers[1]
        for kind in ("session-began", "fault", "worker-died", "quarantine-began", "worker-started"):
            follower.wait_line(f'"kind":"{kind}"')
        rows = [json.loads(line) for line in follower.lines]
        fault = next(r for r in rows if r["kind"] == "fault")
        self.assertEqual(fault["tenant"], "alice")
        self.assertIn("CUDA error 7", fault["why"])
        self.assertEqual(host.stop(), 0)
        self.assertEqual(follower.wait(), 1)
        self.assertIn("the host has ended", follower.err)

    def ask(self, host, *words):
        s = socket.socket(socket.AF_UNIX)
        self.addCleanup(s.close)
        s.connect(os.path.join(host.run_dir, "admin.sock"))
        s.sendall("\t".join(words).encode() + b"\n")
        return s

    def test_followers_that_do_not_read(self):
        """They keep nobody waiting; there are eight places, and one that reads late has lost the middle."""
        host = self.host(("alice", "bob"))
        deaf = [self.ask(host, "events", "follow") for _ in range(8)]
        lib.until(lambda: deaf[-1].recv(1, socket.MSG_PEEK), 5, "all places are taken")
        late = self.ask(host, "events", "follow")
        self.assertEqual(late.recv(1), b"", "there is no ninth place")
        changes = 1800  # what the host keeps (KEPT_MAX), what a socket holds, and some
        for n in range(changes):
            self.assertIn(b'"end"', b"".join(iter(lambda s=self.ask(host, "tenant", "set", "bob", f"weight={n + 1}"):
                                                  s.recv(65536), b"")))
        deaf[0].settimeout(0.5)
        text = b""
        with contextlib.suppress(TimeoutError):
            while data := deaf[0].recv(1 << 20):
                text += data
        numbers = [json.loads(line)["number"] for line in text.splitlines()]
        self.assertEqual(numbers, sorted(set(numbers)))
        self.assertEqual(numbers[0], 1)
        self.assertLess(len(numbers), numbers[-1], "some are missing")
        self.assertEqual(self.events(host)[-1]["number"], numbers[-1])
        for s in deaf:
            s.close()
        follower = lib.Process([lib.places.weir, "events", "--follow", "--run-dir", host.run_dir],
                               env=lib.clean_environment())
        self.addCleanup(follower.kill)
        follower.wait_line(f"weight={changes}")
        self.assertEqual(host.stop(), 0)

    def test_a_flood_leaves_room_for_others(self):
        """A tenant whose programs are refused without end: everything is counted, little is told."""
        host = self.host({"alice": {"memory": "64MiB"}, "bob": {"memory": "64MiB"}})
        flood = 3000
        self.finished(host, "e2e_quota", "flood", 80 * MIB, flood)
        self.finished(host, "e2e_quota", "fails", 80 * MIB, tenant="bob")
        self.event(host, kind="allocation-refused", tenant="bob")
        told = self.events(host, kind="allocation-refused", tenant="alice")
        self.assertLessEqual(len(told), 50)
        self.assertEqual(host.tenant("alice")["refused_device"], flood)
        self.assertLessEqual(sum(r["n"] for r in told), flood)
        logged = [line for line in host.process.errors if "allocation refused" in line and "alice" in line]
        self.assertTrue(0 < len(logged) <= 200, len(logged))

    def logged_with(self, stream):
        """Lines of a host, its worker and its gate process, whose JOURNAL_STREAM a shell sets."""
        host = self.host(prefix=["sh", "-c", f'export JOURNAL_STREAM={stream}; exec "$@"', "sh"])
        host.stop()
        lines = [line for line in host.process.errors if re.search(r"(\d{3}Z |^<\d>)(weir serve|worker|gate) ", line)]
        for who in ("weir serve", "worker", "gate"):
            self.assertTrue(any(re.search(rf"[Z>] ?{who} ", line) for line in lines), lines)
        return lines

    def test_priorities_in_the_journal(self):
        """Lines have syslog's priorities, and no time, where standard error is what JOURNAL_STREAM names."""
        priorities = {"error": 3, "warn": 4, "info": 6}
        for line in self.logged_with("$(stat -L -c %d:%i /proc/self/fd/2)"):
            level = re.search(r"(?:weir serve|worker|gate) (\w+) ", line)[1]
            self.assertRegex(line, rf"^<{priorities[level]}>(weir serve|worker|gate) ")
        for line in self.logged_with("8:1"):
            self.assertRegex(line, r"^20\d\d-")

    def test_kinds_are_explained(self):
        root = pathlib.Path(lib.places.source)
        kinds = re.findall(r'WEIR_EVENT\(\w+, "([a-z-]+)"', (root / "host_backend/config/events.def").read_text())
        page = (root / "docs/man/weir-events.1.scd").read_text()
        self.assertEqual(sorted(re.findall(r"\*([a-z]+-[a-z]+|fault)\*", page.split("# OPTIONS")[0])), sorted(kinds))


if __name__ == "__main__":
    lib.main()
