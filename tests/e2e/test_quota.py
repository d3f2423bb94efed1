#!/usr/bin/env python3
"""Quotas: shown as the device's memory, enforced, shared by the sessions of a tenant."""
import re

import lib

QUOTA = 256 << 20


class Quota(lib.Case):
    isolation = "group"

    def quota_host(self, remote=None, **more):
        return self.host({"alice": {"memory": "256MiB", **more}, "bob": {"memory": "1GiB"}}, remote=remote)

    def test_shown_and_enforced(self):
        host = self.quota_host(self.remote())
        steady = self.steady(host)
        for arrangement in (lib.SHM, lib.ZMQ, lib.TCP):
            guest = self.finished(host, "e2e_quota", "check", QUOTA, arrangement=arrangement)
            self.assertRegex(guest.out, r"ok   cuDeviceTotalMem is the quota")
        self.steady_undisturbed(steady)
        self.finished(host, "e2e_quota", "check", 1 << 30, tenant="bob")
        host.wait_idle()

    def test_sessions_of_a_tenant_share_it(self):
        host = self.quota_host()
        first = self.guest(host, "e2e_quota", "hold", 160 << 20)
        first.wait_line("^held$")
        self.assertGreaterEqual(host.tenant("alice")["used_bytes"], 160 << 20)
        self.assertEqual(host.tenant("alice")["quota_bytes"], QUOTA)
        self.finished(host, "e2e_quota", "fails", 160 << 20)
        second = self.guest(host, "e2e_quota", "hold", 64 << 20)
        second.wait_line("^held$")
        first.close_stdin()
        self.assertEqual(first.wait(), 0)
        lib.until(lambda: host.tenant("alice")["used_bytes"] < 160 << 20, 5, "it is given back")
        third = self.guest(host, "e2e_quota", "hold", 160 << 20)
        third.wait_line("^held$")
        for guest in (second, third):
            guest.close_stdin()
            self.assertEqual(guest.wait(), 0)
        host.wait_idle()

    def test_tenants_do_not_share_it(self):
        host = self.quota_host()
        guests = [self.guest(host, "e2e_quota", "hold", 200 << 20, tenant=t)
                  for t in ("alice", "bob")]
        for guest in guests:
            guest.wait_line("^held$")
        self.finished(host, "e2e_quota", "fails", 200 << 20, tenant="alice")
        for guest in guests:
            guest.close_stdin()
            self.assertEqual(guest.wait(), 0)

    def test_arrays_are_cleared_and_charged(self):
        host = self.quota_host()
        self.finished(host, "e2e_quota", "arrays", QUOTA)
        lib.until(lambda: host.tenant("alice")["used_bytes"] == 0, 5, "all is given back")

    def test_limits_of_contexts_are_charged(self):
        """Heap, printf's buffer, stack and pending launches take device memory that no allocation shows."""
        for isolation in ("program", "tenant", "group"):
            with self.subTest(isolation):
                host = self.host({"alice": {"memory": "64MiB", "isolation": isolation}, "bob": {}})
                self.finished(host, "e2e_limits", "charged", *(["shared"] if isolation != "program" else []))
                lib.until(lambda h=host: h.tenant("alice")["used_bytes"] == 0, 10, "nothing is used without a program")
                if isolation == "program":
                    self.finished(host, "e2e_quota", "check", 64 << 20, tenant="alice")
                    continue
                held = self.guest(host, "e2e_quota", "hold", 4 << 20, tenant="alice")  # the context still has the heap
                held.wait_line("^held$")
                self.assertGreaterEqual(host.tenant("alice")["used_bytes"], 36 << 20)

    def test_sessions_are_limited(self):
        host = self.quota_host(sessions=3)
        steady = self.steady(host)
        holders = [self.guest(host, "e2e_quota", "hold", 1 << 20) for _ in range(3)]
        for guest in holders:
            guest.wait_line("^held$")
        refused = self.guest(host, "e2e_minimal", env={"WEIR_LOG": "error"})
        self.assertEqual(refused.wait(), 1)
        self.assertRegex(refused.out, r"gave (100|2|3|46|999)\b", refused.tail())
        self.assertRegex(refused.err, re.compile("session", re.I), "the log says why")
        holders[0].close_stdin()
        self.assertEqual(holders[0].wait(), 0)
        lib.until(lambda: host.tenant("alice")["sessions"] == 2, 5, "one session less")
        self.finished(host, "e2e_minimal")
        for guest in holders[1:]:
            guest.close_stdin()
            self.assertEqual(guest.wait(), 0)
        self.steady_undisturbed(steady)
        host.wait_idle()

    def hostile_limit(self, kind, expected):
        host = self.quota_host(sessions=5)
        steady = self.steady(host)
        result = self.finished(host, "e2e_hostile", f"ipc://{host.socket('alice')}", kind,
                               arrangement=lib.NATIVE)
        self.assertRegex(result.out, expected)
        self.finished(host, "e2e_minimal")
        self.steady_undisturbed(steady)
        host.wait_idle()

    def test_hostile_sessions_limit(self):
        self.hostile_limit("sessions", r"sessions 5, then")

    def test_hostile_monitors_limit(self):
        self.hostile_limit("monitors", r"monitors 5, then: .*too many monitors")


if __name__ == "__main__":
    lib.main()
