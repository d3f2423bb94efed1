#!/usr/bin/env python3
"""An LLM engine that is alone, and another one that comes and goes: natively, under MPS, and with mps_alone = false.

    WEIR_E2E_BUNDLE=FOLDER WEIR_E2E_DRIVER=nvidia FOLDER/tests/gpu/bench_move.py [--requests N] [--seconds S] [--times N]
        [--python PYTHON] [--program PROGRAM ...]

The engine is bench_llm.py; PROGRAM, with its arguments, takes its place and says the same. A row for each arrangement and
phase: what the first engine gets done alone, beside the second one, which works, and when that has ended; and the
longest of its steps, in which the pause of a move is. `where` is the MPS folder of its worker, or "outside". Then weir
move, --times times, of the engine at work: the longest step of each second with a move in it.
Exit status: 0 nothing ended that should not have.
"""
import argparse
import json
import os
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../e2e"))
import lib

HERE = os.path.dirname(os.path.abspath(__file__))
SETTLE_S = 7  # a program has been alone for 5 s (WEIR_ALONE_NS), and its move takes a moment


class Engine:
    def __init__(self, options, host, tenant):
        program = options.program or ["-u", os.path.join(HERE, "bench_llm.py"), "--requests", str(options.requests)]
        argv, env = lib.guest_argv(host, lib.SHM if host else lib.NATIVE, tenant, options.python, program)
        env.update({name: os.environ[name] for name in ("LD_LIBRARY_PATH", "PYTHONPATH") if name in os.environ})
        self.options, self.process = options, lib.Process(argv, env=env, name=f"engine {tenant}")
        self.process.wait_line("^ready$", 200)
        self.n = 0

    def work(self, seconds):
        self.process.say(f"{self.options.requests} {seconds}")

    def row(self, seconds):
        found = self.process.wait_line(r"^\{", seconds + 60, after=self.n)
        self.n = self.process.lines.index(found.string, self.n) + 1
        return json.loads(found.string)

    def end(self):
        self.process.close_stdin()
        if self.process.wait(60) != 0:
            raise lib.Stuck(self.process.tail())


def where(host, engine):
    worker = next(s["worker"] for s in host.status()["session"] if s["pid"] == engine.process.pid)
    with open(f"/proc/{worker}/environ", "rb") as f:
        found = dict(line.split(b"=", 1) for line in f.read().split(b"\0") if b"=" in line)
    return os.path.basename(found.get(b"CUDA_MPS_PIPE_DIRECTORY", b"").decode()) or "outside"


def show(name, phase, row, host=None, engine=None):
    at = where(host, engine) if host else "native"
    at = "outside" if at == "nonexistent" else at
    print(f"| {name} | {phase} | {at} | {row['tokens_s']:.0f} | {row['p50']:.3f} | {row['p99']:.3f} | {row['max']:.1f} |", flush=True)


def phases(options, name, host):
    """Alone, beside another one, alone again."""
    s = options.seconds
    first = Engine(options, host, "alice")
    for phase in ("alone", "beside", "alone again"):
        second = Engine(options, host, "bob") if phase == "beside" else None
        long_s = s + SETTLE_S  # its figures are of the last s; the longest step of all
        first.work(SETTLE_S)
        if second:
            second.work(long_s)
        settle = first.row(SETTLE_S)
        first.work(s)
        row = first.row(s)
        row["max"] = max(row["max"], settle["max"])
        show(name, phase, row, host, first)
        if second:
            show(name, "the second", second.row(long_s), host, second)
            second.end()
    first.end()


def moves(options, host):
    engine, worst = Engine(options, host, "alice"), []
    for number in range(options.times):
        engine.work(2)
        thread = threading.Timer(0.7, lambda: lib.run_weir("move", "--run-dir", host.run_dir, "alice"))
        thread.start()
        worst.append(engine.row(2)["max"])
        thread.join()
    engine.work(2)
    print(f"\n{options.times} moves of an engine at work, moved {host.tenant('alice')['moved_sessions']} times: longest step "
          f"{' '.join(f'{ms:.0f}' for ms in worst)} ms; without a move {engine.row(2)['max']:.1f} ms", flush=True)
    engine.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--requests", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--program", nargs="+", default=None)
    options = parser.parse_args()
    print("| arrangement | phase | where | tokens/s | p50, ms | p99, ms | longest, ms |\n|---|---|---|---|---|---|---|", flush=True)
    if lib.DRIVER == "nvidia":
        phases(options, "native", None)
    for name, lines in (("Weir", []), ("Weir, mps_alone = false", ["mps_alone = false"])):
        host = lib.Host(["alice", "bob"], host_lines=lines)
        host.start(60)
        try:
            phases(options, name, host)
            if not lines:
                moves(options, host)
        except lib.Stuck:
            print(host.process.tail())
            raise
        finally:
            host.stop()
            host.discard()
    return 0


if __name__ == "__main__":
    sys.exit(main())
