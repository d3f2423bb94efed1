#!/usr/bin/env python3
"""Managed memory: docs/design/managed.md (e2e_managed.c, e2e_managed_places.c)."""
import os
import re
import subprocess

import lib

AS_NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
# As such a user, with a device that everybody may open. The test's own mount namespace keeps others' out of it.
DEVICE_FOR_ALL = ["unshare", "--mount", "sh", "-c", 'd=$(mktemp) && rm $d && mknod $d c "$0" "$1" && chmod 666 $d && '
                  'mount --bind $d /dev/userfaultfd && rm $d && shift && exec "$@"']
PLACES = ("quota", "one_range", "no_room", "pages", "graphs", "placed", "kept")  # e2e_managed_places.c
SCENARIOS = ("calls", "flag", "overlap", "function", "threads", "neighbours")


def sanitizers():
    """The runtime that a sanitized guest library needs in a program that is not, which is to come first."""
    said = subprocess.run(["ldd", os.path.join(lib.places.guest_lib, "libcuda.so.1")], capture_output=True, text=True).stdout
    return re.findall(r"lib[at]san\.so\.\d+ => (\S+)", said)


def program_of(name):
    """The program that has the scenario."""
    return lib.places.program("e2e_managed_places" if name in PLACES else "e2e_managed")


