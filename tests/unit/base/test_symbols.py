"""Everything that the guest library links may ask glibc for nothing newer than 2.28.

usage: test_symbols.py CC LIBRARY...: links the archives whole into a shared library, as the guest
library does, and reads the versions of what it needs.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

NEWEST = (2, 28)


def needed_versions(path):
    text = subprocess.run(["objdump", "-T", path], check=True, capture_output=True, text=True).stdout
    for line in text.splitlines():
        match = re.search(r"\*UND\*.*\(?GLIBC_(\d+)\.(\d+)[\d.]*\)?\s+(\w+)$", line)
        if match:
            yield (int(match[1]), int(match[2])), match[3]


def main(compiler, *archives):
    with tempfile.TemporaryDirectory() as folder:
        library = str(pathlib.Path(folder) / "probe.so")
        subprocess.run([compiler, "-shared", "-o", library, "-Wl,--whole-archive", *archives,
                        "-Wl,--no-whole-archive", "-Wl,--exclude-libs,ALL",
                        "-Wl,-Bsymbolic", "-Wl,-z,defs", "-Wl,--no-as-needed",
                        "-l:libpthread.so.0", "-l:libdl.so.2"], check=True)
        versions = list(needed_versions(library))
    if not versions:
        sys.exit("no versioned symbols found: the probe is broken")
    late = sorted(f"{name} (GLIBC_{v[0]}.{v[1]})" for v, name in versions if v > NEWEST)
    if late:
        sys.exit("newer than glibc 2.28: " + ", ".join(late))
    print(f"{len(versions)} symbols, newest GLIBC_{'.'.join(map(str, max(v for v, _ in versions)))}")


if __name__ == "__main__":
    main(*sys.argv[1:])
