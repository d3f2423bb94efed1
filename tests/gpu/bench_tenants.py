#!/usr/bin/env python3
"""Many tenants: a host with 256 of them configured, of which 64 are at work.

    WEIR_E2E_BUNDLE=FOLDER WEIR_E2E_DRIVER=nvidia FOLDER/tests/gpu/bench_tenants.py [--cases start mix weights] [--native]
        [--programs FILE] [--configured N] [--at-work N] [--seconds S] [--mix-seconds S] [--mps on|off] [--log LEVEL]

start    A minimal program of each tenant at work, all at once: how many end right, and when the first, the median and
         the last have. Then the same again, in the workers that were kept.
mix      --width programs at a time, for --mix-seconds, of the tenants at work in turn: how many ended a second, how many of
         them right, the slowest. --programs names a file with a command a line ("#": a comment); without it, the programs
         drv_* of tests/cuda. With --native the same without Weir, before.
weights  A loop of kernels of --kernel-us for each tenant at work, weights 1:2:3:4 in turn, for --seconds: each weight's and
         tenant's share against what is due to it, over all and in the worst second, and the total against one loop alone.

Under MPS 64 workers are clients of two servers, since one takes 48. --rehearse does all of it on softgpu with longer kernels.
Exit status: 0 all programs ended right.
"""
import argparse
import os
import random
import re
import shlex
import statistics
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../e2e"))
import lib

CASES = ("start", "mix", "weights")
BLOCK_US = 40  # how long a block of a kernel takes
SLOW = 4       # softgpu's kernels take longer
WARM_S = 1.6   # before shares are counted
START_S = 120


class Timed:
    """A process, and when it began and ended."""

    def __init__(self, process):
        self.process, self.begin_s, self.end_s = process, process.started_ns * 1e-9, 0
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()

    def watch(self):
        os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)
        self.end_s = time.monotonic()


