#!/usr/bin/env python3
"""CUPTI in guests: the rows that a profiler of the program sees, and `weir profile`."""
import collections
import glob
import json
import os
import subprocess

import lib


class Cupti(lib.Case):
    def host_with_cupti(self, more=(), **kwargs):
        """A host whose workers have a libcupti: that of softgpu, which tests have."""
        library = lib.places.program("e2e_softgpu_cupti.so")
        return self.host(host_lines=[f'softgpu = "{library}"', f'cupti = "{library}"', *more], **kwargs)

    def both_hosts(self, **kwargs):
        """A host that records by events, and one that has a libcupti."""
        for make in (self.host, self.host_with_cupti):
            with self.subTest(host=make.__name__):
                yield make(**kwargs)

    def test_rows(self):
        for host in self.both_hosts():
            self.finished(host, "e2e_cupti", "rows")

    def test_rows_of_a_program_that_has_another_libcupti(self):
        host = self.host()
        for library in ("e2e_cupti_linked12.so", "e2e_cupti_linked13.so", "cupti_other/libcupti.so.13"):
            for when in ("early", "late"):
                with self.subTest(library=library, when=when):
                    self.finished(host, "e2e_cupti", "rows", when, lib.places.program(library))

    def test_a_libcupti_that_is_not_there_costs_only_a_line(self):
        host = self.host(host_lines=['cupti = "/nowhere/libcupti.so.13"'])
        self.finished(host, "e2e_cupti", "rows")
        self.assertIn("there is no libcupti", host.process.tail())

    def test_rows_of_the_nodes_of_graphs(self):
        self.finished(self.host_with_cupti(), "e2e_cupti_graph", "nodes", limit_s=100)

    def test_a_graph_is_one_row_without_libcupti(self):
        self.finished(self.host(), "e2e_cupti_graph", "whole")

    def test_rows_of_devices_contexts_and_streams(self):
        self.finished(self.host(), "e2e_cupti", "resources")

    def test_markers_of_nvtx(self):
        host = self.host()
        self.finished(host, "e2e_cupti", "nvtx")

    def test_rows_of_a_program_on_another_machine(self):
        for host in self.both_hosts(remote=self.remote()):
            self.finished(host, "e2e_cupti", "rows", arrangement=lib.TCP)

    def test_all_of_many_launches_are_recorded(self):
        for host in self.both_hosts():
            self.finished(host, "e2e_cupti", "many", 100000, limit_s=100)

    def test_rows_of_kernels_that_stop_and_resume(self):
        host = self.host_with_cupti(more=lib.forms_lines(self.folder()))
        self.finished(host, "e2e_cupti", "many", 2000, limit_s=100)

    def test_callbacks(self):
        host = self.host()
        self.finished(host, "e2e_cupti", "callbacks")

    def test_what_was_profiled_once_is_profiled_again(self):
        for host in self.both_hosts():
            self.finished(host, "e2e_cupti", "twice")

    def test_a_worker_that_used_libcupti_serves_no_other_program(self):
        host = self.host_with_cupti()

        def kept():
            return [row["pid"] for row in host.status()["worker"] if row["state"] == "kept"]

        self.finished(host, "e2e_minimal")
        lib.until(kept, 10, "its worker is kept")
        self.finished(host, "e2e_cupti", "rows")
        lib.until(lambda: not kept(), 10, "its worker has gone")

    def test_what_is_not_there_says_so(self):
        host = self.host()
        self.finished(host, "e2e_cupti", "refused")

    def test_two_tenants_see_their_own_rows(self):
        for isolation in ("strict", "group", None):
            for host in self.both_hosts(tenants={name: {"isolation": isolation} for name in ("alice", "bob")}):
                guests = [self.guest(host, "e2e_cupti", "tenant", n, tenant=tenant)
                          for tenant, n in (("alice", 2000), ("bob", 1000))]
                for guest in guests:
                    self.ends(host, guest, limit_s=60)

    def profiled(self, host, *args, cwd):
        done = subprocess.run([lib.places.weir, "profile", *args], env=lib.clean_environment(), cwd=cwd, capture_output=True,
                              text=True, timeout=180)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_weir_profile_writes_calls_kernels_and_copies(self):
        host, folder = self.host(), self.folder()
        run = ("--run-dir", host.run_dir, "--tenant", "alice", "--", lib.places.program("drv_vector_add"))
        self.profiled(host, "-o", "out.json", *run, cwd=folder)
        with open(os.path.join(folder, "out.json")) as f:
            events = [event for event in json.load(f) if event["ph"] == "X"]
        kinds = collections.Counter(event["cat"] for event in events)
        launches = {event["args"]["correlation"]: event for event in events if event["name"].startswith("cuLaunchKernel")}
        kernels = [event for event in events if event["cat"] == "kernel"]
        self.assertTrue(kernels and kinds["memcpy"] and kinds["driver"], kinds)
        self.assertEqual(len(kernels), len(launches))
        for kernel in kernels:
            launch = launches[kernel["args"]["correlation"]]
            self.assertGreaterEqual(kernel["ts"], launch["ts"])
            self.assertGreater(kernel["dur"], 0)
            self.assertNotEqual(kernel["pid"], launch["pid"])
        self.profiled(host, *run, cwd=folder)
        self.assertEqual(len(glob.glob(os.path.join(folder, "weir-profile.[0-9]*.json"))), 1)

    def test_weir_profile_writes_the_ranges_of_nvtx(self):
        host, folder = self.host(), self.folder()
        self.profiled(host, "-o", "out.json", "--run-dir", host.run_dir, "--tenant", "alice", "--",
                      lib.places.program("e2e_cupti"), "ranges", cwd=folder)
        with open(os.path.join(folder, "out.json")) as f:
            events = json.load(f)
        nvtx = [event for event in events if event.get("cat") == "nvtx"]
        self.assertEqual([(event["ph"], event.get("name")) for event in nvtx],
                         [("B", "outer"), ("B", "inner"), ("B", "said"), ("i", "now"), ("E", None), ("E", None), ("E", None),
                          ("b", "started"), ("e", None), ("B", 'with "work"'), ("E", None)])
        self.assertEqual(nvtx[2]["args"], {"domain": "a domain"})
        launch = next(event for event in events if event.get("name", "").startswith("cuLaunchKernel"))
        self.assertTrue(nvtx[9]["ts"] <= launch["ts"] <= nvtx[10]["ts"])
        self.assertEqual((nvtx[9]["pid"], nvtx[9]["tid"]), (launch["pid"], launch["tid"]))

    def test_weir_profile_shows_the_wait_for_another_tenant(self):
        host, folder = self.host(), self.folder()
        self.guest(host, "e2e_steady", tenant="alice").wait_line(".")

        def waits():
            self.profiled(host, "-o", "out.json", "--run-dir", host.run_dir, "--tenant", "bob", "--",
                          lib.places.program("drv_batches"), cwd=folder)
            with open(os.path.join(folder, "out.json")) as f:
                return [event for event in json.load(f) if event.get("cat") == "gate"]

        rows = lib.until(waits, 40, "bob waits for alice")
        self.assertRegex(rows[0]["name"], "^waits: [a-z]")
        self.assertTrue(all(row["dur"] >= 10 for row in rows))
        self.assertTrue(all(row["tid"] > 1000000 for row in rows))


if __name__ == "__main__":
    lib.main()
