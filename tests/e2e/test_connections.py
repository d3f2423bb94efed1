#!/usr/bin/env python3
"""CUDA_DEVICE_MAX_CONNECTIONS of a program, in a worker of its tenant's own and in a shared one."""
import os
import re

import lib

VARIABLE = "CUDA_DEVICE_MAX_CONNECTIONS"


class Connections(lib.Case):
    isolation = "group"

    def own(self, **kwargs):
        return self.host({"alice": {"isolation": "process"}, "bob": {}}, **kwargs)

    def worker_of(self, host, tenant):
        return next(w for w in host.status()["worker"] if w["tenant"] == tenant)

    def pid(self, host, tenant="alice"):
        return lib.until(lambda: self.worker_of(host, tenant)["pid"], 10, "its worker lives")

    def numbers(self, host):
        """What the workers have said that they have, in the order in which they started."""
        return [int(m[1]) for m in (re.search(r"worker: connections to the GPU connections=(\d+)", line)
                                    for line in list(host.process.errors)) if m]

    def started(self, host, *numbers):
        """These are the numbers of the workers that came after the host's first two."""
        lib.until(lambda: len(self.numbers(host)) >= 2 + len(numbers), 10, f"workers with {numbers}")
        self.assertEqual(self.numbers(host)[2:], list(numbers))

    def said(self, host, pattern):
        return [line for line in list(host.process.errors) if re.search(pattern, line)]

    def told(self, host, tenant, wanted, has):
        line = f"connections not as wanted tenant={tenant} wanted={wanted} has={has}$"
        lib.until(lambda: self.said(host, line), 10, f"the log says: {line}")
        self.assertEqual(len(self.said(host, "connections not as wanted")), 1)

    def wants(self, connections):
        return {VARIABLE: str(connections)}

    def run_wanting(self, host, connections, **kwargs):
        self.finished(host, "e2e_minimal", env=self.wants(connections), **kwargs)
        host.wait_idle()

    def changes(self, host, connections):
        """Run programs until one's wish was granted: a worker is left as it is for its first second."""
        before = self.pid(host)

        def changed():
            self.run_wanting(host, connections)
            return self.pid(host) != before

        lib.until(changed, 20, f"a worker with {connections}")
        return self.pid(host)

    def test_a_worker_of_its_own_follows_the_program(self):
        host = self.own()
        self.started(host)
        self.assertEqual(sorted(self.numbers(host)), [8, 32])
        first, other = self.pid(host), self.pid(host, "")
        self.finished(host, "e2e_minimal")  # without a wish
        self.run_wanting(host, 8)           # what there is
        self.run_wanting(host, 33)          # no number that CUDA knows
        self.assertEqual(self.pid(host), first)
        self.run_wanting(host, 1)
        second = self.pid(host)
        self.assertNotEqual(second, first)
        self.started(host, 1)
        for _ in range(3):
            self.run_wanting(host, 1)
        self.finished(host, "e2e_minimal")
        host.wait_idle()
        self.assertEqual(self.pid(host), second)
        self.changes(host, 4)
        self.started(host, 1, 4)
        self.assertEqual(self.pid(host, ""), other)
        self.assertEqual(self.worker_of(host, "alice")["restarts"], 0)
        self.assertEqual(self.said(host, "worker died|sessions do not end|killed"), [])
        self.assertEqual(host.stop(), 0)

    def test_nobody_gets_more_than_the_driver_gives(self):
        """Contexts take their connections from a pool: one tenant with 32 would keep others from starting."""
        host = self.own()
        before = self.pid(host)
        self.run_wanting(host, 32)
        self.assertEqual(self.pid(host), before)
        self.told(host, "alice", wanted=32, has=8)

    def test_a_crash_keeps_the_number(self):
        host = self.own()
        self.run_wanting(host, 4)
        os.kill(self.pid(host), 9)
        lib.until(lambda: self.worker_of(host, "alice")["restarts"] == 1 and self.pid(host), 10,
                  "a new worker")
        self.run_wanting(host, 4)
        self.started(host, 4, 4)

    def test_two_that_want_different_numbers_take_turns(self):
        """Soon after one wish was granted the next one is not, and that program runs all the same."""
        host = self.own()
        begin = lib.monotonic_ns()
        guests = [self.guest(host, "e2e_minimal", env=self.wants(n)) for n in (2, 4) * 4]
        for guest in guests:
            self.assertEqual(guest.wait(), 0, guest.tail())
        host.wait_idle()
        lib.until(lambda: len(self.numbers(host)) > 2, 10, "a worker for one of them")
        seconds = (lib.monotonic_ns() - begin) / 1e9
        self.assertLessEqual(len(self.numbers(host)) - 2, 1 + seconds, "one in a second")
        self.assertEqual(self.said(host, "worker died"), [])

    def test_a_session_beside_is_not_disturbed(self):
        host = self.own()
        steady = self.steady(host, tenant="alice")
        before = self.pid(host)
        self.finished(host, "e2e_minimal", env=self.wants(2))
        self.assertEqual(self.pid(host), before)
        self.told(host, "alice", wanted=2, has=8)
        self.steady_undisturbed(steady)

    def test_a_shared_worker_stays(self):
        host = self.own()
        before = self.pid(host, "")
        self.run_wanting(host, 2, tenant="bob")
        self.assertEqual(self.pid(host, ""), before)
        self.told(host, "bob", wanted=2, has=32)

    def test_the_hosts_environment_goes_before(self):
        host = self.own(env=self.wants(12))
        before = self.pid(host)
        self.run_wanting(host, 2)
        self.assertEqual(self.pid(host), before)
        self.started(host)
        self.assertEqual(self.numbers(host), [12, 12])
        self.told(host, "alice", wanted=2, has=12)

    def test_over_zmq(self):
        host = self.own()
        before = self.pid(host)
        self.run_wanting(host, 2, arrangement=lib.ZMQ)
        self.assertNotEqual(self.pid(host), before)
        self.started(host, 2)


if __name__ == "__main__":
    lib.main()
