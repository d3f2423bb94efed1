#!/usr/bin/env python3
"""What bench_guest.py concludes from what machines say: without machines."""
import io
import os
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import bench_guest  # noqa: E402


class Stuck(Exception):
    pass


class Lib:
    """Of tests/e2e/lib.py, which wants binaries, what is needed here."""
    Stuck = Stuck

    @staticmethod
    def until(condition, limit_s, what):
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            value = condition()
            if value:
                return value
            time.sleep(0.005)
        raise Stuck(what)


class Connection:
    """A port that has said all it will."""

    def __init__(self, text):
        self.text = text

    def makefile(self, _mode):
        return io.BytesIO(self.text.encode())


class Process:
    def __init__(self, lines=(), alive=True):
        self.lines, self.errors, self.is_alive = list(lines), [], alive

    def alive(self):
        return self.is_alive

    def kill(self):
        self.is_alive = False


def program(text):
    p = bench_guest.Program(Lib, "p", Connection(text))
    p._reader.join()
    return p


class Programs(unittest.TestCase):
    def test_slots_are_told_in_this_machines_clock(self):
        p = program("ready\nslot 100.0 3\nslot 200.0 4\n")
        now = time.monotonic() * 1e3
        lines = p.said_since()
        times = [float(line.split()[1]) for line in lines if line.startswith("slot")]
        self.assertEqual(lines[0], "ready")
        self.assertAlmostEqual(times[1] - times[0], 100, places=3)
        self.assertLess(abs(times[1] - now), 1000)  # both came at once: the later one had no time to wait

    def test_lines_before_the_last_command_are_not_told(self):
        p = program("slot 1.0 1\nready\n")
        p.since = 1
        self.assertEqual(p.said_since(), ["ready"])

    def test_an_end_is_not_waited_through(self):
        p = program("No module named 'torch'\n@@EXIT 1\n")
        with self.assertRaises(Stuck) as caught:
            p.wait_line("^imported$", 5)
        self.assertIn("No module named", str(caught.exception))


class Choice(unittest.TestCase):
    def choose(self, probes):
        bench = bench_guest.Bench.__new__(bench_guest.Bench)
        bench.lib, rows = Lib, []
        bench.row = lambda *cells: rows.append(cells)
        bench.choose(probes, time.monotonic() + 0.1)
        return bench.accelerator, rows

    def test_the_first_model_that_starts_is_taken(self):
        up = ["@@UP 1.0\r"]
        taken, rows = self.choose({"host": Process(alive=False), "max": Process(up), "qemu64": Process(up)})
        self.assertEqual(taken, ("kvm", "max"))
        self.assertEqual(len(rows), 2)

    def test_a_machine_that_says_nothing_is_not_waited_for_longer(self):
        probes = {"host": Process(), "max": Process(["Kernel panic\x1b[0m | x"])}
        taken, rows = self.choose(probes)
        self.assertEqual(taken, bench_guest.IN_SOFTWARE)
        self.assertEqual(rows[1][2], "Kernel panic / x")
        self.assertFalse(any(p.alive() for p in probes.values()))


if __name__ == "__main__":
    unittest.main()
