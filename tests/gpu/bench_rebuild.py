#!/usr/bin/env python3
"""Programs at rest beside a fault, under MPS: which can go on in another worker, and how long do they wait?

    WEIR_E2E_BUNDLE=FOLDER WEIR_E2E_DRIVER=nvidia FOLDER/tests/gpu/bench_rebuild.py [--cases CASE ...] [--copies N] [--faults N]
        [--python PYTHON] [--quiet-s S]

Each case (rest.py) runs natively, for what its rounds give, and --copies times through Weir with nothing configured but a
tenant for each. They do a round and rest; one more tenant's program has an illegal address; they do another. A row for each
program and fault: what `weir status` says of it (rebuild), how long its round took before and after the fault, whether
the result is native's, and whether its tenant's session has moved.
Exit status: 0 nothing that was portable was lost, and all results are native's.
"""
import argparse
import contextlib
import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../e2e"))
import lib
import rest

HERE = os.path.dirname(os.path.abspath(__file__))
REST_S = 1  # after a round; a session rests after 50 ms


class Program:
    def __init__(self, options, host, case, tenant):
        argv, env = lib.guest_argv(host, lib.SHM if host else lib.NATIVE, tenant, options.python, ["-u", os.path.join(HERE, "rest.py"), case])
        env.update({name: os.environ[name] for name in ("LD_LIBRARY_PATH", "PYTHONPATH") if name in os.environ})
        self.case, self.tenant, self.quiet_s, self.ms, self.lost = case, tenant, options.quiet_s, 0, None
        self.process = lib.Process(argv, env=env, name=case)

    def row(self, name):
        """None: it has not come, and `lost` says why."""
        try:
            return json.loads(self.process.wait_line(rf'^\{{"row": "{name}"', self.quiet_s).string)
        except lib.Stuck:
            self.lost = (f"silent for {self.quiet_s:g} s" if self.process.alive() else
                         f"ended with {self.process.popen.returncode}: {self.process.err[-200:]!r}")
            return None

    def begin(self):
        with contextlib.suppress(BrokenPipeError):  # row() says that it has ended
            self.process.say("")


class Rebuild:
    def __init__(self, options):
        self.options, self.good, self.due = options, True, {}

    def native(self):
        for case in self.options.cases:
            program = Program(self.options, None, case, None)
            rows = [program.row("ready")]
            for number in range(self.options.faults + 1):
                program.begin()
                rows.append(program.row(f"round {number}"))
            program.process.kill()
            if None in rows:
                print(f"{case} does not run natively, and is left out: {program.lost}", flush=True)
            else:
                self.due[case] = [row["sum"] for row in rows[1:]]

    def fault(self, host, tenant):
        """A program with an illegal address comes, and ends. @return seconds until its worker is gone"""
        before = lib.worker_ends(host, tenant)
        guest = lib.start_guest(host, "e2e_fault", "address", tenant=tenant)
        guest.wait_line("^ready$", self.options.quiet_s)
        begin = time.monotonic()
        lib.until(lambda: lib.worker_ends(host, tenant) > before, self.options.quiet_s, "the host's log says that the worker is gone")
        guest.close_stdin()
        guest.wait(self.options.quiet_s)
        return time.monotonic() - begin

    def run(self):
        self.native()
        names = [(case, f"{case}{i}") for case in self.due for i in range(self.options.copies)]
        # A tenant has one fault: from then on its programs have MPS servers of their own for a while.
        guilty = [f"guilty{number}" for number in range(1, self.options.faults + 1)]
        host = lib.Host([name for _, name in names] + guilty)
        host.start(60)
        programs = []
        try:
            for case, name in names:
                programs.append(Program(self.options, host, case, name))
            for program in programs:
                program.row("ready")
            self.rounds(host, programs, 0, {})
            for number in range(1, self.options.faults + 1):
                time.sleep(REST_S)
                said = {s["pid"]: s["rebuild"] for s in host.status()["session"]}
                took = self.fault(host, f"guilty{number}")
                print(f"fault {number}: its worker was gone after {took:.2f} s", flush=True)
                self.rounds(host, [p for p in programs if not p.lost], number, said)
        finally:
            for program in programs:
                program.process.kill()
            if not self.good:
                print(host.process.tail())
            host.stop()
            host.discard()
        return 0 if self.good and self.due else 1

    def rounds(self, host, programs, number, said):
        """A round of each, all at once."""
        if number == 0:
            print("| case | tenant | rebuild | the round before, ms | after, ms | result | moved |\n|---|---|---|---|---|---|---|")
        for program in programs:
            program.begin()
        for program in programs:
            row, pid = program.row(f"round {number}"), program.process.pid
            before, program.ms = program.ms, row["ms"] if row else 0
            equal = row and row["sum"] == self.due[program.case][number]
            if number:
                rebuild = said.get(pid, "no session")
                print(f"| {program.case} | {program.tenant} | {rebuild} | {before:.1f} | {program.ms:.1f} | "
                      f"{'equal' if equal else 'NOT EQUAL' if row else program.lost} | {host.tenant(program.tenant)['moved_sessions']} |", flush=True)
                self.good &= equal or (not row and rebuild != "portable")
            elif not equal:
                self.good = False
                print(f"{program.tenant}, first round: {'not as natively' if row else program.lost}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--cases", nargs="+", choices=rest.CASES, default=rest.CASES)
    parser.add_argument("--copies", type=int, default=2)
    parser.add_argument("--faults", type=int, default=2)
    parser.add_argument("--quiet-s", type=float, default=60)
    parser.add_argument("--python", default=sys.executable)
    return Rebuild(parser.parse_args()).run()


if __name__ == "__main__":
    sys.exit(main())
