#!/usr/bin/env python3
"""Generate everything that follows from the description of the Driver API (proto/api).

    weirgen.py --out DIR            write the generated files under DIR
    weirgen.py --list               print their names, one per line
    weirgen.py --lock               give new operations their ids in proto/wire.lock
    weirgen.py --coverage FILE      write docs/coverage.md
    weirgen.py --coverage FILE --check   fail when it is not current
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import emit_abi
import emit_coverage
import emit_driver
import emit_exports
import emit_guest
import emit_host
import emit_ops
import emit_parity
import emit_procaddr
import emit_calls_log
import emit_words
import model as description
import ops
from writer import write_if_changed

PROTO = Path(__file__).resolve().parent.parent
EMITTERS = [emit_abi, emit_driver, emit_procaddr, emit_exports, emit_ops, emit_guest, emit_host,
            emit_parity, emit_calls_log, emit_words]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--api", default=PROTO / "api", help="folder of the description")
    parser.add_argument("--lockfile", default=PROTO / "wire.lock", help="ids of the operations")
    parser.add_argument("--out", help="folder for the generated files")
    parser.add_argument("--lock", action="store_true", help="give new operations their ids")
    parser.add_argument("--list", action="store_true", help="print the generated files' names")
    parser.add_argument("--coverage", type=Path, help="docs/coverage.md")
    parser.add_argument("--check", action="store_true", help="compare --coverage, do not write it")
    return parser.parse_args()


def handle_coverage(path, text, only_check):
    if not only_check:
        write_if_changed(path, text)
        return 0
    if path.exists() and path.read_text() == text:
        return 0
    print(f"weirgen: {path} is not current; run weirgen.py --coverage {path}", file=sys.stderr)
    return 1


def main():
    arguments = parse_arguments()
    try:
        model = description.load(arguments.api, PROTO / "wire" / "kinds.def")
        ops.assign_ids(model, Path(arguments.lockfile), arguments.lock)
    except description.DescriptionError as error:
        print(f"weirgen: {error}", file=sys.stderr)
        return 1
    files = {}
    try:
        for emitter in EMITTERS:
            files.update(emitter.emit(model))
    except description.DescriptionError as error:
        print(f"weirgen: {error}", file=sys.stderr)
        return 1
    if arguments.list:
        print("\n".join(files))
    if arguments.out:
        for name, text in files.items():
            write_if_changed(Path(arguments.out) / name, text)
    if arguments.coverage:
        return handle_coverage(arguments.coverage, emit_coverage.emit_text(model), arguments.check)
    return 0


if __name__ == "__main__":
    sys.exit(main())
