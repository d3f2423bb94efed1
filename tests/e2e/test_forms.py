#!/usr/bin/env python3
"""Programs of tests/cuda on softgpu with their kernels in another form, stopped and resumed at random.

Each form, the twins in the program's module and in one of their own, from several seeds; the programs
must print what they print otherwise. With WEIR_E2E_FULL=1 and nvcc all programs, else those that need
no toolkit.
"""
import os
import shutil
import subprocess
import sys
import unittest

import lib

FULL = os.environ.get("WEIR_E2E_FULL") == "1"
LIMIT_S = 900 if FULL else 800
FORMS = os.path.join(lib.places.build, "tests/e2e/softgpu_forms")  # a driver that knows forms (e2e_softgpu_forms.c)


class Forms(lib.Case):
    isolation = "group"

    def arrangements(self, seeds):
        """As they are, in another order, and every form; nothing but softgpu is under them."""
        _, env = lib.guest_argv(None, lib.SOFTGPU, None, "", [])
        base = f"LD_LIBRARY_PATH={FORMS}"
        out = {"as they are": f"LD_LIBRARY_PATH={env['LD_LIBRARY_PATH']}"}
        for seed in seeds:
            out[f"order {seed}"] = f"{base} WEIR_SOFTGPU_ORDER_SEED={seed}"
            for form in ("ticket", "persistent"):
                for apart in (0, 1):
                    out[f"{form} {'apart ' if apart else ''}{seed}"] = (
                        f"{base} WEIR_SOFTGPU_FORM={form} WEIR_SOFTGPU_FORM_APART={apart} "
                        f"WEIR_SOFTGPU_FORM_SEED={seed} WEIR_SOFTGPU_ORDER_SEED={seed + 1}")
        return out

    def run_table(self, folder, seeds):
        argv = lib.table_argv(folder, self.arrangements(seeds), jobs=2)
        result = subprocess.run(argv, capture_output=True, text=True, env=lib.clean_environment(),
                                timeout=LIMIT_S - 5)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_programs_without_toolkit(self):
        self.assertGreaterEqual(len(lib.places.cuda_programs("drv_")), 18)
        self.run_table(lib.places.cuda, range(1, 3))

    def test_programs_of_nvcc(self):
        if not FULL:
            self.skipTest("only with WEIR_E2E_FULL=1")
        if not (shutil.which("nvcc") or os.path.exists("/usr/local/cuda/bin/nvcc")):
            self.skipTest("no nvcc")
        out = os.path.join(lib.places.build, "tests/cuda-forms")
        builder = os.path.join(lib.places.source, "ci/build-cuda-tests")
        subprocess.run([sys.executable, "-B", builder, out], check=True, stdout=subprocess.DEVNULL)
        self.run_table(out, range(1, 5))

    def test_twins_are_made_and_run(self):
        """Otherwise the tests above would compare the same with the same."""
        argv, env = lib.guest_argv(None, lib.SOFTGPU, None,
                                   os.path.join(lib.places.cuda, "drv_vector_add"), [])
        env |= {"LD_LIBRARY_PATH": FORMS, "WEIR_SOFTGPU_FORM": "persistent", "WEIR_SOFTGPU_FORM_APART": "1",
                "WEIR_SOFTGPU_LOG": "debug"}
        result = subprocess.run(argv, capture_output=True, text=True, env=env, timeout=180)
        self.assertEqual(result.returncode, 0, result.stderr)
        ran = [line for line in result.stderr.splitlines() if "form ran" in line]
        self.assertTrue(ran)
        self.assertTrue(all("$persistent" in line for line in ran), ran)


if __name__ == "__main__":
    lib.CASE_LIMIT_S = LIMIT_S
    lib.main()
