#!/usr/bin/env python3
"""CUPTI in guests: the rows that a profiler of the program sees."""
import lib


class Cupti(lib.Case):
    def test_rows(self):
        host = self.host()
        self.finished(host, "e2e_cupti", "rows")

    def test_rows_of_a_program_on_another_machine(self):
        host = self.host(remote=self.remote())
        self.finished(host, "e2e_cupti", "rows", arrangement=lib.TCP)

    def test_all_of_many_launches_are_recorded(self):
        host = self.host()
        self.finished(host, "e2e_cupti", "many", 100000, limit_s=100)

    def test_callbacks(self):
        host = self.host()
        self.finished(host, "e2e_cupti", "callbacks")

    def test_what_was_profiled_once_is_profiled_again(self):
        host = self.host()
        self.finished(host, "e2e_cupti", "twice")

    def test_what_is_not_there_says_so(self):
        host = self.host()
        self.finished(host, "e2e_cupti", "refused")

    def test_two_tenants_see_their_own_rows(self):
        for isolation in ("strict", "group"):
            with self.subTest(isolation=isolation):
                host = self.host(tenants={name: {"isolation": isolation} for name in ("alice", "bob")})
                guests = [self.guest(host, "e2e_cupti", "tenant", n, tenant=tenant)
                          for tenant, n in (("alice", 2000), ("bob", 1000))]
                for guest in guests:
                    self.ends(host, guest, limit_s=60)


if __name__ == "__main__":
    lib.main()