class Tenants:
    def __init__(self, options):
        self.options, self.bad = options, 0
        self.names = [f"t{i}" for i in range(options.configured)]
        # Those at work lie apart among the others.
        self.at_work = [self.names[i * options.configured // options.at_work] for i in range(options.at_work)]
        self.weights = {name: 1 + i % 4 for i, name in enumerate(self.at_work)}

    def host(self):
        settings = {name: {"isolation": "program", "weight": 100 * self.weights.get(name, 1)} for name in self.names}
        lines = [f'mps = "{self.options.mps}"', f"worker_idle_s = {self.options.idle_s}", "quarantine_s = 0"]
        return lib.Host(settings, host_lines=lines, log=self.options.log)

    def begin(self, host, tenant, argv):
        if host:
            argv, env = lib.guest_argv(host, lib.SHM, tenant, argv[0], argv[1:])
        else:
            env = lib.clean_environment()
            if self.options.rehearse:
                env["LD_LIBRARY_PATH"] = lib.softgpu_folder()
        return lib.Process([str(a) for a in argv], env=env, name=tenant)

    def say(self, text):
        print(text, flush=True)

    def failed(self, process, why):
        self.bad += 1
        if self.bad <= 5:
            self.say(f"  {process.name}: {why}\n{process.tail()}")

    # ---------------------------------------------------------------- start

    def start(self, host):
        self.say("case | right | first, median, last ended after, s | each took, median, most, s | workers, busy or kept | in MPS domains")
        for case in ("at once", "again"):
            begun = time.monotonic()
            running = [Timed(self.begin(host, name, [lib.places.program("e2e_minimal")])) for name in self.at_work]
            right = [t for t in running if self.ends_right(t, begun + START_S)]
            times, took = [t.end_s - begun for t in right], [t.end_s - t.begin_s for t in right] or [0]
            workers = [w for w in host.status()["worker"] if w["state"] in ("busy", "kept")]
            self.say(f"{len(running)} minimal programs {case} | {len(right)} | {self.spread(times)} | "
                     f"{statistics.median(took):.3f}, {max(took):.3f} | {len(workers)} | {self.domains(host)}")

    @staticmethod
    def spread(times):
        return f"{min(times):.3f}, {statistics.median(times):.3f}, {max(times):.3f}" if times else "none"

    def ends_right(self, timed, limit_s):
        timed.thread.join(max(limit_s - time.monotonic(), 0))
        if timed.thread.is_alive():
            timed.process.kill()
            self.failed(timed.process, f"not ended after {START_S} s")
        elif timed.process.wait(5) != 0:
            self.failed(timed.process, f"status {timed.process.popen.returncode}")
        else:
            return True
        return False

    @staticmethod
    def domains(host):
        """How many workers were started in each, as the log has it."""
        found = re.findall(r"worker started worker=\d+ pid=\d+ mps_domain=(\d+)", host.process.err)
        return ", ".join(f"{n}: {found.count(n)}" for n in sorted(set(found))) or "none"

    # ---------------------------------------------------------------- mix

    def commands(self):
        if self.options.programs:
            with open(self.options.programs) as f:
                lines = [line.strip() for line in f]
            return [shlex.split(line) for line in lines if line and not line.startswith("#")]
        names = [n for n in lib.places.cuda_programs() if not n.endswith("_child")]
        return [[lib.places.program(n)] for n in names]

    def mix(self, host):
        commands = self.commands()
        random.Random(1).shuffle(commands)
        self.say(f"mix of {len(commands)} programs, {self.options.width} at a time | ended | a second | right | slowest, s")
        if self.options.native:
            self.one_mix(None, commands)
        self.one_mix(host, commands)

    def one_mix(self, host, commands):
        running, n, ended, right, slowest = {}, 0, 0, 0, (0, "")
        begin = time.monotonic()
        end = begin + self.options.mix_seconds
        while running or time.monotonic() < end:
            while len(running) < self.options.width and time.monotonic() < end:
                argv, tenant = commands[n % len(commands)], self.at_work[n % len(self.at_work)]
                running[self.begin(host, tenant, argv)] = time.monotonic(), os.path.basename(argv[0])
                n += 1
            for p in [p for p in running if not p.alive() or time.monotonic() - running[p][0] > START_S]:
                since, name = running.pop(p)
                took = time.monotonic() - since
                slowest = max(slowest, (took, name))
                if p.alive():
                    p.kill()
                ok = p.wait(5) in (0, lib.SKIPPED)
                ended += ok and time.monotonic() < end
                right += ok
                if not ok:
                    self.failed(p, f"{name}: status {p.popen.returncode} after {took:.1f} s")
            time.sleep(0.002)
        self.say(f"{'Weir' if host else 'native'} | {ended} | {ended / self.options.mix_seconds:.1f} | {right} of {n} | "
                 f"{slowest[0]:.2f} {slowest[1]}")

    # ---------------------------------------------------------------- weights

    def calibrate(self):
        load, us = lib.places.program("sched_load"), self.options.kernel_us
        waves = max(us // BLOCK_US, 1)
        us *= SLOW if self.options.rehearse else 1
        p = self.begin(None, "calibrate", [load, "calibrate", "--us", us, "--waves", waves])
        if p.wait(60) != 0:
            raise lib.Stuck(p.tail())
        rounds, took_us = re.search(r"rounds (\d+) us ([\d.]+)", p.out).groups()
        return [load, "loop", "--wait", "--us", us, "--rounds", rounds, "--waves", waves], float(took_us)

    def loops(self, host, tenants, argv, seconds):
        """The slots of each: (ms, kernels)."""
        running = [self.begin(host, name, [*argv, "--seconds", seconds]) for name in tenants]
        try:
            for p in running:
                p.wait_line("^ready$", START_S)
            for p in running:
                p.say("go")
            for p in running:
                if p.wait(seconds + 60) != 0:
                    self.failed(p, f"status {p.popen.returncode}")
            return [[(float(m[1]), int(m[2])) for line in p.lines if (m := re.match(r"slot ([\d.]+) (\d+)", line))]
                    for p in running]
        finally:
            for p in running:
                p.kill()

    @staticmethod
    def served(slots, begin, end):
        return sum(n for ms, n in slots if begin < ms <= end)

    def weights_case(self, host):
        argv, us = self.calibrate()
        slots, = self.loops(host, self.at_work[:1], argv, 1 + WARM_S)
        begin, end = slots[0][0] + WARM_S * 1e3, slots[-1][0]
        alone = self.served(slots, begin, end) / (end - begin)
        slots = self.loops(host, self.at_work, argv, self.options.seconds + WARM_S)
        if not all(slots):
            raise lib.Stuck("a loop did no work")
        begin, end = max(s[0][0] for s in slots) + WARM_S * 1e3, min(s[-1][0] for s in slots)
        windows = [(at, at + 1000) for at in range(int(begin), int(end) - 999, 500)] or [(begin, end)]
        due = [self.weights[name] for name in self.at_work]
        due = [w / sum(due) for w in due]
        self.say(f"{len(slots)} loops of kernels of {us:.0f} us, {(end - begin) / 1e3:.1f} s | due % | share % | worst second's %")
        whole = self.shares(slots, begin, end)
        seconds = [self.shares(slots, *w) for w in windows]
        for weight in sorted(set(self.weights.values())):
            of = [i for i, name in enumerate(self.at_work) if self.weights[name] == weight]
            wanted = sum(due[i] for i in of)
            worst = max((sum(s[i] for i in of) for s in seconds), key=lambda share: abs(share - wanted))
            self.say(f"weight {weight}, {len(of)} tenants | {100 * wanted:.2f} | {100 * sum(whole[i] for i in of):.2f} | "
                     f"{100 * worst:.2f}")
        off = max(range(len(due)), key=lambda i: abs(whole[i] / due[i] - 1))
        late = max(((abs(s[i] / due[i] - 1), i, s[i]) for s in seconds for i in range(len(due))))
        self.say(f"the tenant farthest off, {self.at_work[off]} | {100 * due[off]:.3f} | {100 * whole[off]:.3f} |")
        self.say(f"in its worst second, {self.at_work[late[1]]} | {100 * due[late[1]]:.3f} | | {100 * late[2]:.3f}")
        total = sum(self.served(s, begin, end) for s in slots) / (end - begin)
        self.say(f"total against one alone | | {total / alone:.3f} |")

    def shares(self, slots, begin, end):
        done = [self.served(s, begin, end) for s in slots]
        return [n / max(sum(done), 1) for n in done]

    # ---------------------------------------------------------------- all

    def run(self):
        host = self.host()
        try:
            begun = time.monotonic()
            host.start(60)
            self.say(f"{self.options.configured} tenants configured, {self.options.at_work} at work, mps={self.options.mps}: "
                     f"the host is ready after {time.monotonic() - begun:.2f} s")
            for case in self.options.cases:
                begun = time.monotonic()
                {"start": self.start, "mix": self.mix, "weights": self.weights_case}[case](host)
                self.say(f"  ({case}: {time.monotonic() - begun:.1f} s)")
            self.say(f"the supervisor has taken {lib.cpu_seconds(host.pid):.2f} s of a processor")
            begun = time.monotonic()
            status = host.stop(limit_s=90)
            self.say(f"the host stopped after {time.monotonic() - begun:.2f} s with status {status}")
        finally:
            said = [line for line in (host.process.errors if host.process else ()) if re.search(" (error|warn) ", line)]
            for line in said[:20]:
                self.say(f"  host: {line}")
            self.say(f"  host: {len(said)} warnings and errors")
            host.discard()
        return 0 if self.bad == 0 else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--cases", nargs="+", choices=CASES, default=CASES)
    parser.add_argument("--configured", type=int, default=256)
    parser.add_argument("--at-work", type=int, default=64)
    parser.add_argument("--programs")
    parser.add_argument("--width", type=int, default=14)
    parser.add_argument("--mix-seconds", type=float, default=10)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--kernel-us", type=int, default=500)
    parser.add_argument("--idle-s", type=int, default=10, help="worker_idle_s of the host")
    parser.add_argument("--mps", default="auto", choices=("auto", "on", "off"))
    parser.add_argument("--log", default="info", help="level of the host's log")
    parser.add_argument("--native", action="store_true", help="the mix natively, too")
    parser.add_argument("--rehearse", action="store_true", help="on softgpu")
    return Tenants(parser.parse_args()).run()


if __name__ == "__main__":
    sys.exit(main())
