#!/usr/bin/env python3
"""Jobs of several processes, one on each GPU of a host: natively and through Weir, with PyTorch and NCCL.

    WEIR_E2E_BUNDLE=FOLDER WEIR_E2E_DRIVER=nvidia FOLDER/tests/gpu/bench_ranks.py [--ranks N] [--cases CASE ...]
        [--seconds S] [--python PYTHON] [--quiet-s S]

collectives  NCCL's collectives of 8 B to 256 MiB: time, and the rate on the bus of each GPU.
captured     all_reduce in a CUDA graph.
ddp, fsdp    50 steps of a small network: time of a step, and the loss to the bit.
tensor       two matrix products, divided by hand, and an all_reduce, eager and in a CUDA graph.
load         two jobs at once through Weir with weights 3 and 1, for --seconds: steps a second of each rank beside those of a
             job alone, the shares, and the longest step.

Each arrangement runs all cases; a row is printed when it is there. A rank that has ended with an error or says nothing for
--quiet-s ends its job, and the row before is named. NVLink's multicast stays off (NCCL_NVLS_ENABLE=0).
Exit status: 0 all rows came, and losses are equal.
"""
import argparse
import json
import os
import select
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../e2e"))
import lib

HERE = os.path.dirname(os.path.abspath(__file__))
CASES = ("collectives", "captured", "ddp", "fsdp", "tensor", "load")
ROUNDS = ("native", "Weir", "Weir", "native")
WEIGHTS = {"heavy": 300, "light": 100}


class Job:
    """N ranks that run the same cases."""

    port = 29500

    def __init__(self, options, host, tenant, cases):
        Job.port += 1
        self.options, self.lines, self.before, self.bad = options, {}, "the start", None
        kind = lib.NATIVE if not host else lib.SHM
        self.ranks = []
        for rank in range(options.ranks):
            argv, env = lib.guest_argv(host, kind, tenant, options.python, [
                "-u", os.path.join(HERE, "rank.py"), str(rank), str(options.ranks), str(Job.port), *cases])
            env.update({name: os.environ[name] for name in ("LD_LIBRARY_PATH", "PYTHONPATH") if name in os.environ})
            self.ranks.append(subprocess.Popen(argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                               stderr=subprocess.STDOUT))
            self.lines[self.ranks[-1].stdout.fileno()] = b""
        self.open = {rank.stdout.fileno(): rank for rank in self.ranks}

    def rows(self):
        """What the ranks say, as (number of the rank, row), until all have ended."""
        while self.open:
            ready = select.select(list(self.open), [], [], self.options.quiet_s)[0]
            if not ready:
                self.bad = f"nothing for {self.options.quiet_s:g} s after {self.before}"
                break
            for fd in ready:
                data = os.read(fd, 65536)
                if not data:
                    rank = self.open.pop(fd)
                    if rank.wait() != 0:
                        self.bad = f"a rank ended with {rank.returncode} after {self.before}: {self.lines[fd].decode()[-600:]}"
                        return
                *whole, self.lines[fd] = (self.lines[fd] + data).split(b"\n") if data else [self.lines[fd]]
                for line in whole:
                    if line.startswith(b"{"):
                        row = json.loads(line)
                        self.before = row["row"]
                        yield self.ranks.index(self.open[fd]), row
                    else:  # what a library or a traceback says
                        sys.stderr.write(line.decode(errors="replace") + "\n")

    def until(self, name):
        """Read until all ranks have said this row."""
        missing, rows = set(range(len(self.ranks))), []
        for rank, row in self.rows():
            if row["row"] == name:
                missing.discard(rank)
                rows.append(row)
            if not missing:
                return rows
        raise lib.Stuck(self.bad or f"the ranks ended without {name}")

    def say(self, line):
        for rank in self.ranks:
            rank.stdin.write(line.encode() + b"\n")
            rank.stdin.flush()

    def end(self):
        for rank in self.ranks:
            if rank.poll() is None:
                rank.kill()
            rank.wait()
            rank.stdin.close()
            rank.stdout.close()


