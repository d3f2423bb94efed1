#!/usr/bin/env python3
"""How long a host takes to stop that has many workers of programs at rest.

    WEIR_E2E_BUILD=build/dev WEIR_E2E_DRIVER=nvidia tests/gpu/bench_stop.py [--workers N] [--mps]

Starts a host and N programs at once, each with a worker of its own; ends the programs; and stops the host. Prints how
long the stop took and how many workers had to be killed. Two builds are compared by running it with each.
"""
import argparse
import os
import re
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../e2e"))
import lib


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=60)
    parser.add_argument("--mps", action="store_true")
    options = parser.parse_args()
    host = lib.Host({"alice": {"isolation": "program"}},
                    host_lines=["spare_workers = 0", "worker_idle_s = 600", f'mps = "{"on" if options.mps else "off"}"'])
    guests = []
    try:
        host.start(60)
        guests = [lib.start_guest(host, lib.places.program("e2e_steady"), tenant="alice") for _ in range(options.workers)]
        for guest in guests:
            guest.wait_line(r"^round 0$", 120)
        for guest in guests:
            guest.kill()
        kept = lib.until(lambda: [w for w in host.status()["worker"] if w.get("state") == "kept"], 20, "workers at rest")
        lib.until(lambda: not host.status()["session"], 30, "no session")
        begin_s = time.monotonic()
        status = host.stop(limit_s=120)
        took_s = time.monotonic() - begin_s
        said = re.search(r"workers ended .*", host.process.err)
        killed = host.process.err.count("does not stop, killed")
        print(f"stop of {options.workers} workers ({len(kept)} seen at rest), mps={'on' if options.mps else 'off'}: "
              f"{took_s:.2f} s, {killed} killed, status {status}; {said.group(0) if said else 'no line of the host'}")
    finally:
        for guest in guests:
            guest.kill()
        host.discard()


if __name__ == "__main__":
    main()
