#!/usr/bin/env python3
"""weir sim and weir trace: from a line to a trace, a run, its pictures, and back."""
import json
import os
import re

import lib

LOAD = ("name=train weight=2 kernel=1ms form=original; name=other kernel=200us depth=2; "
        "name=infer priority=high kernel=50us h2d=1M d2h=4K arrive=poisson:500")
LINE = re.compile(r"^\d+\.\d{9} [a-z-]+( .*)?$")


class Simulation(lib.Case):
    def weir(self, *args, expect=0):
        result = lib.run_weir(*args)
        self.assertEqual(result.returncode, expect, result.stderr)
        return result

    def trace(self, spec=LOAD, *args):
        path = os.path.join(self.folder(), "load.trace")
        self.weir("trace", "generate", "--duration", "50ms", "--out", path, *args, spec)
        return path

    def test_generate_show(self):
        path = self.trace()
        again = self.trace()
        with open(path, "rb") as one, open(again, "rb") as two:
            self.assertEqual(one.read(), two.read())
        head, config, *lines = self.weir("trace", "show", path).stdout.splitlines()
        self.assertRegex(head, "^# weir trace 1: 132 SMs, made up$")
        self.assertIn("starve_ns=", config)
        self.assertEqual([line for line in lines if not LINE.match(line)], [])
        self.assertEqual(sum(" arrive " in line for line in lines),
                         sum(" finish " in line for line in lines))
        self.assertEqual(lines[-1].split()[1], "end")
        self.assertIn("file exists", self.weir("trace", "generate", "--out", path, LOAD,
                                               expect=1).stderr.lower())

    def test_run(self):
        path = self.trace()
        one = self.weir("sim", "--json", "--shares", "--interval", "10ms", path)
        run = json.loads(one.stdout)
        self.assertEqual(one.stdout, self.weir("sim", "--json", "--shares", "--interval", "10ms",
                                               path).stdout, "the same run twice differs")
        names = [t["name"] for t in run["tenants"]]
        self.assertEqual(names, ["train", "other", "infer"])
        for tenant in run["tenants"]:
            self.assertEqual(tenant["items"], tenant["finished"])
            self.assertGreaterEqual(tenant["slowdown"], 0.99)
        self.assertEqual(run["decisions"]["starts"], run["items"])
        self.assertAlmostEqual(sum(t["share"] for t in run["tenants"]), 1, 5)
        self.assertAlmostEqual(sum(t["shares"][0] for t in run["tenants"]), 1, 4)
        self.assertTrue(0.5 < run["used"]["sms"] <= 1, run["used"])
        self.assertTrue(1 <= run["antt"] and 0 < run["stp"] <= 3, run)
        text = self.weir("sim", "--cost", path).stdout
        for word in ("ANTT", "STP", "decisions", "calls into the scheduler", "infer"):
            self.assertIn(word, text)
        half = json.loads(self.weir("sim", "--json", "--quick", "--gpu", "h200,sms=66", path).stdout)
        self.assertGreater(half["time_s"], 1.5 * run["time_s"])
        cut = json.loads(self.weir("sim", "--json", "--quick", "--until", "20ms", path).stdout)
        self.assertEqual((cut["cut"], cut["time_s"]), (True, 0.02))

    def test_settings(self):
        spec = "name=s tenants=8 graph=19 kernel=510us"

        def finished(spec, settings):
            run = json.loads(self.weir("sim", "--json", "--quick", "--generate", spec, "--duration", "50ms", "--until", "50ms",
                                       "--set", settings).stdout)
            self.assertEqual(len(run["tenants"]), 8)
            return sum(tenant["finished"] for tenant in run["tenants"])

        self.assertGreater(finished(spec, "fill=all"), 2 * finished(spec, "fill=all,small_sms=0"))
        self.assertNotEqual(finished(spec + " context=own", "fill=all"), finished(spec + " context=own", "fill=all,domains=contexts"),
                            "a scheduler that knows of contexts lets nothing pass beside another's")
        for wrong in ("small_sms=x", "nothing=1", "fill", "policy=fair+fair", "sms=0"):
            self.assertIn("no setting", self.weir("sim", "--generate", spec, "--set", wrong, expect=1).stderr)

    def test_several_gpus(self):
        spec = ("sim", "--duration", "50ms", "--until", "50ms", "--quick", "--generate",
                "name=job ranks=2 kernel=40us blocks=24 per_sm=1 form=original depth=8; name=one gpu=1")
        run = json.loads(self.weir(*spec, "--json").stdout)
        job, one = run["tenants"]
        self.assertEqual((job["gpu_shares"][0], one["gpu_shares"][0]), (1, 0))
        self.assertAlmostEqual(job["gpu_shares"][1] + one["gpu_shares"][1], 1, 5)
        self.assertGreater(one["gpu_shares"][1], 0.2)
        self.assertGreater(run["used"]["peers"], 0)
        text = self.weir(*spec).stdout
        self.assertIn("2 of these", text)
        self.assertRegex(text, r"SHARE % of what was held, on\n +GPU +job +one\n +0 +100.00 +0.00\n +1 ")
        for option in ("--record", "--timeline"):
            self.assertIn("one GPU only", self.weir(*spec, option, os.path.join(self.folder(), "out"), expect=1).stderr)
        path = os.path.join(self.folder(), "made.trace")
        self.weir("trace", "generate", "--out", path, "--duration", "1ms", spec[-1])
        self.assertRegex(self.weir("trace", "show", path).stdout, r" queue tenant=1 queue=2 gpu=1 rank=1\n")
        stuck = "ranks=2 streams=2 kernel=40us form=original depth=8; gpu=1 kernel=30us items=20 form=original"
        self.assertIn("jobs wait for each other",
                      self.weir("sim", "--quick", "--duration", "50ms", "--generate", stuck, expect=1).stderr)

    def test_tune(self):
        spec = ("sim", "--json", "--quick", "--duration", "50ms", "--until", "50ms", "--generate", "name=a; name=b")
        plain = self.weir(*spec).stdout
        self.assertEqual(self.weir(*spec, "--tune", "slice_max_ns=8000000,clearly=0.1").stdout, plain)
        tuned = self.weir(*spec, "--tune", "clearly=0.2,slice_max_ns=2000000").stdout
        self.assertGreater(json.loads(tuned)["decisions"]["switches"], json.loads(plain)["decisions"]["switches"])
        for wrong in ("nothing=1", "slice_max_ns", "slice_max_ns=0", "slice_max_ns=0.5", "fill_depth=5e9", "clearly=nan",
                      "clearly=-1", "fill_depth=2x", "slice_max_ns=inf"):
            self.assertIn("no row", self.weir(*spec, "--tune", wrong, expect=1).stderr)

    def test_priority_beats_fair_for_the_high_one(self):
        path = self.trace()
        waits = {}
        for policy in ("fair", "priority"):
            run = json.loads(self.weir("sim", "--json", "--policy", policy, path).stdout)
            waits[policy] = next(t for t in run["tenants"] if t["name"] == "infer")["wait_p99_s"]
        self.assertLessEqual(waits["priority"], waits["fair"])

    def test_timeline(self):
        timeline = os.path.join(self.folder(), "run.json")
        run = json.loads(self.weir("sim", "--json", "--quick", "--timeline", timeline, self.trace()).stdout)
        with open(timeline) as f:
            events = json.load(f)["traceEvents"]
        spans = [e for e in events if e["ph"] == "X" and e["pid"] == 1]
        self.assertEqual(sum(not e["args"]["stopped"] for e in spans), run["items"])
        end_us = run["time_s"] * 1e6
        self.assertTrue(all(0 <= e["ts"] and e["ts"] + e["dur"] <= end_us + 1 for e in spans))
        held = [e["args"]["SMs"] for e in events if e["ph"] == "C"]
        self.assertTrue(held and max(held) <= 132.001 and min(held) >= 0)

    def test_record_and_replay(self):
        record = os.path.join(self.folder(), "run.trace")
        for policy in ("fair", "priority"):
            self.weir("sim", "--quick", "--policy", policy, "--fill", "all", "--record", record, self.trace())
            self.assertRegex(self.weir("sim", "--replay", record).stdout,
                             r"^\d+ records, \d+ decisions: all equal\n$")
        shared = os.path.join(self.folder(), "shared.trace")
        spec = "name=a priority=high kernel=300us; name=b priority=low kernel=50us form=original depth=8"
        self.weir("sim", "--generate", spec, "--duration", "5ms", "--quick", "--policy", "priority", "--fill", "all",
                  "--record", shared)
        self.assertRegex(self.weir("sim", "--replay", shared).stdout, "all equal")
        self.assertRegex(self.weir("trace", "show", shared).stdout, r" start tenant=\w+ item=\w+ sms=all filler\n")
        with open(record, "r+b") as f:  # another STOP or START than was decided
            data = bytearray(f.read())
            at = next(o for o in range(128 + 80 * 60, len(data), 80) if data[o + 76] == 6)
            data[at + 64] ^= 1
            data[at + 68] = 1
            f.seek(0)
            f.write(data)
        result = self.weir("sim", "--replay", record, expect=1)
        self.assertIn(f"at offset {at}:", result.stdout)
        self.assertIn("made up", self.weir("sim", "--replay", self.trace(), expect=1).stderr)

    def test_what_is_wrong_is_said(self):
        path = self.trace()
        broken = os.path.join(self.folder(), "broken")
        with open(path, "rb") as f:
            data = bytearray(f.read())
        data[128 + 80 * 3 + 76] = 99
        with open(broken, "wb") as f:
            f.write(data)
        for args, status, words in (
                (("sim",), 2, "TRACE"),
                (("sim", path, path), 2, "TRACE"),
                (("sim", "--generate", "name=a", path), 2, "TRACE"),
                (("sim", "/nonexistent"), 1, "No such file"),
                (("sim", lib.__file__), 1, "no trace"),
                (("sim", "/dev/zero"), 1, "Invalid argument"),
                (("trace", "show", "/"), 1, "directory"),
                (("sim", broken), 1, f"offset {128 + 80 * 3}: "),
                (("trace", "show", broken), 1, f"offset {128 + 80 * 3}: "),
                (("sim", "--policy", "magic", path), 1, "magic"),
                (("sim", "--fill", "some", path), 1, "none, all"),
                (("sim", "--gpu", "h100", path), 1, "there are: h200"),
                (("sim", "--gpu", "h200,sms=0", path), 1, "sms=0"),
                (("sim", "--until", "5", path), 1, "not a time"),
                (("sim", "--interval", "1ns", path), 1, "limit"),
                (("sim", "--timeline", "/nonexistent/x", path), 1, "No such file"),
                (("sim", "--generate", "name=a weight=0"), 1, "load:1:15: "),
                (("trace",), 2, "action"),
                (("trace", "bogus"), 2, "bogus"),
                (("trace", "show"), 2, "FILE"),
                (("trace", "generate", "name=a"), 2, "--out")):
            with self.subTest(args=args):
                self.assertIn(words, self.weir(*args, expect=status).stderr)


if __name__ == "__main__":
    lib.main()
