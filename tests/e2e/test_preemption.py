#!/usr/bin/env python3
"""Kernels with twins: stopped, resumed and resized at random, they and their neighbours notice nothing.

That every program computes the same is test_table.py's to show; here is what else may happen: guests
that are killed with runs under way, and caches that are warm, shared or damaged.
"""
import collections
import glob
import json
import os
import random
import re
import time

import lib

KILLS = int(os.environ.get("WEIR_E2E_KILLS", "60")) // 2
ENDS = 4
PROGRAM = "drv_kernel_state"  # needs its constants and variables to be one kernel's


class Forms(lib.Case):
    isolation = "group"

    def explored(self, folder=None, **kwargs):
        lines = lib.forms_lines(folder or self.folder(), **kwargs)
        return self.host(host_lines=lines, log="debug")

    def said(self, host, pattern):
        return [m for m in (re.search(pattern, line) for line in list(host.process.errors)) if m]

    def stats(self, host):
        """What weir stats says: of the sessions' kernels, all together, and of the device's runs."""
        result = lib.run_weir("stats", "--run-dir", host.run_dir, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = [json.loads(line) for line in result.stdout.splitlines()]
        kernels = collections.Counter()
        for line in lines:
            kernels.update(line.get("kernels", {}))
        runs, = [line["runs"] for line in lines if "device" in line] or [{}]
        return kernels, runs

    def counts(self, host):
        """Stops the host; what its runs came to."""
        self.assertEqual(host.stop(), 0)
        line = self.said(host, r"forms: runs .*")
        self.assertEqual(len(line), 1, host.process.tail())
        return {k: int(v) for k, v in re.findall(r"(\w+)=(\d+)", line[0][0])}

    def test_all_launches_become_runs_and_end(self):
        host = self.explored()
        for program in (PROGRAM, "drv_streams_many", "drv_threads", "drv_library"):
            self.finished(host, program)
        host.wait_idle()
        counts = self.counts(host)
        self.assertEqual(counts["started"], counts["finished"])
        self.assertEqual(counts["stuck"], 0)
        self.assertGreater(counts["started"], 1000)
        self.assertGreater(counts["stops"], 100)
        self.assertEqual(counts["stops"], counts["stopped"] + counts["late"])

    def test_every_launch_and_every_stop_is_accounted_for(self):
        host = self.explored()
        for program in (PROGRAM, "drv_graph", "drv_graph_pieces"):
            self.finished(host, program)
        host.wait_idle()
        kernels, runs = self.stats(host)
        self.assertEqual(runs["started"], runs["finished"])
        self.assertEqual(runs["started"], kernels["persistent"] + kernels["ticket"])
        self.assertEqual(runs["stops"], runs["stopped"] + runs["late"])
        self.assertGreater(kernels["captured"], 0)
        self.assertGreater(kernels["cut_graphs"], 10)
        self.assertGreater(kernels["graphs"], kernels["cut_graphs"])
        text = lib.run_weir("stats", "--run-dir", host.run_dir).stdout
        self.assertRegex(text, r"(?m)^kernels: .*captured \d+.*graphs \d+")
        self.assertRegex(text, rf"(?m)^device 0, kernels that can be stopped: started {runs['started']}, ")

    def test_without_forms_nothing_has_a_twin(self):
        host = self.host(host_lines=lib.forms_lines(self.folder(), mode="off"))
        self.finished(host, PROGRAM)
        host.wait_idle()
        kernels, runs = self.stats(host)
        self.assertEqual((list(kernels), runs), (["no_twin"], {}))

    def test_twins_with_fewer_registers_take_turns(self):
        host = self.explored(seed=2)
        for _ in range(2):
            self.finished(host, "drv_streams_many")
        host.wait_idle()
        self.assertTrue(self.said(host, r"forms: capped .* ready=1"), host.process.tail())
        self.assertTrue(self.said(host, r"forms: roomy .* ready=1"), host.process.tail())
        counts = self.counts(host)
        self.assertEqual(counts["started"], counts["finished"])
        self.assertEqual(counts["stuck"], 0)

    def test_kills_with_runs_under_way(self):
        host = self.explored()
        self.finished(host, "e2e_minimal")
        host.wait_idle()
        steady = self.steady(host)
        for number in range(KILLS):
            program = "drv_streams_many" if number % 2 else "e2e_churn"
            guest = self.guest(host, program, *([] if number % 2 else [number + 1]))
            end = time.monotonic() + random.uniform(0.02, 0.4)
            lib.until(lambda e=end: time.monotonic() >= e, 2, "its time has come", 0.002)
            guest.kill()
        self.steady_goes_on(steady)
        lib.until(lambda: not host.leftovers(sessions=1), 10, "only the other tenant is left", 0.05)
        self.steady_undisturbed(steady)
        host.wait_idle()
        self.assertEqual(host.worker()["restarts"], 0)
        counts = self.counts(host)
        self.assertEqual(counts["started"], counts["finished"])

    def test_programs_that_end_at_once_beside_stopped_kernels(self):
        """Unloading waits for the device: who lets a stopped kernel go on must get into the driver meanwhile."""
        host = self.explored()
        load = ("sched_load", "loop", "--waves", "8", "--rounds", "300", "--us", "1000", "--depth", "2")
        beside = self.guest(host, *load, "--seconds", "600", tenant="bob")
        beside.wait_line("^ready$")
        for _ in range(ENDS):
            pair = [self.guest(host, *load, "--wait", "--seconds", "0.1") for _ in range(2)]
            for guest in pair:
                guest.wait_line("^ready$")
            for guest in pair:
                guest.say("go")
            self.assertEqual([guest.wait(60) for guest in pair], [0, 0])
        seen = len(beside.lines)
        lib.until(lambda: len(beside.lines) > seen + 2, 30, "the other goes on", 0.02)
        beside.kill()
        host.wait_idle()
        counts = self.counts(host)
        self.assertEqual(counts["started"], counts["finished"])
        self.assertEqual(counts["stuck"], 0)
        self.assertGreater(counts["stops"], 0)

    def test_nobody_waits_for_a_host_function_that_waits_for_its_program(self):
        """Kernels behind it were stopped or restricted; loading code beside them needs none of them to be."""
        host = self.explored()
        guest = self.guest(host, "e2e_waits", "held")
        guest.wait_line("^ready$")
        launched = 0
        while not sum(self.stats(host)[0][form] for form in ("persistent", "ticket")):
            seen = len(guest.lines)
            guest.say("launch")
            guest.wait_line("^launched$", after=seen)
            launched += 1
            self.assertLess(launched, 1000, "its kernels get twins")
        guest.say("hold")
        guest.wait_line("^held$", limit_s=5)
        if lib.DRIVER == "softgpu":  # NVIDIA's driver loads no code in a context where a stream is held
            guest.say("load")
            guest.wait_line("^loaded$", limit_s=5)
            self.finished(host, "e2e_minimal", tenant="bob", limit_s=5)
        guest.say("open")
        self.assertEqual(guest.wait(), 0, guest.tail())
        host.wait_idle()
        counts = self.counts(host)
        self.assertEqual(counts["started"], counts["finished"])
        self.assertEqual(counts["stuck"], 0)
        self.assertEqual(self.said(host, "forms: a stopped kernel does not end"), [])

    def test_work_that_waits_for_work(self):
        """Twins are built and loaded beside it: nobody may wait for the device then who keeps out what it waits for."""
        for seed in range(lib.FORMS_SEED, lib.FORMS_SEED + 3):
            host = self.explored(seed=seed)
            for mode, rounds in (("value", 40), ("event", 40), ("host", 2), ("graph", 40), ("spin", 40)):
                with self.subTest(mode=mode, seed=seed):
                    self.finished(host, "e2e_waits", mode, rounds)
            host.wait_idle()
            counts = self.counts(host)
            self.assertEqual(counts["started"], counts["finished"])
            self.assertEqual(counts["stuck"], 0)

    def test_graphs_and_kernels_change_from_part_to_part(self):
        """The programs check what they compute; the log says that parts were made, and graphs launched in them."""
        made, graphs = set(), set()
        for seed in range(lib.FORMS_SEED, lib.FORMS_SEED + 3):
            host = self.explored(seed=seed)
            for program in ("drv_graph_pieces", "drv_graph_fork", "drv_library"):
                self.finished(host, program)
            host.wait_idle()
            made |= {m.groups() for m in self.said(host, r"sched: a part was made .*first=(\d+) sms=(\d+)")}
            graphs |= {m[1] for m in self.said(host, r"graph: for a part .*sms=(\d+) kernels=[1-9]\d* result=0")}
            self.assertEqual(self.said(host, "a part of the device cannot be made"), [])
            self.assertEqual(host.stop(), 0)
        self.assertGreater(len(made), 1)
        self.assertGreater(len(graphs), 1)

    def run_with(self, folder):
        """One host's life; whether its twins came out of the cache, file by file, and the host."""
        host = self.explored(folder)
        self.finished(host, PROGRAM)
        host.wait_idle()
        self.assertEqual(host.stop(), 0)
        return {m[1] for m in self.said(host, r"forms: twins .*cached=(\d)")}, host

    def test_the_next_program_knows_how_long_blocks_take(self):
        folder, learned = self.folder(), []
        for _ in range(2):
            host = self.host(host_lines=lib.forms_lines(folder, mode="always"), log="debug")
            guest = self.guest(host, "forms_load", "rg")
            host.process.wait_log("forms: twins ", 60)
            runs, command = 0, "input rg quick"
            while runs < 50:  # some of them are timed
                said = len(guest.lines)
                guest.say(command)
                guest.wait_line("^done$", after=said)
                runs += sum(int(line.split()[1]) for line in guest.lines[said:] if line.startswith("rate "))
                command = "loop 1 0"
            guest.close_stdin()
            self.assertEqual(guest.wait(), 0)
            host.wait_idle()
            self.assertEqual(host.stop(), 0)
            learned.append({m[1] for m in self.said(host, r"forms: twins .*learned=(\d)")})
        self.assertEqual(learned[0], {"0"})
        self.assertIn("1", learned[1])

    def test_cache_is_used_by_the_next_host(self):
        folder = self.folder()
        self.assertEqual(self.run_with(folder)[0], {"0"})
        files = set(glob.glob(folder + "/cache/*.twins"))  # one, or more with twins of fewer registers
        self.assertTrue(files)
        self.assertEqual(self.run_with(folder)[0], {"1"})
        self.assertLessEqual(files, set(glob.glob(folder + "/cache/*")))

    def test_damaged_cache_is_made_again(self):
        folder = self.folder()
        self.run_with(folder)
        # The whole module's; one of a kernel with fewer registers is smaller.
        path = max(glob.glob(folder + "/cache/*.twins"), key=os.path.getsize)
        with open(path, "rb") as f:
            good = f.read()
        for damaged in (good[:-1], good[:40], b"", good + b"x",
                        good[:-100] + bytes([good[-100] ^ 1]) + good[-99:],
                        good[:9] + bytes([good[9] ^ 1]) + good[10:]):
            with open(path, "wb") as f:
                f.write(damaged)
            cached, host = self.run_with(folder)
            self.assertEqual(cached, {"0"})
            self.assertEqual(len(self.said(host, "damaged file in the cache")), 1)
            with open(path, "rb") as f:
                self.assertEqual(f.read(), good)
        self.assertEqual(self.run_with(folder)[0], {"1"})

    def test_folder_of_others_is_no_cache(self):
        folder = self.folder()
        os.mkdir(folder + "/cache")
        os.chmod(folder + "/cache", 0o777)
        cached, host = self.run_with(folder)
        self.assertEqual(cached, {"0"})
        self.assertTrue(self.said(host, "cache: none, not a folder that only we may write to"))
        self.assertEqual(os.listdir(folder + "/cache"), [])

    def test_tenants_choose(self):
        host = self.host({"alice": {"forms": "off"}, "bob": {}}, log="debug",
                         host_lines=lib.forms_lines(self.folder(), mode="always"))
        def of_bob():
            for tenant in ("alice", "bob"):
                self.finished(host, PROGRAM, tenant=tenant)
            host.wait_idle()
            return {m[1] for m in self.said(host, r"forms: twins tenant=(\w+)")}

        # A program may end before its twins are made: then they are not.
        lib.until(of_bob, 20, "twins are made")
        self.assertEqual(of_bob(), {"bob"})
        self.assertEqual(host.stop(), 0)

    def test_off_starts_nothing(self):
        host = self.host(log="debug", host_lines=lib.forms_lines(self.folder(), mode="off"))
        self.finished(host, PROGRAM)
        host.wait_idle()
        self.assertEqual(self.said(host, "forms: (twins|runs)"), [])
        threads = {open(p).read().strip()
                   for p in glob.glob(f"/proc/{host.worker_pid()}/task/*/comm")}
        self.assertEqual({t for t in threads if t.startswith("weir-")}, {"weir-worker", "weir-sched"}, threads)

    def test_by_default_it_takes_two_tenants(self):
        for tenants, expected in ((("alice",), 0), (("alice", "bob"), 1)):
            host = self.host(tenants, log="debug")

            def twins_made():
                self.finished(host, PROGRAM)
                host.wait_idle()
                return len(self.said(host, "forms: twins"))

            if expected:  # a program may end before its twins are made
                lib.until(twins_made, 20, "twins are made")
            else:
                self.assertEqual(twins_made(), 0)
            self.assertEqual(host.stop(), 0)


if __name__ == "__main__":
    lib.main()
