#!/usr/bin/env python3
"""Every program of tests/cuda in every arrangement: one table, all equal.

The programs that need no toolkit always; with nvcc also a representative ten of the others, or with
WEIR_E2E_FULL=1 all of them. WEIR_E2E_TABLE names a folder for the table as Markdown and TSV.
"""
import os
import shutil
import subprocess
import sys
import unittest

import lib
import table

REPRESENTATIVE = ("vector_add_shared", "atomics_int", "cg_reduce", "events_timing", "graph_capture",
                  "managed_memory", "memcpy_2d_3d", "printf_device", "streams_ordering",
                  "texture_objects")


class Table(lib.Case):
    def run_table(self, folder, programs):
        spaces = None
        try:
            spaces = lib.Namespaces()
            self.addCleanup(spaces.close)
            skipped = {}
        except unittest.SkipTest as why:
            skipped = {lib.TCP: str(why)}
        remote = lib.Remote(self.folder(), ("alice", "bob"), spaces)
        host = self.host(remote=remote)
        result = table.run(host, folder, programs,
                           (lib.SOFTGPU, lib.SHM, lib.ZMQ, lib.TCP), skipped)
        print(result.text())
        if os.environ.get("WEIR_E2E_TABLE"):
            result.write(os.environ["WEIR_E2E_TABLE"])
        host.wait_idle()
        self.assertEqual(host.worker()["restarts"], 0, "a program ended the worker")
        self.assertEqual(result.differences(), [])
        self.assertEqual(host.stop(), 0)

    def test_programs_without_toolkit(self):
        programs = lib.places.cuda_programs("drv_")
        self.assertGreaterEqual(len(programs), 18)
        self.run_table(lib.places.cuda, programs)

    def test_programs_of_nvcc(self):
        if not lib.places.build:
            self.skipTest("only in a build tree")
        builder = os.path.join(lib.places.source, "ci/build-cuda-tests")
        if not (shutil.which("nvcc") or os.path.exists("/usr/local/cuda/bin/nvcc")):
            self.skipTest("no nvcc")
        full = os.environ.get("WEIR_E2E_FULL") == "1"
        out = os.path.join(lib.places.build, "tests/cuda-nvcc")
        names = ["*"] if full else REPRESENTATIVE
        for name in names:
            if full or not os.path.exists(os.path.join(out, name)):
                subprocess.run([sys.executable, "-B", builder, "--only", name, out], check=True,
                               stdout=subprocess.DEVNULL)
        programs = sorted(n for n in os.listdir(out)
                          if os.path.isfile(os.path.join(out, n)) and os.access(os.path.join(out, n),
                                                                                os.X_OK)
                          and (full or n in REPRESENTATIVE))
        self.run_table(out, programs)


if __name__ == "__main__":
    lib.CASE_LIMIT_S = 1500 if os.environ.get("WEIR_E2E_FULL") == "1" else 150
    lib.main()
