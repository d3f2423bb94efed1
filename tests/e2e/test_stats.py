#!/usr/bin/env python3
"""weir stats, WEIR_STATS and WEIR_TRACE: what they say of a program whose calls are known."""
import json
import os
import re
import subprocess

import lib

N = 40
LINE = re.compile(r"\[(\d+)/(\d+)\] (\d+\.\d{9}) (\w+)\((.*)\) = (\w+) <(\d+\.\d{9})> (guest|posted|waited)$")


class Stats(lib.Case):
    isolation = "group"

    def stats(self, host, *args):
        result = lib.run_weir("stats", "--run-dir", host.run_dir, "--json", *args)
        self.assertEqual(result.returncode, 0, result.stderr)
        return [json.loads(line) for line in result.stdout.splitlines()]

    def check_counts(self, session, threads):
        by_name = {f["name"]: f for f in session["functions"]}
        classes = {name: (f["guest"], f["posted"], f["waited"]) for name, f in by_name.items()}
        self.assertEqual(classes["cuCtxGetDevice"], (N * threads, 0, 0))
        self.assertEqual(classes["cuCtxGetCurrent"][0], 1)
        self.assertEqual(classes["cuLaunchKernel"], (0, N, 0))
        self.assertEqual(classes["cuMemGetInfo_v2"], (0, 0, N))
        # A copy that is over by the time its thread looks was not waited for.
        self.assertEqual(classes["cuMemcpyDtoH_v2"][0], 0)
        self.assertEqual(sum(classes["cuMemcpyDtoH_v2"]), N)
        # Answers that cannot have changed are not waited for.
        self.assertEqual(classes["cuLibraryGetGlobal"], (N - 1, 0, 1))
        self.assertEqual(classes["cuGraphExecKernelNodeSetParams_v2"], (0, N - 1, 2))
        self.assertEqual(classes["cuModuleLoadData"], (0, 0, 1))
        self.assertEqual(classes["cuInit"], (0, 0, 1))
        info = by_name["cuMemGetInfo_v2"]
        self.assertGreater(info["wait_ns"], 0)
        self.assertLessEqual(info["max_ns"], info["wait_ns"])
        self.assertEqual(by_name["cuLaunchKernel"]["wait_ns"], 0)

    def test_counts_live_and_ended(self):
        """More threads than blocks, and a child: the parent's numbers are its own."""
        host = self.host()
        guest = self.guest(host, "e2e_calls", N, 40, "fork")
        guest.wait_line("^done$")
        session, = self.stats(host)
        self.assertFalse(session["ended"])
        self.assertEqual((session["tenant"], session["transport"]), ("alice", "shm"))
        self.assertIn("e2e_calls", session["program"])
        self.check_counts(session, 40)
        self.assertEqual(self.stats(host, "--tenant", "bob"), [{"sessions": 0}])
        guest.close_stdin()
        self.assertEqual(guest.wait(), 0, guest.tail())
        host.wait_idle()
        again, = self.stats(host, "--session", str(session["session"]))
        self.assertTrue(again["ended"])
        self.check_counts(again, 40)
        table = lib.run_weir("stats", "--run-dir", host.run_dir, "--sort", "calls", "--all")
        lines = [line.split() for line in table.stdout.splitlines()]
        self.assertEqual(lines[2][:2], ["cuCtxGetDevice", str(N * 40)])
        self.assertEqual([line[0] for line in lines if line][-2:], ["total", "kernels:"])
        # On a busy machine some take over 1 ms and would be stoppable, if their twins were built.
        self.assertEqual(sum(again["kernels"].values()), N)
        self.assertLessEqual(again["kernels"].keys(), {"alone", "not_yet"})
        self.assertEqual(lib.run_weir("stats", "--sort", "colour").returncode, 2)

    def test_ended_ones_are_bounded(self):
        host = self.host()
        for _ in range(18):
            self.finished_calls(host)
        host.wait_idle()
        sessions = self.stats(host)
        self.assertEqual(len(sessions), 16)
        self.assertEqual(sessions[0]["session"], max(s["session"] for s in sessions))

    def finished_calls(self, host, threads=1, arrangement=lib.SHM, env=None):
        guest = self.guest(host, "e2e_calls", N, threads, arrangement=arrangement, env=env)
        guest.wait_line("^done$")
        guest.close_stdin()
        self.assertEqual(guest.wait(), 0, guest.tail())
        return guest

    def test_remote(self):
        host = self.host()
        self.finished_calls(host, 2, lib.ZMQ)
        host.wait_idle()
        session, = self.stats(host)
        self.assertEqual(session["transport"], "zmq")
        self.check_counts(session, 2)

    def test_own_table(self):
        host = self.host()
        guest = self.finished_calls(host, 3, env={"WEIR_STATS": "1"})
        rows = {line.split()[0]: line.split()[1:] for line in guest.errors if line.startswith("cu")}
        self.assertEqual(rows["cuCtxGetDevice"][:3], [str(3 * N), "0", "0"])
        self.assertEqual(rows["cuLaunchKernel"][:3], ["0", str(N), "0"])
        self.assertEqual(rows["cuMemGetInfo_v2"][:3], ["0", "0", str(N)])
        self.assertEqual(self.finished_calls(host).err, "")

    def test_trace_text(self):
        host = self.host()
        folder = self.folder()
        guest = self.guest(host, "e2e_calls", N, 2, "fork",
                           env={"WEIR_TRACE": os.path.join(folder, "trace.%p")})
        guest.wait_line("^done$")
        guest.close_stdin()
        self.assertEqual(guest.wait(), 0, guest.tail())
        files = sorted(os.listdir(folder))
        traces = {}
        for name in files:
            with open(os.path.join(folder, name)) as f:
                head, *lines = f.read().splitlines()
            self.assertRegex(head, "^# weir trace 1, pid ")
            traces[head.split()[5].rstrip(",")] = [LINE.match(line) for line in lines]
            self.assertNotIn(None, traces[head.split()[5].rstrip(",")], lines)
        self.assertEqual(len(traces), 2)
        child, = (lines for lines in traces.values() if not any(m[4] == "cuInit" for m in lines))
        self.assertEqual([m[4] for m in child], ["cuDriverGetVersion"])
        calls, = (lines for lines in traces.values() if lines is not child)
        self.assertEqual(sum(m[4] == "cuCtxGetDevice" for m in calls), 2 * N)
        self.assertEqual(len({m[2] for m in calls}), 3)
        launches = [m for m in calls if m[4] == "cuLaunchKernel"]
        self.assertEqual(len(launches), N)
        self.assertEqual({(m[6], m[8]) for m in launches}, {("CUDA_SUCCESS", "posted")})
        self.assertIn("gridDimX=2, gridDimY=1, gridDimZ=1, blockDimX=128", launches[0][5])
        alloc, = (m for m in calls if m[4] == "cuMemAlloc_v2")
        self.assertRegex(alloc[5], r"^dptr=\[0x[0-9a-f]+\], bytesize=1024$")
        found = next(m for m in calls if m[4] == "cuModuleGetFunction")
        self.assertRegex(found[5], r'name="mix"$')

    def test_trace_nowhere(self):
        """A file that cannot be made costs the trace, not the program."""
        guest = self.finished_calls(self.host(), env={"WEIR_TRACE": "/nonexistent/trace"})
        self.assertIn("WEIR_TRACE: cannot write (errno 2): calls are missing in the file", guest.err)
        self.assertEqual(self.finished_calls(self.host(), env={"WEIR_TRACE": "/nonexistent/trace", "WEIR_LOG": ""}).err, "")

    def test_trace_on_a_full_disk(self):
        """It ends between two calls, and says so; the program notices nothing."""
        host = self.host()
        folder = self.folder()
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "none", folder], capture_output=True, text=True)
        if done.returncode != 0:
            self.skipTest(f"no tmpfs: {done.stderr}")
        self.addCleanup(subprocess.run, ["umount", "--lazy", folder])
        path = os.path.join(folder, "trace")
        guest = self.finished_calls(host, 50, env={"WEIR_TRACE": path})
        self.assertEqual(guest.err.count("WEIR_TRACE: the disk is full (errno 28): calls are missing in the file"), 1, guest.err)
        with open(path) as f:
            text = f.read()
        self.assertGreater(len(text), 8192)
        *lines, last = text.splitlines()
        self.assertRegex(last, "^# the log ends here: the disk is full, at [0-9]+ us, pid [0-9]+$")
        self.assertNotIn(None, [LINE.match(line) for line in lines[1:]])


if __name__ == "__main__":
    lib.main()
