"""The include roots: no source sees a header that ci/layers.txt keeps from its folder.

    test_roots.py SOURCE-FOLDER BUILD-FOLDER

Looks at the compile commands of the build, but for those of tests/, whose sources see everything.
"""

import functools
import json
import os
import pathlib
import shlex
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
ROOT, BUILD = (pathlib.Path(argument) for argument in sys.argv[1:3])


def read_reach():
    """Give {folder: it, and all that it may use directly or through others} of ci/layers.txt."""
    reach = {}
    for line in (ROOT / "ci/layers.txt").read_text().splitlines():
        users, arrow, used = line.split("#", 1)[0].partition("->")
        for user in users.split() if arrow else ():
            reach.setdefault(user, {user}).update(used.split())
    for _ in reach:
        for seen in reach.values():
            seen.update(*(reach.get(f, {f}) for f in list(seen)))
    return reach


def read_commands(folders):
    """Give {folder of a target: {the include roots of its sources, as -I..: their compiler}}, and {source: folder}."""
    commands, sources = {}, {}
    split = functools.cache(shlex.split)  # which is slow, and what stands before -o is mostly alike
    for row in json.loads((BUILD / "compile_commands.json").read_text()):
        options, _, output = row["command"].partition(" -o ")
        folder = output.split("/CMakeFiles/")[0]
        if folder in folders:
            words = split(options)
            roots = tuple(w for w in words if w.startswith("-I"))
            commands.setdefault(folder, {})[roots] = words[1] if words[0].endswith("ccache") else words[0]
            sources[pathlib.Path(row["file"])] = folder
    return commands, sources


REACH = read_reach()
COMMANDS, SOURCES = read_commands(REACH)


@functools.cache
def read_headers():
    """Give (folder, header) of each header of the product."""
    return [(f, f"{f}/{p.name}") for f in REACH for p in (ROOT / f).iterdir() if p.suffix in (".h", ".def")]


@functools.cache
def headers_under(root):
    """Give (folder, header) of each header of the product that this include root has."""
    return [(f, h) for f, h in read_headers() if os.path.exists(os.path.join(root, h))]


class Roots(unittest.TestCase):
    def test_each_folder_has_a_target_of_its_own(self):
        for path, folder in SOURCES.items():
            if BUILD not in path.parents:  # not generated
                self.assertEqual(path.parent, ROOT / folder)
        optional = {"kubernetes", "slurm", "container/libvirt", "container/oci"}
        self.assertLessEqual(REACH.keys() - COMMANDS.keys(), optional | {"proto/nvml", "proto/profile"})  # which have headers only

    def test_no_folder_sees_a_header_that_it_may_not_use(self):
        self.assertGreater(len(read_headers()), 100)
        for user, commands in COMMANDS.items():
            for root in {r for roots in commands for r in roots}:
                for folder, header in headers_under(root.removeprefix("-I")):
                    self.assertIn(folder, REACH[user], f"{user} sees {header}")

    def test_compiler_refuses_a_forbidden_include(self):
        for header, compiles in (("base/log.h", True), ("ptx/ptx.h", False), ("host_backend/gate/gate.h", False)):
            for roots, compiler in COMMANDS["sched"].items():
                done = subprocess.run([compiler, *roots, "-std=gnu11", "-E", "-o", os.devnull, "-x", "c", "-"],
                                      input=f'#include "{header}"\n', cwd=os.sep, text=True, capture_output=True)
                self.assertEqual(done.returncode == 0, compiles, done.stderr)
                if not compiles:
                    self.assertIn(header, done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
