#!/usr/bin/env python3
"""The guest library as a file: what it needs, what it exports, how old a libc it takes."""
import os
import re
import shutil
import subprocess

import lib

ALLOWED = {"libc.so.6", "libm.so.6", "libdl.so.2", "librt.so.1", "libpthread.so.0",
           "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
NEWEST_GLIBC = (2, 28)


class Elf(lib.Case):
    library = os.path.join(lib.places.guest_lib, "libcuda.so.1")

    def readelf(self, *args, library=None):
        if not shutil.which("readelf"):
            self.skipTest("no readelf (binutils)")
        return subprocess.run(["readelf", "-W", *args, library or self.library],
                              capture_output=True, text=True, check=True).stdout

    def exports(self, library):
        names = []
        for line in self.readelf("--dyn-syms", library=library).splitlines():
            fields = line.split()
            if len(fields) >= 8 and fields[4] in ("GLOBAL", "WEAK") and fields[6] != "UND":
                names.append(re.sub("@.*", "", fields[7]))
        return set(names)

    def expected(self):
        """The symbols of CUDA 13.0's libcuda.so.1, from the generated version script."""
        path = os.path.join(lib.places.build or "", "gen/proto/libcuda.map")
        if not lib.places.build:
            self.skipTest("only in a build tree")
        with open(path) as f:
            names = set(re.findall(r"^\s*(cu\w+);", f.read(), re.M))
        return names

    def test_needed(self):
        needed = set(re.findall(r"NEEDED.*\[(.*)\]", self.readelf("-d")))
        self.assertLessEqual(needed, ALLOWED)
        self.assertIn("libc.so.6", needed)

    def test_no_new_glibc(self):
        versions = set(re.findall(r"GLIBC_(\d+)\.(\d+)", self.readelf("--dyn-syms")))
        newest = max((int(a), int(b)) for a, b in versions)
        self.assertLessEqual(newest, NEWEST_GLIBC)

    def test_soname(self):
        self.assertIn("[libcuda.so.1]", self.readelf("-d"))

    def test_libcupti_is_as_careful(self):
        for major in ("12", "13"):
            library = os.path.join(lib.places.guest_lib, f"libcupti.so.{major}")
            with self.subTest(library=library):
                dynamic, symbols = self.readelf("-d", library=library), self.readelf("--dyn-syms", library=library)
                self.assertIn(f"[libcupti.so.{major}]", dynamic)
                self.assertLessEqual(set(re.findall(r"NEEDED.*\[(.*)\]", dynamic)), ALLOWED)
                self.assertNotRegex(dynamic, r"RUNPATH|RPATH|TEXTREL")
                versions = {(int(a), int(b)) for a, b in re.findall(r"GLIBC_(\d+)\.(\d+)", symbols)}
                self.assertLessEqual(max(versions), NEWEST_GLIBC)
                self.assertIn(f"cuptiActivityEnable@@libcupti.so.{major}", symbols)
                self.assertEqual({n for n in self.exports(library) if not n.startswith(("cupti", "libcupti.so."))}, {"InitializeInjectionNvtx2"})

    def test_no_path_inside(self):
        self.assertNotRegex(self.readelf("-d"), r"RUNPATH|RPATH|TEXTREL")

    def test_stack_is_not_executable(self):
        stack = re.search(r"GNU_STACK.*", self.readelf("-l"))[0]
        self.assertNotIn("E", stack.split()[-2])

    def test_exports_are_the_real_ones(self):
        exported = self.exports(self.library)
        strangers = {n for n in exported if not n.startswith("cu") and n not in ("_init", "_fini")}
        self.assertEqual(strangers, set())
        expected = self.expected()
        self.assertGreaterEqual(len(expected), 637)
        self.assertEqual(expected - exported, set(), "missing")
        self.assertEqual(exported - expected, set(), "not in the real library")

    def test_softgpu_exports_the_same(self):
        exported = {n for n in self.exports(lib.places.softgpu) if n.startswith("cu")}
        self.assertEqual(exported, self.expected())


if __name__ == "__main__":
    lib.main()
