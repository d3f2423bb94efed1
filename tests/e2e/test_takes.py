#!/usr/bin/env python3
"""A tenant that takes all that it can get: it is refused in time, and nobody else notices.

Each case gives the greedy tenant one thing without end (e2e_takes.c, e2e_hostile_takes.c). It must be refused with CUDA's error,
the log must name it, another tenant's programs must start and end well meanwhile, and what was taken must be there
again afterwards.
"""
import socket

import lib

DESCRIPTORS = 2048  # of the host's processes: a half is for connections, of the rest a half for one tenant alone
RAW = ("guarded", "images", "registered", "windows")  # of e2e_hostile_takes.c
OUT_OF_MEMORY = lib.CUDA_ERROR_OUT_OF_MEMORY


class Takes(lib.Case):
    isolation = "group"

    def greedy(self, host, kind, item=None, error=OUT_OF_MEMORY):
        """Who has taken all; gives the guest and how much it got."""
        if kind in RAW:
            guest = self.guest(host, "e2e_hostile", f"ipc://{host.socket('alice')}", kind, arrangement=lib.NATIVE)
        else:
            guest = self.guest(host, "e2e_takes", kind)
        taken = guest.wait_line(rf"^{kind} (\d+), then (\d+)$", limit_s=40)
        self.assertEqual(int(taken[2]), error, guest.tail())
        if item:
            lib.until(lambda: f"no more {item} tenant=alice" in host.process.err, 5, "the log names who was refused")
        return guest, int(taken[1])

    def others_go_on(self, host, worker):
        for _ in range(3):
            self.finished(host, "e2e_minimal", tenant="bob")
        self.assertEqual(host.worker_pid(), worker, "the worker died of it")

    def given_back(self, host, guest):
        guest.close_stdin()
        self.assertEqual(guest.wait(40), 0, guest.tail())
        host.wait_idle(20)

    def check(self, host, kind, most, item=None):
        """Twice: what the first guest took is there for the second."""
        worker = host.worker_pid()
        counts = []
        for _ in range(2):
            guest, taken = self.greedy(host, kind, item)
            self.assertLessEqual(taken, most)
            self.others_go_on(host, worker)
            self.given_back(host, guest)
            counts.append(taken)
        self.assertGreater(counts[0], 0)
        self.assertEqual(counts[1], counts[0])

    def test_exports(self):
        host = self.host(descriptors=DESCRIPTORS)
        self.check(host, "exports", DESCRIPTORS // 2, "descriptors")

    def test_device_memory_in_pieces(self):
        if lib.DRIVER != "softgpu":
            self.skipTest("NVIDIA's driver keeps no descriptor of device memory")
        host = self.host(descriptors=DESCRIPTORS)
        self.check(host, "chunks", DESCRIPTORS // 2, "descriptors")

    def test_pinned_memory_costs_no_descriptor(self):
        host = self.host({"alice": {"pinned": "1GiB"}, "bob": {}})
        worker = host.worker_pid()
        self.finished(host, "e2e_minimal")
        before = len(lib.fds_of(worker))
        guest, taken = self.greedy(host, "pinned")
        self.assertGreaterEqual(taken, 48)
        self.assertLess(len(lib.fds_of(worker)) - before, 16)
        self.others_go_on(host, worker)
        self.given_back(host, guest)

    def test_registered_pages(self):
        with open("/proc/sys/vm/max_map_count") as f:
            mappings = int(f.read())
        if mappings > 70000:
            self.skipTest(f"taking {mappings} mappings takes too long")
        self.check(self.host(), "registered", mappings // 4, "mappings")

    def test_guards_of_files_that_can_be_cut(self):
        self.check(self.host(), "guarded", 1100, "guards of shared files")

    def test_unfinished_images(self):
        self.check(self.host(), "images", 4, "host memory")

    def test_variables_of_modules_are_device_memory(self):
        host = self.host({"alice": {"memory": "256MiB"}, "bob": {}})
        guest, taken = self.greedy(host, "globals")
        self.assertIn(taken, (6, 7))  # 2 MiB are taken already
        self.assertGreaterEqual(host.tenant("alice")["used_bytes"], taken * 32 << 20)
        self.others_go_on(host, host.worker_pid())
        self.given_back(host, guest)

    def test_windows_of_tenants_that_come_later(self):
        host = self.host()
        guest, taken = self.greedy(host, "windows", error=lib.CUDA_SUCCESS)
        self.assertEqual(taken, 64)
        added = host.weir("tenant", "add", "carol", "--run-dir", host.run_dir)
        self.assertEqual(added.returncode, 0, added.stderr)
        self.finished(host, "e2e_minimal", tenant="carol")
        self.given_back(host, guest)

    def test_lines_of_the_log(self):
        host = self.host()
        for _ in range(300):  # each would be a line
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
                s.connect(host.socket("alice"))
        lines = lambda: sum("no hello tenant=alice" in line for line in list(host.process.errors))
        lib.until(lambda: "more are left out tenant=alice" in host.process.err, 10, "the log says that it leaves out")
        self.finished(host, "e2e_minimal", tenant="bob")
        self.assertEqual(lines(), 200)
        host.process.wait_log("session: begun .*tenant=bob")
        lib.until(lambda: self.finished(host, "e2e_minimal") and "left out tenant=alice lines=" in host.process.err, 25,
                  "the log says how many", 1)
        host.process.wait_log("session: begun session")


if __name__ == "__main__":
    lib.main()
