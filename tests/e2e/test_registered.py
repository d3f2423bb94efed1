#!/usr/bin/env python3
"""Registered memory: what the table in docs/design/registered.md says (e2e_registered*.c)."""
import re
import shutil

import lib

AROUND = ("neighbours", "stack", "fork", "kernel_io", "direct_io", "all")
NO_PROC = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"]
NOT_SUPPORTED = 801
AS_NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


class Registered(lib.Case):
    def setUp(self):
        super().setUp()
        self.server = self.host({"alice": {"memory": "512MiB"}}, host_lines=["socket_mode = 0o666"])

    def scenario(self, name, part="", prefix=(), arrangement=lib.SHM, env=None):
        """A scenario as alice, with a command around the program; what it printed."""
        program = lib.places.program("e2e_registered" + part)
        argv, full_env = lib.guest_argv(self.server, arrangement, "alice", program, [name])
        argv[argv.index("--") + 1:argv.index("--") + 1] = prefix
        full_env.update({"WEIR_LOG": "warn", **(env or {})})
        guest = lib.Process(argv, env=full_env, name=f"e2e_registered{part}")
        self.addCleanup(guest.kill)
        code = guest.wait(60)
        if code == lib.SKIPPED:
            self.skipTest(guest.tail())
        self.assertEqual(code, 0, f"{name} {arrangement}\n{guest.tail()}\n{self.server.process.tail()}")
        return guest

    def scenarios(self, names, **kwargs):
        for name in names:
            with self.subTest(name):
                self.scenario(name, **kwargs)
        self.server.wait_idle()

    def reached(self, guest):
        """With which result kernels could reach the memory."""
        return int(re.search(r"^reached (\d+)$", "\n".join(guest.lines), re.M)[1])

    def refused(self, guest, why):
        self.assertEqual(self.reached(guest), NOT_SUPPORTED)
        self.assertRegex("\n".join(guest.errors), f"do not reach registered memory.*{why}")

    def test_how_kernels_come_by_addresses(self):
        self.scenarios(["kernels"])

    def test_many_and_several_in_a_page(self):
        self.scenarios(["many", "page"])

    def test_kinds_of_memory(self):
        self.scenarios(["kinds", "remapped", "protected"])

    def test_what_others_do_with_the_pages(self):
        self.scenarios(AROUND, part="_around")

    def test_order_of_copies(self):
        self.scenarios(["order"], part="_copies")

    def test_pages_are_shared_for_copies_that_go_on(self):
        self.assertIn("replaced 1", self.scenario("steady", part="_copies").lines)

    def test_more_than_goes_through_the_arena(self):
        self.scenario("large", part="_copies")

    def test_over_a_network(self):
        guest = self.scenario("limited", arrangement=lib.ZMQ)
        self.assertEqual(self.reached(guest), NOT_SUPPORTED)

    def test_pinned_pages(self):
        guest = self.scenario("pinned", part="_around")
        # Where Linux cannot be asked, no page of such a program is replaced.
        results = set(re.findall(r"^reached .* (\d+)$", "\n".join(guest.lines), re.M))
        self.assertEqual(len(results), 1, results)
        self.assertLessEqual(results, {"0", str(NOT_SUPPORTED)})

    def test_another_user(self):
        for part, name in [("_around", name) for name in AROUND] + [("", "page"), ("_copies", "steady")]:
            with self.subTest(name):
                self.scenario(name, part=part, prefix=AS_NOBODY)

    def test_without_ptrace(self):
        self.refused(self.scenario("no_ptrace"), "ptrace")
        self.scenario("alone")

    def test_under_a_debugger(self):
        if not shutil.which("strace"):
            self.skipTest("no strace here")
        self.refused(self.scenario("limited", prefix=["strace", "-f", "-o", "/dev/null"]), "ptrace")

    def test_without_proc(self):
        self.refused(self.scenario("limited", prefix=NO_PROC), "no /proc")
        self.scenario("dropped")

    def test_without_memfd_create(self):
        self.assertEqual(self.reached(self.scenario("no_memfd")), lib.CUDA_SUCCESS)

    def test_without_madvise(self):
        self.assertEqual(self.reached(self.scenario("no_madvise")), lib.CUDA_SUCCESS)

    def test_without_files(self):
        for limit in ("fsize=0", "memlock=0", "nproc=64"):
            with self.subTest(limit):
                guest = self.scenario("limited", prefix=["prlimit", f"--{limit}"])
                self.assertEqual(self.reached(guest), lib.CUDA_SUCCESS)

    def test_the_quota_counts_what_is_shared(self):
        server = self.host({"alice": {"pinned": "32MiB"}})
        self.server = server
        guest = self.scenario("quota", part="_copies")
        self.assertEqual(self.reached(guest), lib.CUDA_ERROR_OUT_OF_MEMORY)
        server.wait_idle()


if __name__ == "__main__":
    lib.main()
