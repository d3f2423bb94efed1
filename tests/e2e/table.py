"""Runs CUDA programs in several arrangements and compares what they print, line by line.

Programs print the same in every arrangement that can run them (tests/cuda/check.h). A program may say
SKIP where a device lacks something; that is compared among arrangements over the same device only.
"""
import concurrent.futures
import os
import time

import lib

PROGRAM_LIMIT_S = 60


class Cell:
    """One program in one arrangement."""

    def __init__(self, code, out, seconds, err=""):
        self.code = code
        self.out = out
        self.seconds = seconds
        self.err = err

    @property
    def text(self):
        if self.code is None:
            return "hangs"
        return {0: "pass", lib.SKIPPED: "skip"}.get(self.code, f"FAIL {self.code}")


class Table:
    def __init__(self, arrangements, skipped):
        self.arrangements = arrangements
        self.skipped = skipped
        self.rows = {}

    def equal(self, cells):
        """All pass and print the same; a skip stands beside anything but a failure."""
        ran = [c for c in cells if c.code != lib.SKIPPED]
        return all(c.code == 0 for c in ran) and len({c.out for c in ran}) <= 1

    def differences(self):
        found = []
        for name, cells in self.rows.items():
            if self.equal(cells.values()):
                continue
            reference = next(iter(cells.values()))
            for arrangement, cell in cells.items():
                if cell.code not in (0, lib.SKIPPED) or cell.out != reference.out:
                    found.append(f"{name}, {arrangement}: {cell.text}\n"
                                 + first_difference(reference.out, cell.out)
                                 + cell.err[-600:])
        return found

    def text(self):
        """Markdown."""
        heads = [a for a in self.arrangements if a not in self.skipped]
        lines = ["| program | " + " | ".join(heads) + " | equal |",
                 "|---" * (len(heads) + 2) + "|"]
        for name, cells in sorted(self.rows.items()):
            shown = [f"{cells[a].text} {cells[a].seconds * 1000:.0f} ms" if a in cells else "-"
                     for a in heads]
            equal = "yes" if self.equal(cells.values()) else "NO"
            lines.append(f"| {name} | " + " | ".join(shown) + f" | {equal} |")
        n = sum(self.equal(c.values()) for c in self.rows.values())
        lines += [f"\n{n} of {len(self.rows)} programs equal in: {', '.join(heads)}"]
        lines += [f"{a} skipped: {why}" for a, why in self.skipped.items()]
        return "\n".join(lines)

    def write(self, folder, name="cuda_table"):
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, name + ".md"), "w") as f:
            f.write(self.text() + "\n")
        with open(os.path.join(folder, name + ".tsv"), "w") as f:
            f.write("program\tarrangement\tresult\tms\n")
            for program, cells in sorted(self.rows.items()):
                for arrangement, cell in cells.items():
                    f.write(f"{program}\t{arrangement}\t{cell.text}\t{cell.seconds * 1000:.0f}\n")


def first_difference(a, b):
    for number, (x, y) in enumerate(zip(a.splitlines(), b.splitlines()), 1):
        if x != y:
            return f"  line {number}: '{x}'\n      then '{y}'\n"
    return f"  {len(a.splitlines())} lines, then {len(b.splitlines())}\n" if a != b else ""


def run_one(host, path, arrangement, limit_s=PROGRAM_LIMIT_S):
    start = time.monotonic()
    guest = lib.start_guest(host, path, arrangement=arrangement)
    guest.close_stdin()
    try:
        code = guest.wait(limit_s)
    except lib.Stuck:
        code = None
    finally:
        guest.kill()
    return Cell(code, guest.out, time.monotonic() - start, guest.err)


def run(host, folder, programs, arrangements, skipped, hosts=None, jobs=1, limit_s=PROGRAM_LIMIT_S,
        end=None):
    """The table of these programs; `hosts` gives another host for an arrangement."""
    result = Table(arrangements, skipped)
    hosts = hosts or {}

    def row(name):
        cells = {}
        for arrangement in arrangements:
            if arrangement in skipped or (end and time.monotonic() > end):
                continue
            kind = arrangement.split(" on ")[0]
            cells[arrangement] = run_one(hosts.get(arrangement, host), os.path.join(folder, name),
                                         kind, limit_s)
        return name, cells

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for name, cells in pool.map(row, programs):
            result.rows[name] = cells
    return result
