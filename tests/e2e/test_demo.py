#!/usr/bin/env python3
"""ci/demo on softgpu: it runs green, and prints what it should."""
import os
import re
import subprocess

import lib

LIMIT_S = 1800  # it builds


class Demo(lib.Case):
    def test_demo(self):
        if not lib.places.build:
            self.skipTest("only in a build tree")
        env = dict(lib.clean_environment(), WEIR_SKIP_INSTALL="1",
                   WEIR_DEMO_BUILD=os.environ.get("WEIR_E2E_DEMO_BUILD",
                                                  os.path.join(lib.places.build, "demo")))
        try:
            result = subprocess.run([os.path.join(lib.places.source, "ci/demo")], env=env, text=True,
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT_S)
        except subprocess.TimeoutExpired as late:
            self.fail(f"ci/demo has not ended after {LIMIT_S} s; it said:\n{(late.stdout or b'').decode()}")
        self.assertEqual(result.returncode, 0, result.stdout)
        rows = re.findall(r"(?m)^(alice|bob) +(drv_\w+) +(ok|FAILED) +(\d+) ms +(.*)$", result.stdout)
        self.assertGreaterEqual(len(rows), 18, result.stdout)
        self.assertEqual({tenant for tenant, *_ in rows}, {"alice", "bob"})
        for tenant, program, outcome, _, check in rows:
            self.assertEqual(outcome, "ok", program)
            self.assertRegex(check, rf"^(PASS|SKIP) {program}")
        self.assertIn("== all programs passed", result.stdout)
        self.assertRegex(result.stdout, r"(?m)^alice +300 ")


if __name__ == "__main__":
    lib.CASE_LIMIT_S = LIMIT_S + 20
    lib.main()
