#!/usr/bin/env python3
"""A guest that lies: in the ring, in records, with descriptors and in the handshake (e2e_hostile.c).

In each scenario a second tenant works all the time and must notice nothing, the worker must live,
and nothing may be left when the liar has gone.
"""
import subprocess

import lib


class Hostile(lib.Case):
    isolation = "group"

    def scenarios(self, kind):
        listed = subprocess.run([lib.places.program("e2e_hostile"), "list"], capture_output=True,
                                text=True, check=True, timeout=180).stdout
        found = [line.split()[1] for line in listed.splitlines() if line.split()[0] == kind]
        self.assertTrue(found)
        return found

    def run_kind(self, kind, transports=("shm",), limit_s=30):
        host = self.host({"alice": {"memory": "256MiB"}, "bob": {}}, log="error")
        self.finished(host, "e2e_minimal")
        host.wait_idle()
        before = host.resting_footprint()
        worker = host.worker_pid()
        steady = self.steady(host)
        for scenario in self.scenarios(kind):
            for transport in transports:
                with self.subTest(scenario=scenario, transport=transport):
                    self.finished(host, "e2e_hostile", f"ipc://{host.socket('alice')}", scenario,
                                  transport, arrangement=lib.NATIVE, limit_s=limit_s)
                    self.steady_goes_on(steady)
                    lib.until(lambda: not host.leftovers(sessions=1), 10,
                              "only the other tenant's session lives", 0.05)
                    self.finished(host, "e2e_minimal")  # the liar's tenant is still served
                    self.assertEqual(host.worker_pid(), worker, "the worker died of it")
        self.steady_undisturbed(steady)
        host.wait_idle()
        self.assertEqual(host.worker()["restarts"], 0)
        if transports == ("shm",):
            lib.until(lambda: host.footprint() == before, 10,
                      f"descriptors and mappings as before: {before}, now {host.footprint()}", 0.1)

    def test_lies_in_the_ring(self):
        self.run_kind("ring")

    def test_records_that_say_nonsense(self):
        self.run_kind("record")

    def test_records_that_say_nonsense_over_zmq(self):
        self.run_kind("record", ("zmq",))

    def test_descriptors(self):
        self.run_kind("descriptor")

    def test_handshakes(self):
        self.run_kind("handshake")

    def test_one_who_does_not_read(self):
        self.run_kind("blocked", limit_s=40)


if __name__ == "__main__":
    lib.main()
