#!/usr/bin/env python3
"""Weir's TOML reader against the cases of toml-test, which are not in this repository.

judge.py DECODER FOLDER [-v]: FOLDER is toml-test's "tests", with the list files-toml-1.0.0. Prints how many valid and
invalid cases pass, and each that fails; -v prints the complaint about each invalid one. Exit status 1 if one fails.
"""
import datetime
import json
import math
import os
import subprocess
import sys


def plain(value):
    """A value of the tagged JSON as what it means, so that 1.0 equals 1.00 and Z equals +00:00."""
    if isinstance(value, list):
        return [plain(v) for v in value]
    if set(value) != {"type", "value"} or not isinstance(value["type"], str):
        return {key: plain(v) for key, v in value.items()}
    kind, text = value["type"], value["value"]
    if kind == "float":
        number = float(text)
        return kind, "nan" if math.isnan(number) else number
    if kind == "integer":
        return kind, int(text)
    if kind.startswith(("datetime", "time")):
        text = text.upper().replace(" ", "T").replace("Z", "+00:00")
        whole, dot, rest = text.partition(".")
        digits = rest[:len(rest) - len(rest.lstrip("0123456789"))]
        text = whole + (dot + digits[:6].ljust(6, "0") if dot else "") + rest[len(digits):]
        form = datetime.time if kind == "time-local" else datetime.datetime
        return kind, form.fromisoformat(text)
    return kind, text


def main():
    decoder, folder = sys.argv[1:3]
    with open(os.path.join(folder, "files-toml-1.0.0")) as f:
        names = [line.strip()[:-5] for line in f if line.strip().endswith(".toml")]
    passed, failed = {"valid": 0, "invalid": 0}, []
    for name in names:
        kind = name.split("/")[0]
        with open(os.path.join(folder, name + ".toml"), "rb") as f:
            result = subprocess.run([decoder], stdin=f, capture_output=True)
        good = result.returncode == (kind == "invalid")
        if kind == "valid" and good:
            with open(os.path.join(folder, name + ".json"), encoding="utf-8") as f:
                good = plain(json.loads(result.stdout)) == plain(json.load(f))
        passed[kind] += good
        if kind == "invalid" and "-v" in sys.argv:
            print(f"{name}: {result.stderr.decode().strip()}")
        if not good:
            failed.append(f"{name}: exit status {result.returncode} {result.stderr.decode().strip()}")
    for kind, n in passed.items():
        print(f"{kind}: {n} of {sum(name.startswith(kind + '/') for name in names)} pass")
    print(*failed, sep="\n", end="\n" if failed else "")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
