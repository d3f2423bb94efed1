#!/usr/bin/env python3
"""A kernel that faults: its program hears of it, the worker is replaced, later programs work."""
import lib

KINDS = ("address", "misaligned")


class Fault(lib.Case):
    def fault(self, host, kind, arrangement, tenant="alice"):
        restarts = sum(w["restarts"] for w in host.status()["worker"])
        self.finished(host, "e2e_fault", kind, arrangement=arrangement, tenant=tenant)
        lib.until(lambda: sum(w["restarts"] for w in host.status()["worker"]) == restarts + 1, 5,
                  "the worker was replaced once", 0.02)

    def test_fault_and_after(self):
        host = self.host()
        for arrangement in (lib.SHM, lib.ZMQ):
            for kind in KINDS:
                self.fault(host, kind, arrangement)
                for tenant in ("bob", "alice"):
                    self.finished(host, "e2e_minimal", tenant=tenant, arrangement=arrangement)
        host.wait_idle()
        self.assertEqual(host.stop(), 0)

    def test_programs_that_come_at_once(self):
        """Whoever connects while the worker is being replaced waits, and then works."""
        host = self.host()
        for arrangement in (lib.SHM, lib.ZMQ):
            faulting = self.guest(host, "e2e_fault", "address", arrangement=arrangement)
            faulting.wait_line("^ok +synchronise after the fault")
            late = [self.guest(host, "e2e_minimal", tenant="bob", arrangement=arrangement)
                    for _ in range(4)]
            for guest in late:
                self.assertEqual(guest.wait(20), 0, guest.tail())
            self.assertEqual(faulting.wait(20), 0, faulting.tail())
        host.wait_idle()

    def test_isolated_tenant_is_not_disturbed(self):
        """isolation = "process": a fault in one worker is nothing to a tenant that has its own."""
        host = self.host({"alice": {}, "bob": {"isolation": "process"}})
        steady = self.steady(host, tenant="bob")
        for kind in KINDS:
            self.fault(host, kind, lib.SHM, tenant="alice")
            self.steady_goes_on(steady)
        self.finished(host, "e2e_minimal", tenant="alice")
        self.steady_undisturbed(steady)
        # And the other way round.
        steady = self.steady(host, tenant="alice")
        self.fault(host, "address", lib.SHM, tenant="bob")
        self.finished(host, "e2e_minimal", tenant="bob")
        self.steady_undisturbed(steady)
        host.wait_idle()


if __name__ == "__main__":
    lib.main()