class Ranks:
    def __init__(self, options):
        self.options, self.good = options, True
        self.found = {}  # {row: {arrangement: [row]}}

    def host(self):
        host = lib.Host({name: {"weight": weight} for name, weight in WEIGHTS.items()}, log="warn")
        host.start(60)
        return host

    def round(self, host, kind):
        """All cases but the load."""
        cases = [case for case in self.options.cases if case != "load"]
        job = Job(self.options, host if kind == "Weir" else None, "heavy", cases)
        try:
            for rank, row in job.rows():
                if rank == 0 and row["row"] != "ready":
                    self.found.setdefault(row["row"], {}).setdefault(kind, []).append(row)
                    values = " ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in row.items() if k != "row")
                    print(f"{kind:7} {row['row']:28} {values}", flush=True)
            if job.bad:
                self.good = False
                print(f"{kind:7} FAIL: {job.bad}", flush=True)
        finally:
            job.end()

    def load(self, host):
        """Each alone, then both at once."""
        alone = {}
        for who in (("heavy",), ("heavy", "light")):
            seconds = self.options.seconds if len(who) > 1 else min(self.options.seconds, 10)
            jobs = {name: Job(self.options, host, name, ["load"]) for name in who}
            try:
                for job in jobs.values():
                    job.until("loaded")
                for job in jobs.values():
                    job.say(str(seconds))
                time.sleep(seconds)
                rows = {name: sorted(job.until("load"), key=lambda row: row["rank"]) for name, job in jobs.items()}
            except lib.Stuck as error:
                self.good = False
                print(f"load {' '.join(who)} FAIL: {error}", flush=True)
                return
            finally:
                for job in jobs.values():
                    job.end()
            for name in who:
                for row in rows[name]:
                    print(f"load {name} of {len(who)}, rank {row['rank']}: {row['steps_s']:.1f} steps/s, median {row['median_ms']:.2f} ms, "
                          f"longest {row['longest_ms']:.1f} ms", flush=True)
            if len(who) == 1:
                alone = {row["rank"]: row["steps_s"] for row in rows["heavy"]}
                continue
            for rank, (heavy, light) in enumerate(zip(rows["heavy"], rows["light"])):
                print(f"load rank {rank}: {heavy['steps_s'] / light['steps_s']:.3f} : 1 (due {WEIGHTS['heavy'] / WEIGHTS['light']:g}), together "
                      f"{(heavy['steps_s'] + light['steps_s']) / alone[rank]:.3f} of one alone", flush=True)

    def table(self):
        print("\n| row | native | Weir | Weir / native | equal |\n|---|---|---|---|---|")
        for name, kinds in self.found.items():
            key = next((k for k in ("us", "ms") if k in next(iter(kinds.values()))[0]), None)
            best = {kind: min(row[key] for row in rows) for kind, rows in kinds.items()}
            answers = {kind: {row.get("loss", row.get("value")) for row in rows} for kind, rows in kinds.items()}
            told = set().union(*answers.values()) - {None}
            repeats = len(answers.get("native", ())) == 1  # only what native repeats is compared
            equal = "" if not told else "yes" if len(told) == 1 else "NO" if repeats else "native differs from itself"
            self.good &= equal != "NO" and len(kinds) == 2
            native, weir = best.get("native"), best.get("Weir")
            rate = {kind: max((row.get("gb_s", 0) for row in rows), default=0) for kind, rows in kinds.items()}
            cells = [f"{best[kind]:.4g} {key}" + (f", {rate[kind]:.1f} GB/s" if rate[kind] else "") if kind in best else "-"
                     for kind in ("native", "Weir")]
            print(f"| {name} | {cells[0]} | {cells[1]} | {weir / native:.3f} | {equal} |" if native and weir
                  else f"| {name} | {cells[0]} | {cells[1]} | - | {equal} |")

    def run(self):
        host = self.host()
        try:
            if set(self.options.cases) != {"load"}:
                for kind in ROUNDS:
                    self.round(host, kind)
                self.table()
            if "load" in self.options.cases:
                self.load(host)
        finally:
            host.stop()
            host.discard()
        return 0 if self.good else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=CASES)
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--quiet-s", type=float, default=40)
    parser.add_argument("--python", default=sys.executable)
    return Ranks(parser.parse_args()).run()


if __name__ == "__main__":
    sys.exit(main())
