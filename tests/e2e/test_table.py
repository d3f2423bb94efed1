#!/usr/bin/env python3
"""Every program of tests/cuda in every arrangement: one table, all equal (cuda_table.py).

The programs that need no toolkit always; with nvcc also a representative ten of the others, or with
WEIR_E2E_FULL=1 all of them. WEIR_E2E_TABLE names a folder for the tables as Markdown and TSV.
"""
import os
import shutil
import subprocess
import sys
import unittest

import lib

REPRESENTATIVE = ("vector_add_shared", "atomics_int", "cg_reduce", "events_timing", "graph_capture",
                  "managed_memory", "memcpy_2d_3d", "printf_device", "streams_ordering",
                  "texture_objects")
FULL = os.environ.get("WEIR_E2E_FULL") == "1"
LIMIT_S = 1500 if FULL else 800


class Table(lib.Case):
    def arrangements(self):
        """{name: command prefix}, and the host that they use; says what is left out and why."""
        try:
            spaces = lib.Namespaces()
            self.addCleanup(spaces.close)
        except unittest.SkipTest as why:
            print(f"zmq tcp goes over loopback: {why}")
            spaces = None
        host = self.host(remote=lib.Remote(self.folder(), ("alice", "bob"), spaces), log="warn")
        prefixes = lib.arrangements(host, (lib.SOFTGPU, lib.SHM, lib.ZMQ, lib.TCP))
        explored = self.host(host_lines=lib.forms_lines(self.folder()), log="warn")
        prefixes["shm, forms explored"] = lib.arrangements(explored, (lib.SHM,))[lib.SHM]
        return prefixes, (host, explored)

    def run_table(self, folder, name, only=("*",), faulting=False):
        arrangements, hosts = self.arrangements()
        out = os.environ.get("WEIR_E2E_TABLE")
        argv = lib.table_argv(folder, arrangements, only=only, faulting=faulting,
                              out=out and os.path.join(out, name), jobs=2)
        result = subprocess.run(argv, capture_output=True, text=True, env=lib.clean_environment(),
                                timeout=LIMIT_S - 5)
        print(result.stdout, flush=True)
        host_says = "\n".join(line for host in hosts for line in host.process.errors[-20:])
        self.assertEqual(result.returncode, 0, result.stderr + host_says)
        for host in hosts:
            host.wait_idle()
            if not faulting:
                self.assertEqual(host.worker()["restarts"], 0, "a program ended the worker")
                self.assertEqual(host.stop(), 0)

    def test_programs_without_toolkit(self):
        self.assertGreaterEqual(len(lib.places.cuda_programs("drv_")), 18)
        self.run_table(lib.places.cuda, "drv")

    def build_with_nvcc(self):
        if not lib.places.build:
            self.skipTest("only in a build tree")
        if not (shutil.which("nvcc") or os.path.exists("/usr/local/cuda/bin/nvcc")):
            self.skipTest("no nvcc")
        out = os.path.join(lib.places.build, "tests/cuda-nvcc")
        builder = os.path.join(lib.places.source, "ci/build-cuda-tests")
        present = set(os.listdir(out)) if os.path.isdir(out) else set()
        if FULL:
            names = ["*"]
        else:
            names = [n for n in REPRESENTATIVE if n not in present]
        for name in names:
            subprocess.run([sys.executable, "-B", builder, "--only", name, out], check=True,
                           stdout=subprocess.DEVNULL)
        if not FULL:  # the builder lists what it built last
            with open(os.path.join(out, "programs.txt"), "w") as f:
                f.writelines(f"{name}\n" for name in REPRESENTATIVE)
        return out

    def test_programs_of_nvcc(self):
        self.run_table(self.build_with_nvcc(), "nvcc")

    def test_programs_of_nvcc_that_fault(self):
        if not FULL:
            self.skipTest("only with WEIR_E2E_FULL=1")
        self.run_table(self.build_with_nvcc(), "faulting", only=("faulting_*",), faulting=True)


if __name__ == "__main__":
    lib.CASE_LIMIT_S = LIMIT_S
    lib.main()
