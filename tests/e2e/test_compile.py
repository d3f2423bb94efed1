#!/usr/bin/env python3
"""PTX of programs that share a worker goes through ptxas in a process of its own, with limits.

softgpu runs PTX, so a script stands for ptxas: its "code" is the text that it was given. What the text's
first comment says, the script does.
"""
import os
import unittest

import lib

CUDA_ERROR_INVALID_PTX = 218
MiB = 1 << 20

PTXAS = """#!/bin/sh
for a; do case $a in *.ptx) in=$a;; *.cubin) out=$a;; esac; done
echo "$$ $*" >> "{folder}/calls"
case $(head -n 1 "$in") in
*memory*) x=aaaaaaaa; while :; do x=$x$x; done;;
*cpu*) while :; do :; done;;
*crash*) kill -SEGV $$;;
*waits*) exec sleep 60;;
*refused*) echo "ptxas $in, line 1; error   : says ptxas" >&2; exit 255;;
*stranger*) echo "of another driver" > "$out"; exit 0;;
esac
if [ -e "{folder}/newer" ]; then echo "of a newer driver" > "$out"; exit 0; fi
cat "$in" > "$out"
"""


class Compile(lib.Case):
    isolation = "group"

    def serve(self, *lines, tenants=None, ptxas=PTXAS):
        self.ptxas_folder = self.folder()
        os.chmod(self.ptxas_folder, 0o777)  # workers may be another user
        path = os.path.join(self.ptxas_folder, "ptxas")
        with open(path, "w") as f:
            f.write(ptxas.format(folder=self.ptxas_folder))
        os.chmod(path, 0o755)
        forms = lib.forms_lines(self.ptxas_folder, "off", compiler=path, cache_dir="none")
        return self.host(tenants or ("alice", "bob"), driver="softgpu", host_lines=[*forms, *lines])

    def calls(self):
        """Of ptxas: [[its pid, arguments]]."""
        try:
            with open(os.path.join(self.ptxas_folder, "calls")) as f:
                return [line.split() for line in f]
        except FileNotFoundError:
            return []

    def load(self, host, how, word, result=0, **kwargs):
        guest = self.finished(host, "e2e_compile", how, word, tenant="alice", **kwargs)
        self.assertIn(f"result {result}", guest.lines)
        self.assertEqual("ran" in guest.lines, result == 0)
        return guest

    def test_what_is_loaded_is_compiled_there_once(self):
        host = self.serve()
        for how in ("load", "library", "link"):
            self.load(host, how, "plain")
        by = ["-c" in call for call in self.calls()]
        # The kernel "another" once; the text twice, since code to be linked is another.
        self.assertEqual(sorted(by), [False, False, True])
        self.assertTrue(all("-arch=sm_90" in call for call in self.calls()), self.calls())

    def test_programs_get_the_same_results(self):
        host = self.serve()
        for program in ("drv_jit_errors", "drv_link", "drv_library", "drv_modules"):
            self.finished(host, program, tenant="alice")
        self.assertGreater(len(self.calls()), 5)

    def test_a_text_beyond_the_limits_is_refused_and_harms_nobody(self):
        host = self.serve("compile_memory = \"64MiB\"", "compile_s = 1")
        steady = self.steady(host)
        for how in ("load", "link"):
            guest = self.load(host, how, "memory", lib.CUDA_ERROR_OUT_OF_MEMORY)
            self.assertIn("log weir: the PTX was not compiled: it needed more memory than compile_memory", guest.lines)
        guest = self.load(host, "load", "cpu", CUDA_ERROR_INVALID_PTX)
        self.assertIn("log weir: the PTX was not compiled: it needed more time than compile_s", guest.lines)
        guest = self.load(host, "load", "crash", CUDA_ERROR_INVALID_PTX)
        self.assertIn("log weir: the PTX was not compiled: the compiler crashed", guest.lines)
        said = [line for line in host.process.errors if "PTX was not compiled" in line]
        self.assertEqual(len(said), 4)
        for line in said:
            self.assertRegex(line, rf'tenant=alice program="e2e_compile" why="[^"]+" compile_memory={64 * MiB} compile_s=1$')
        self.steady_goes_on(steady)

    def test_what_ptxas_refuses_the_driver_compiles(self):
        host = self.serve()
        self.load(host, "load", "refused")
        self.load(host, "load", "stranger")  # code that the driver does not take
        self.assertFalse([line for line in host.process.errors if "the driver refuses" in line])
        n = len(self.calls())
        self.load(host, "load", "plain")
        self.assertGreater(len(self.calls()), n)

    def test_a_ptxas_that_is_newer_than_the_driver_is_left_alone(self):
        host = self.serve()
        open(os.path.join(self.ptxas_folder, "newer"), "w").close()
        self.load(host, "load", "plain")
        lib.until(lambda: [line for line in host.process.errors if "the driver refuses what this ptxas makes" in line],
                  5, "the log says so")
        n = len(self.calls())
        self.load(host, "load", "again")
        self.assertEqual(len(self.calls()), n)

    def test_while_it_compiles_others_go_on_and_its_end_ends_it(self):
        host = self.serve()
        waiting = self.guest(host, "e2e_compile", "load", "waits", tenant="alice")
        call = lib.until(self.calls, 10, "ptxas runs")[0]
        for tenant in ("alice", "bob"):
            self.finished(host, "drv_modules", tenant=tenant)
        self.assertTrue(lib.pid_is_alive(int(call[0])))
        waiting.kill()
        lib.until(lambda: not lib.pid_is_alive(int(call[0])), 5, "ptxas is killed with its program")
        host.wait_idle()

    def test_a_host_that_stops_does_not_wait_for_it(self):
        host = self.serve()
        self.guest(host, "e2e_compile", "load", "waits", tenant="alice")
        call = lib.until(self.calls, 10, "ptxas runs")[0]
        self.assertEqual(host.stop(limit_s=5), 0)
        lib.until(lambda: not lib.pid_is_alive(int(call[0])), 5, "ptxas has gone, too")  # init reaps it

    def test_in_a_worker_of_one_program_the_driver_compiles(self):
        host = self.serve(tenants={"alice": {"isolation": "program"}})
        self.load(host, "load", "memory")
        self.assertEqual(self.calls(), [])


if __name__ == "__main__":
    lib.main()
