#!/usr/bin/env python3
"""Runs the programs of tests/cuda in several arrangements and compares what they say.

    cuda_table.py FOLDER --arrangement direct='LD_LIBRARY_PATH=build/softgpu' \\
                         --arrangement shm='WEIR_HOST=... build/weir run --'

FOLDER is what ci/build-cuda-tests filled; its programs.txt names the programs and their flags. An
arrangement is a command prefix: leading NAME=value words go into the environment, the rest stands
before the program; {program} and {name} in a word are replaced. A program is ok in an arrangement
when it says PASS (exit 0) and, for every arrangement where it was not skipped, stdout is the same
as in the first of them. Programs marked faulting run only with --faulting.
"""

import argparse
import concurrent.futures
import dataclasses
import difflib
import fnmatch
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import time

SKIP_STATUS = 77
ASSIGNMENT = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*=")


@dataclasses.dataclass
class Result:
    """What one program did in one arrangement."""

    outcome: str  # ok, FAIL, skip
    reason: str
    seconds: float
    status: int
    output: str
    errors: str


def parse_arrangement(text):
    """'name=ENV=value prefix words' as (name, environment, words)."""
    name, separator, rest = text.partition("=")
    if not separator or not name:
        raise argparse.ArgumentTypeError(f"expected name=command, got {text!r}")
    environment, words = {}, []
    for word in shlex.split(rest):
        if not words and ASSIGNMENT.match(word):
            key, _, value = word.partition("=")
            environment[key] = value
        else:
            words.append(word)
    return name, environment, words


def read_programs(folder, only, faulting):
    programs = []
    for line in (folder / "programs.txt").read_text().splitlines():
        name, *flags = line.split()
        if any(fnmatch.fnmatch(name, pattern) for pattern in only) and (
                faulting or "faulting" not in flags):
            programs.append((name, flags))
    return programs


def kill_group(process):
    """The program may have started others: end its whole group."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def run(folder, name, environment, words, timeout_s):
    """Runs one program and judges it by itself: exit status and last line must agree."""
    program = str(folder / name)
    command = [word.replace("{program}", program).replace("{name}", name) for word in words]
    start = time.monotonic()
    try:
        process = subprocess.Popen([*command, program], env={**os.environ, **environment},
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, start_new_session=True)
    except OSError as error:
        return Result("FAIL", f"cannot start: {error}", 0.0, 127, "", "")
    try:
        output, errors = process.communicate(timeout=timeout_s)
        hung = False
    except subprocess.TimeoutExpired:
        kill_group(process)
        output, errors = process.communicate()
        hung = True
    seconds = time.monotonic() - start
    output, errors = output.decode(errors="replace"), errors.decode(errors="replace")
    outcome, reason = judge(process.returncode, output, hung, timeout_s)
    return Result(outcome, reason, seconds, process.returncode, output, errors)


def judge(status, output, hung, timeout_s):
    last = output.splitlines()[-1] if output.strip() else ""
    if hung:
        return "FAIL", f"still running after {timeout_s:g} s"
    if status < 0:
        return "FAIL", f"killed by signal {-status}"
    if status == SKIP_STATUS and last.startswith("SKIP "):
        return "skip", last[5:]
    if status == 0 and last.startswith("PASS "):
        return "ok", ""
    if status == 1 and last.startswith("FAIL "):
        return "FAIL", last[5:]
    return "FAIL", f"exit status {status}, last line {last!r}"


def compare(results):
    """Marks those whose text differs from the first arrangement that ran the program to the end."""
    finished = [result for result in results if result.outcome == "ok"]
    for result in finished[1:]:
        if result.output != finished[0].output:
            difference = difflib.unified_diff(finished[0].output.splitlines(),
                                              result.output.splitlines(), lineterm="", n=0)
            changed = [line for line in list(difference)[2:] if line[:1] in "+-"]
            result.outcome = "FAIL"
            result.reason = "output differs: " + (changed[0] if changed else "line ends")


def cell(result):
    return f"{result.outcome} {result.seconds:.2f}"


def print_table(names, rows):
    header = ["program", *names]
    lines = [[name, *map(cell, results)] for name, results in rows]
    widths = [max(map(len, column)) for column in zip(header, *lines)]
    for line in [header, *lines]:
        print("  ".join(text.ljust(width) for text, width in zip(line, widths)).rstrip())


def write_tsv(path, names, rows):
    with path.open("w") as file:
        file.write("program\tarrangement\toutcome\tseconds\tstatus\treason\n")
        for name, results in rows:
            for arrangement, r in zip(names, results):
                reason = r.reason.replace("\t", " ").replace("\n", " ")
                file.write(f"{name}\t{arrangement}\t{r.outcome}\t{r.seconds:.3f}\t{r.status}\t"
                           f"{reason}\n")


def write_markdown(path, names, rows, summary):
    with path.open("w") as file:
        file.write("| program | " + " | ".join(names) + " |\n")
        file.write("|---" * (len(names) + 1) + "|\n")
        for name, results in rows:
            file.write(f"| {name} | " + " | ".join(map(cell, results)) + " |\n")
        file.write(f"\nOutcome and seconds of one run each. {summary}\n")


def save_outputs(folder, names, rows):
    """stdout and stderr of every run, for a look at what failed."""
    for name, results in rows:
        for arrangement, result in zip(names, results):
            place = folder / arrangement
            place.mkdir(parents=True, exist_ok=True)
            (place / f"{name}.out").write_text(result.output)
            (place / f"{name}.err").write_text(result.errors)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--arrangement", action="append", type=parse_arrangement, required=True,
                        metavar="NAME=PREFIX", help="may be given several times")
    parser.add_argument("--only", action="append", metavar="GLOB", help="programs of such names")
    parser.add_argument("--faulting", action="store_true", help="also those marked faulting")
    parser.add_argument("--jobs", type=int, default=1, help="programs at once (1)")
    parser.add_argument("--timeout", type=float, default=60, metavar="S", help="for each run (60)")
    parser.add_argument("--tsv", type=pathlib.Path)
    parser.add_argument("--markdown", type=pathlib.Path)
    parser.add_argument("--outputs", type=pathlib.Path, metavar="FOLDER",
                        help="keep stdout and stderr of every run")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    names = [name for name, _, _ in arguments.arrangement]
    if len(set(names)) != len(names):
        sys.exit("two arrangements have the same name")
    folder = arguments.folder.resolve()
    programs = read_programs(folder, arguments.only or ["*"], arguments.faulting)

    def run_everywhere(program):
        results = [run(folder, program[0], environment, words, arguments.timeout)
                   for _, environment, words in arguments.arrangement]
        compare(results)
        return program[0], results

    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        rows = list(pool.map(run_everywhere, programs))
    print_table(names, rows)
    counts = {"ok": 0, "FAIL": 0, "skip": 0}
    for name, results in rows:
        for arrangement, result in zip(names, results):
            counts[result.outcome] += 1
            if result.outcome == "FAIL":
                print(f"FAIL {name} in {arrangement}: {result.reason}")
                print("".join(f"    {line}\n" for line in result.errors.splitlines()[-5:]), end="")
    summary = f"{counts['ok']} passed, {counts['FAIL']} failed, {counts['skip']} skipped"
    print(summary)
    if arguments.tsv:
        write_tsv(arguments.tsv, names, rows)
    if arguments.markdown:
        write_markdown(arguments.markdown, names, rows, summary)
    if arguments.outputs:
        save_outputs(arguments.outputs, names, rows)
    return 1 if counts["FAIL"] or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
