#!/usr/bin/env python3
"""weir trace start and stop: a live host's scheduling, recorded; the same decisions when told again."""
import json
import os
import re
import socket
import subprocess
import sys
from xml.etree import ElementTree

import lib

BUSY_S = 1.2
PLOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "gpu", "plot_trace.py")


class Trace(lib.Case):
    isolation = "group"

    def tenants(self, policy="fair"):
        return self.host({"alice": {"weight": 3}, "bob": {"weight": 1}}, args=["--policy", policy])

    def loop(self, host, tenant):
        guest = self.guest(host, "sched_load", "loop", "--blocks", "16", "--rounds", "300", "--us", "1000",
                           "--seconds", "600", "--depth", "4", tenant=tenant)
        guest.wait_line("^ready$")
        return guest

    def busy(self, host):
        guests = [self.loop(host, tenant) for tenant in ("alice", "bob")]
        end = lib.lived_s() + BUSY_S
        lib.until(lambda: lib.lived_s() >= end, 5, "they have met", 0.02)
        return guests

    def trace(self, host, action, *args, expect=0):
        result = lib.run_weir("trace", action, "--run-dir", host.run_dir, *args)
        self.assertEqual(result.returncode, expect, result.stdout + result.stderr)
        return result.stdout if expect == 0 else result.stderr

    def weir(self, *args, expect=0):
        result = lib.run_weir(*args)
        self.assertEqual(result.returncode, expect, result.stdout + result.stderr)
        return result

    def check_load(self, path):
        """It can be simulated, under any policy."""
        for policy in ("fair", "priority"):
            run = json.loads(self.weir("sim", "--json", "--policy", policy, path).stdout)
            self.assertEqual({t["name"] for t in run["tenants"]}, {"alice", "bob"})
            self.assertGreater(run["items"], 10)
            for tenant in run["tenants"]:
                self.assertEqual(tenant["items"], tenant["finished"])
                self.assertGreater(tenant["sm_s"], 0)

    def test_same_trace_same_decisions(self):
        for policy in ("fair", "priority"):
            with self.subTest(policy=policy):
                host = self.tenants(policy)
                path = os.path.join(self.folder(), "live.trace")
                self.assertEqual(self.trace(host, "start", path), "recording device 0\n")
                for guest in self.busy(host):
                    guest.kill()
                host.wait_idle()
                self.assertRegex(self.trace(host, "stop"), r"^device 0: \d+ records, 0 lost\n$")
                lines = self.weir("trace", "show", path).stdout.splitlines()
                self.assertIn(", begun 20", lines[0])
                self.assertNotIn("under way", lines[0])
                self.assertEqual(lines[-1].split()[1], "end")
                self.assertTrue(any(f" policy kind=0 {policy}" in line for line in lines[:6]), lines[:6])
                self.assertRegex(self.weir("sim", "--replay", path).stdout,
                                 r"^\d+ records, \d+ decisions: all equal\n$")
                self.check_load(path)

    def test_draw(self):
        """plot_trace.py draws what was recorded: who, when, and how much. What weir drew and added up itself before, it names the way to."""
        host = self.tenants()
        folder = self.folder()
        path, svg = (os.path.join(folder, name) for name in ("live.trace", "live.svg"))
        self.trace(host, "start", path)
        for guest in self.busy(host):
            guest.kill()
        host.wait_idle()
        self.trace(host, "stop")
        shown = self.weir("trace", "show", path).stdout

        def plot(*args):
            return subprocess.run([sys.executable, "-B", PLOT, *args], input=shown, capture_output=True, text=True)

        self.assertEqual(plot(svg).stderr, "")
        space = "{http://www.w3.org/2000/svg}"
        held = {"alice": 0.0, "bob": 0.0}
        for title in ElementTree.parse(svg).getroot().iter(space + "title"):
            name, from_s, to_s, first, last = re.match(
                r"(\w+), ([\d.]+) to ([\d.]+) s, SM (\d+) to (\d+)$", title.text).groups()
            held[name] += (float(to_s) - float(from_s)) * (int(last) - int(first) + 1)
            self.assertTrue(0 <= int(first) <= int(last) < 8, title.text)
        self.assertGreater(held["alice"], held["bob"], "by their weights")
        self.assertGreater(held["bob"], 0)
        self.assertIn("nothing ran", plot(svg, "1000", "1001").stderr)
        for words in (("trace", "draw", path, "--out", svg), ("sim", path, "--svg", svg)):
            self.assertIn("--timeline FILE", self.weir(*words, expect=2).stderr)
        self.assertIn("weir why", self.weir("trace", "tail", path, expect=2).stderr)

    def test_from_the_middle(self):
        host = self.tenants()
        path = os.path.join(self.folder(), "middle.trace")
        guests = self.busy(host)
        self.trace(host, "start", path)
        self.assertIn("already", self.trace(host, "start", path + "2", expect=1))
        self.assertFalse(os.path.exists(path + "2"))
        end = lib.lived_s() + BUSY_S
        lib.until(lambda: lib.lived_s() >= end, 5, "something was recorded", 0.02)
        self.trace(host, "stop")
        self.assertIn("nothing", self.trace(host, "stop"))
        self.assertTrue(all(guest.alive() for guest in guests), "recording ended a guest")
        self.check_load(path)
        self.assertIn("under way", self.weir("sim", "--replay", path, expect=1).stderr)

    def copies(self, host, *options):
        """(bytes, rest) of the copies that came, in order."""
        path = os.path.join(self.folder(), "copies.trace")
        self.trace(host, "start", path)
        guest = self.guest(host, "sched_load", "copy", "--seconds", "0.1", "--depth", "1", *options,
                           tenant="alice")
        guest.wait_line("^total ")
        guest.kill()
        host.wait_idle()
        self.trace(host, "stop")
        lines = [line for line in self.weir("trace", "show", path).stdout.splitlines()
                 if " arrive " in line and re.search(" class=(h2d|d2h)", line)]
        self.assertRegex(self.weir("sim", "--replay", path).stdout, "all equal\n$")
        return [(int(re.search(" bytes=([0-9]+)", line)[1]),
                 int((re.search(" rest=([0-9]+)", line) or "00")[1])) for line in lines]

    def test_a_piece_of_a_copy_says_what_follows(self):
        mib = 1 << 20
        for options, piece, pieces in ((("--way", "h2d", "--pageable"), 4 * mib, 18),
                                       (("--way", "d2h", "--pageable"), 4 * mib, 18),
                                       (("--way", "h2d"), 32 * mib, 3), (("--way", "d2h"), 32 * mib, 3)):
            with self.subTest(options=options):
                host = self.tenants()
                seen = self.copies(host, "--bytes", str(70 * mib), *options)
                whole = [(min(piece, 70 * mib - at), max(70 * mib - at - piece, 0))
                         for at in range(0, 70 * mib, piece)]
                self.assertEqual(len(whole), pieces)
                at = seen.index(whole[0])
                self.assertEqual(seen[at:at + pieces], whole)
                host.stop()

    def test_a_host_that_stops_ends_its_recording(self):
        host = self.tenants()
        path = os.path.join(self.folder(), "last.trace")
        self.trace(host, "start", path)
        self.loop(host, "alice").kill()
        host.wait_idle()
        self.assertEqual(host.stop(), 0)
        self.assertTrue(self.weir("trace", "show", path).stdout.splitlines()[-1].endswith(" end"))

    def test_wrong_requests(self):
        host = self.tenants("off")
        path = os.path.join(self.folder(), "x")
        self.assertIn("off", self.trace(host, "start", path, expect=1))
        self.assertIn("is weir serve running", lib.run_weir("trace", "stop", "--run-dir", "/nonexistent").stderr)
        host.stop()
        host = self.tenants()
        self.assertIn("no such device", self.trace(host, "start", "--device", "9", path, expect=1))
        read_end, write_end = os.pipe()
        for words, fds, answer in ((b"trace\tstart\t0\n", [write_end], b"a regular file is wanted"),
                                   (b"trace\tstart\t0\n", [], b"a file are wanted"),
                                   (b"trace\tstart\n", [write_end], b"a file are wanted"),
                                   (b"trace\n", [], b"a file are wanted"),
                                   (b"trace\tstart\t0x\n", [write_end], b"a file are wanted"),
                                   (b"trace\tstart\t0\n", [write_end] * 3, b"a file are wanted"),
                                   (b"nothing\n", [write_end], b""), (b"trace start 0\n", [], b""),
                                   (b"trace\t" + 600 * b"x" + b"\n", [], b""), (b"\n", [], b""),
                                   (b"status\n", [write_end], b'"row":"worker"')):
            with self.subTest(words=words, fds=len(fds)), \
                    socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as admin:
                admin.connect(os.path.join(host.run_dir, "admin.sock"))
                admin.settimeout(60)
                socket.send_fds(admin, [words], fds)
                got = b""
                while chunk := admin.recv(65536):
                    got += chunk
                self.assertIn(answer, got)
                self.assertEqual(bool(answer), bool(got))
        os.close(write_end)
        self.assertEqual(os.read(read_end, 1), b"", "somebody keeps a descriptor that was sent")
        os.close(read_end)
        self.steady_goes_on(self.steady(host))


if __name__ == "__main__":
    lib.main()