class Managed(lib.Case):
    def setUp(self):
        super().setUp()
        self.server = self.host({"alice": {"memory": "512MiB"}}, host_lines=["socket_mode = 0o666"])

    def start(self, name, prefix=(), env=None):
        program = os.path.join(lib.places.cuda, name) if name.startswith("drv_") else program_of(name)
        argv, full_env = lib.guest_argv(self.server, lib.SHM, "alice", program, [name])
        argv[argv.index("--") + 1:argv.index("--") + 1] = prefix
        full_env.update({"WEIR_LOG": "info", **(env or {})})
        guest = lib.Process(argv, env=full_env, name="e2e_managed")
        self.addCleanup(guest.kill)
        return guest

    def scenario(self, name, **kwargs):
        guest = self.start(name, **kwargs)
        code = guest.wait(60)
        self.assertEqual(code, 0, f"{name}\n{guest.tail()}\n{self.server.process.tail()}")
        return guest

    def where(self, **kwargs):
        """Do large and small allocations lie on the device?"""
        return re.search(r"^moves (\d) (\d)$", "\n".join(self.scenario("where", **kwargs).lines), re.M).groups()

    def need_moves(self):
        if self.where()[0] != "1":
            self.skipTest("this user has no right to a userfaultfd")

    def moved(self):
        """How many MiB have changed their place between host and device, of the last program, which has ended."""
        self.server.wait_idle()
        found = re.findall(r"managed: memory has changed its place.* bytes=(\d+)", self.server.process.tail())
        return int(found[-1]) >> 20 if found else 0

    def test_it_lies_on_the_device(self):
        if os.geteuid() != 0:
            self.need_moves()
        self.assertEqual(self.where(), ("1", "1"))

    def test_in_turn_at_random_moments(self):
        self.need_moves()
        for seed in range(1, 6):
            with self.subTest(seed):
                self.scenario("turns", env={"SEED": str(seed)})
        self.server.wait_idle()

    def test_while_others_use_it(self):
        self.need_moves()
        for name in SCENARIOS:
            with self.subTest(name):
                self.scenario(name)
        self.server.wait_idle()

    def test_with_twins(self):
        self.server = self.host({"alice": {"memory": "512MiB"}},
                                host_lines=lib.forms_lines(lib.make_folder("weir-forms-")))
        self.need_moves()
        for name in ("turns", *SCENARIOS):
            with self.subTest(name):
                self.scenario(name)

    def test_advice(self):
        self.scenario("drv_managed_advice")
        self.scenario("drv_managed_advice", prefix=AS_NOBODY)

    def test_variables_of_modules(self):
        self.need_moves()
        self.assertEqual(self.scenario("variables").out.count("moves 1"), 2)
        self.server.wait_idle()
        self.scenario("variables", prefix=AS_NOBODY)

    def test_a_forked_child(self):
        self.need_moves()
        self.scenario("fork")

    def test_more_than_the_quota(self):
        self.server = self.host({"alice": {"memory": "64MiB"}})
        self.need_moves()
        self.scenario("quota")
        self.server.wait_idle()
        self.assertEqual(self.server.tenant("alice")["refused_device"], 0)

    def test_one_range_larger_than_the_quota(self):
        self.server = self.host({"alice": {"memory": "80MiB"}})
        self.need_moves()
        self.scenario("one_range")
        self.server.wait_idle()

    def test_no_room_on_the_host_either(self):
        self.server = self.host({"alice": {"memory": "40MiB", "pinned": "90MiB"}})
        self.need_moves()
        self.scenario("no_room")
        tenant = self.server.tenant("alice")
        self.assertEqual((tenant["refused_device"], tenant["refused_pinned"]), (0, 0))
        self.server.wait_idle()

    def test_pages_change_their_place(self):
        self.server = self.host({"alice": {"memory": "80MiB"}})
        self.need_moves()
        for seed in range(1, 3):
            with self.subTest(seed):
                guest = self.start("pages", env={"SEED": str(seed), "STAYS": "1"})
                lib.until(lambda: "ready" in guest.lines or not guest.alive(), 60, "the program is done")
                tenant = self.server.tenant("alice")
                self.assertGreaterEqual(tenant["managed_host_bytes"], 64 << 20, guest.tail())
                self.assertLessEqual(tenant["used_bytes"], 80 << 20)
                guest.kill()
                self.assertGreater(self.moved(), 5 * 32)
        self.assertEqual(self.server.tenant("alice")["managed_host_bytes"], 0)

    def test_what_graphs_name_is_used(self):
        for ends in (True, False):
            with self.subTest(ends):
                self.server = self.host({"alice": {"memory": "80MiB"}})
                self.need_moves()
                guest = self.start("graphs")
                lib.until(lambda: "captured" in guest.lines or not guest.alive(), 60, "a captured graph ran")
                self.assertEqual(self.server.tenant("alice")["managed_host_bytes"], 64 << 20, guest.tail())
                if ends:
                    guest.kill()
                    self.assertEqual(self.moved(), 4 * 32)  # both arrays, and two others in turn
                    continue
                guest.say("go on")
                self.assertEqual(guest.wait(60), 0, guest.tail())
                self.assertGreaterEqual(self.moved(), (4 + 2 * 3) * 32)  # each array that a changed graph named

    def test_advice_says_where_it_lies(self):
        self.need_moves()
        guest = self.start("placed")
        for line, host_mib in (("device", 0), ("host", 72), ("a part", 40), ("device again", 0), ("busy", 0), ("idle", 32), ("new", 0)):
            lib.until(lambda: line in guest.lines or not guest.alive(), 60, line)
            self.assertTrue(guest.alive(), guest.tail())
            tenant = self.server.tenant("alice")
            self.assertEqual(tenant["managed_host_bytes"], host_mib << 20, f"{line}: {guest.tail()}")
            guest.say("go on")
        self.assertEqual(guest.wait(60), 0, guest.tail())
        self.server.wait_idle()

    def test_what_is_to_lie_on_the_device_stays_there(self):
        self.server = self.host({"alice": {"memory": "80MiB"}})
        self.need_moves()
        self.scenario("kept")
        # It comes at its first use. Beside it is room for one of the other two, which take turns.
        self.assertEqual(self.moved(), (2 + 4 * 2 * 2) * 32)

    def test_what_is_prefetched_is_mapped(self):
        self.need_moves()
        out = self.scenario("prefetched").out
        if tuple(map(int, re.match(r"(\d+)\.(\d+)", os.uname().release).groups())) >= (6, 4): # else pages are mapped by faults
            self.assertRegex(out, r"present (\d+) of \1\b")

    def test_a_program_that_is_killed(self):
        self.need_moves()
        guest = self.start("killed")
        lib.until(lambda: "ready" in guest.lines, 20, "the program has its memory")
        guest.kill()
        self.server.wait_idle()

    def test_a_worker_that_is_killed(self):
        self.need_moves()
        guest = self.start("killed")
        lib.until(lambda: "ready" in guest.lines, 20, "the program has its memory")
        os.kill(self.server.worker_pid(), 9)
        guest.kill()
        self.server.wait_idle()

    def test_forced_moves(self):
        """Each program with managed memory, while blocks are moved at random moments. WEIR_FORCED_MOVES: how many for each."""
        wanted = int(os.environ.get("WEIR_FORCED_MOVES", "20"))
        self.need_moves()
        programs = {name: [os.path.join(lib.places.cuda, name)] for name in lib.places.cuda_programs("managed_")}  # where there is nvcc
        small = self.host({"alice": {"memory": "80MiB"}})
        for name in ("turns", *SCENARIOS, "pages"):
            programs[name] = [program_of(name), name]
        preloads = " ".join([*sanitizers(), os.path.join(os.path.dirname(lib.places.program("e2e_managed")), "e2e_moves.so")])
        for name, argv in programs.items():
            with self.subTest(name):
                n, seed = 0, 0
                while n < wanted:
                    seed += 1
                    self.assertLess(seed, 50 + wanted, f"{n} moves only")
                    server = small if name == "pages" else self.server
                    full, env = lib.guest_argv(server, lib.SHM, "alice", argv[0], argv[1:])
                    full[full.index("--") + 1:full.index("--") + 1] = ["env", f"LD_PRELOAD={preloads}", f"SEED={seed}"]
                    guest = lib.Process(full, env=env, name=name)
                    self.addCleanup(guest.kill)
                    code = guest.wait(100)
                    self.assertEqual(code, 0, f"seed {seed}\n{guest.tail()}\n{server.process.tail()}")
                    n += int(re.search(r"^moves (\d+)$", guest.err, re.M).group(1))

    def test_who_may_open_the_device(self):
        if os.geteuid() != 0 or not os.path.exists("/dev/userfaultfd"):
            self.skipTest("not root, or no /dev/userfaultfd")
        number = os.stat("/dev/userfaultfd").st_rdev
        prefix = [*DEVICE_FOR_ALL, str(os.major(number)), str(os.minor(number)), *AS_NOBODY]
        self.assertEqual(self.where(prefix=prefix), ("1", "1"))
        for name in ("turns", "calls"):
            self.scenario(name, prefix=prefix)

    def test_without_the_right_to_it(self):
        guest = self.scenario("where", prefix=AS_NOBODY)
        self.assertIn("moves 0 0", guest.lines)
        self.assertRegex("\n".join(guest.errors), "/dev/userfaultfd")
        for name in ("turns", *SCENARIOS):
            with self.subTest(name):
                self.scenario(name, prefix=AS_NOBODY)


if __name__ == "__main__":
    lib.main()
