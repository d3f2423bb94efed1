#!/usr/bin/env python3
"""What a program that shares a worker notices of a neighbour whose PTX takes long to compile.

    WEIR_E2E_BUILD=build/dev WEIR_E2E_DRIVER=nvidia tests/gpu/bench_compile.py [--instructions N]

For each compiler (ptxas, if there is one, and the driver): rounds in a second of e2e_steady, alone and while e2e_compile
loads, links, and loads as a library a text of N instructions; the longest pause between two rounds; and what came of the
text. A text that was compiled before is not compiled again, so each way has another number of instructions.
"""
import argparse
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../e2e"))
import lib

ALONE_S = 3


class Rounds:
    """When the rounds of e2e_steady were seen."""

    def __init__(self, guest):
        self.guest = guest
        self.at_s = []

    def watch(self, until):
        begin_s = time.monotonic()
        self.at_s = [begin_s]
        n = len(self.guest.lines)
        while not until(time.monotonic() - begin_s):
            if len(self.guest.lines) > n:
                self.at_s += [time.monotonic()] * (len(self.guest.lines) - n)
                n = len(self.guest.lines)
            time.sleep(0.001)
        took_s = time.monotonic() - begin_s
        self.at_s.append(begin_s + took_s)
        pause_s = max(b - a for a, b in zip(self.at_s, self.at_s[1:]))
        return f"{took_s:.2f} s, {(len(self.at_s) - 2) / took_s:.1f} rounds/s, longest pause {pause_s * 1e3:.0f} ms"


def measure(compiler, instructions):
    host = lib.Host(("alice", "bob"), isolation="group", host_lines=["", "[forms]", 'mode = "off"', 'cache_dir = "none"', f'compiler = "{compiler}"'])
    guests = []
    try:
        host.start(60)
        guests.append(lib.start_guest(host, "e2e_steady", tenant="bob"))
        guests[0].wait_line(r"^round 0$", 60)
        rounds = Rounds(guests[0])
        print(f"compiler={compiler} alone: {rounds.watch(lambda s: s >= ALONE_S)}")
        for i, how in enumerate(("long", "long-link", "long-library")):
            guest = lib.start_guest(host, "e2e_compile", how, instructions + i, tenant="alice")
            guests.append(guest)
            guest.wait_line("^begins$", 60)
            said = rounds.watch(lambda s, guest=guest: any(line.startswith("result") for line in guest.lines) or not guest.alive())
            status = guest.wait(120)
            result = [line for line in guest.lines if line.startswith(("result", "log"))]
            print(f"compiler={compiler} beside {how}: {said}; {result} status {status}")
    finally:
        for guest in guests:
            guest.kill()
        host.discard()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--instructions", type=int, default=10000)
    options = parser.parse_args()
    for compiler in ("auto", "driver"):
        measure(compiler, options.instructions)


if __name__ == "__main__":
    main()
