#!/usr/bin/env python3
"""Calls of a shared worker that need an idle GPU, beside work of another tenant that does not end."""
import re

import lib

TIMEOUT = 909  # CUDA_ERROR_TIMEOUT
LOAD_WAIT_S = 1
STALL_S = 1.0  # nobody else may wait for longer


class Waits(lib.Case):
    isolation = "group"

    def prompt(self, guest, word, answer):
        seen = len(guest.lines)
        guest.say(word)
        guest.wait_line(answer, after=seen)

    def held(self, host, tenant):
        guest = self.guest(host, "e2e_waits", "held", tenant=tenant)
        guest.wait_line("^ready$")
        return guest

    def beside(self, guest, word, answer, bystander):
        """Have guest do it while bystander launches, one kernel after the other; what guest says."""
        seen, begin = len(guest.lines), lib.lived_s()
        guest.say(word)
        while not any(re.search(answer, line) for line in guest.lines[seen:]):
            launched = lib.lived_s()
            self.prompt(bystander, "launch", "^launched$")
            self.assertLess(lib.lived_s() - launched, STALL_S, f"a launch beside '{word}'")
            self.assertLess(lib.lived_s() - begin, LOAD_WAIT_S + 2 * STALL_S, guest.tail())
        return guest.lines[-1]

    def used(self, host):
        row = host.tenant("bob")
        return row["used_bytes"], row["pinned_bytes"]

    def test_a_child_of_a_host_function_takes_no_part_in_its_parents_session(self):
        host = self.host()
        for arrangement in (lib.SHM, lib.ZMQ):
            with self.subTest(arrangement):
                self.finished(host, "e2e_waits", "fork", 2, arrangement=arrangement)
        host.wait_idle()

    def test_only_the_caller_waits_for_what_does_not_end(self):
        host = self.host({"alice": {}, "bob": {"load_wait_s": LOAD_WAIT_S}, "carol": {}, "dave": {}},
                         env={"WEIR_SOFTGPU_WAITS": "1"})
        bob, carol, another = (self.held(host, tenant) for tenant in ("bob", "carol", "dave"))
        self.prompt(bob, "take", "^taken$")
        self.prompt(bob, "free", "^freed 0$")
        before = self.used(host)
        for work, named in (("spin", "kernels=await"), ("hold", "host_function=1")):
            with self.subTest(work):
                self.prompt(bob, "take", "^taken$")
                taken = self.used(host)
                alice = self.held(host, "alice")
                self.prompt(alice, work, "^held$")
                if work == "spin":
                    another.close_stdin()  # its session waits, the program does not, and nobody counts it any more
                    self.assertEqual(another.wait(), 0, another.tail())
                    self.assertEqual(host.tenant("dave")["sessions"], 0)
                    lib.until(lambda: any("freed later" in line and "tenant=dave" in line for line in host.process.errors), 5,
                              "its session waits")
                    self.assertEqual(self.beside(bob, "load", "^load", carol), f"load: {TIMEOUT}")
                # What cannot fail is put off, so the GPU cannot reach the same memory again.
                self.assertEqual(self.beside(bob, "free", "^freed", carol), f"freed {TIMEOUT}")
                self.assertEqual(self.used(host), taken, "it is charged until it is done")
                self.assertTrue(any(re.search(r"CUDA_ERROR_TIMEOUT.*tenant=bob .*running=\"tenant=alice "
                                              rf"program=e2e_waits.*{named}", line)
                                    for line in host.process.errors), host.process.tail())
                alice.say("open")
                self.assertEqual(alice.wait(), 0, alice.tail())
                lib.until(lambda: self.used(host) == before, 5, "it is given back", 0.02)
                self.prompt(bob, "load", "^loaded$")
        for guest in (bob, carol):
            guest.close_stdin()
            self.assertEqual(guest.wait(), 0, guest.tail())
        host.wait_idle()

    def test_only_the_caller_waits_for_a_reset(self):
        host = self.host({"alice": {}, "bob": {"load_wait_s": LOAD_WAIT_S}, "carol": {}},
                         env={"WEIR_SOFTGPU_WAITS": "1"})
        alice, carol = (self.held(host, tenant) for tenant in ("alice", "carol"))
        bob = self.guest(host, "e2e_waits", "resets", tenant="bob")
        bob.wait_line("^ready$")
        self.prompt(bob, "bump", "^bumped 1$")
        self.prompt(bob, "bump", "^bumped 2$")
        self.prompt(alice, "spin", "^held$")
        self.assertEqual(self.beside(bob, "reset", "^reset", carol), f"reset {TIMEOUT}")
        alice.say("open")
        self.assertEqual(alice.wait(), 0, alice.tail())
        self.prompt(bob, "reset", "^reset 0$")
        self.prompt(bob, "bump", "^bumped 1$")
        for guest in (bob, carol):
            guest.close_stdin()
            self.assertEqual(guest.wait(), 0, guest.tail())
        host.wait_idle()


if __name__ == "__main__":
    lib.main()
