#!/usr/bin/env python3
"""What an ended program held is there for the next one, as soon as its parent has waited for it."""
import re

import lib

# Little, for a loaded machine to free within the seconds that a program waits.
QUOTA = 96 << 20
MOST = 72 << 20
HALF = 56 << 20
ENDS = ("return", "exit", "_exit", "kill", "segv", "abort", "exec", "again", "thread", "clean", "busy")
PROGRAMS = 30


class Ended:
    """In rows of programs, each of which takes most of the quota. Mixed into a class for each isolation."""

    def ended_host(self, tenants=("alice",), free_ms=20, **settings):
        """A host that takes its time to free memory, as a GPU may."""
        common = {"memory": QUOTA, "pinned": QUOTA, **settings}
        return self.host({name: dict(common) for name in tenants}, env={"WEIR_SOFTGPU_FREE_MS": str(free_ms)})

    def rows(self, host, kind, ends=ENDS, n=PROGRAMS, **kwargs):
        guest = self.finished(host, "e2e_ended", "rows", kind, MOST, n, *ends, limit_s=200, **kwargs)
        self.assertIn(f"{n} of {n}\n", guest.out)
        return guest

    def test_device_memory(self):
        self.limit(300)
        host = self.ended_host()
        self.rows(host, "device")
        self.assertNotIn("allocation refused", host.process.err)

    def test_pinned_memory(self):
        self.limit(300)
        self.rows(self.ended_host(), "pinned", n=len(ENDS) + 1)

    def test_one_place(self):
        """Where a tenant may have one program at a time."""
        self.limit(300)
        self.rows(self.ended_host(sessions=1, free_ms=300), "device", n=len(ENDS) + 1)

    def test_lists_and_status(self):
        """While its session is taken apart, nobody sees a program that has ended."""
        host = self.ended_host(free_ms=1000)
        guest = self.guest(host, "e2e_ended", "take", "device", MOST)
        guest.wait_line("^held$")
        self.assertEqual(host.tenant("alice")["sessions"], 1)
        guest.kill()
        rows = host.status()
        self.assertEqual(rows["session"], [])
        alice = next(t for t in rows["tenant"] if t["name"] == "alice")
        self.assertEqual({key: alice[key] for key in ("sessions", "used_bytes", "pinned_bytes", "orphans")},
                         {"sessions": 0, "used_bytes": 0, "pinned_bytes": 0, "orphans": 0})
        self.finished(host, "e2e_nvml", "agree", QUOTA)

    def test_another_tenant_does_not_wait(self):
        """What it is refused has nothing to do with other tenants' ended programs."""
        host = self.ended_host(tenants=("alice", "bob"), free_ms=1000)
        guest = self.guest(host, "e2e_ended", "take", "device", MOST)
        guest.wait_line("^held$")
        guest.kill()
        self.finished(host, "e2e_quota", "fails", QUOTA + (2 << 20), tenant="bob")
        refused = [line for line in host.process.err.splitlines() if "allocation refused" in line]
        self.assertTrue(refused)
        self.assertFalse([line for line in refused if "ended programs" in line])


class EndedAlone(Ended):
    """Programs that have workers of their own."""

    def test_work_that_does_not_end(self):
        """Its worker ends, so the next program has the memory."""
        host = self.ended_host(free_ms=0)
        for _ in range(2):
            guest = self.guest(host, "e2e_ended", "endless", HALF)
            guest.wait_line("^held$", limit_s=30)
            self.assertIn("result 0\n", guest.out)
            guest.kill()


class Kinds:
    """All kinds of memory, in a worker for each program and in one for all."""

    def test_kinds(self):
        self.limit(300)
        host = self.ended_host()
        for kind in ("pool", "vmm", "array", "module", "managed", "registered"):
            with self.subTest(kind=kind):
                self.rows(host, kind, n=len(ENDS) + 1)


class EndedProgram(Kinds, EndedAlone, lib.Case):
    isolation = "program"

    def test_over_zmq(self):
        """A program on this machine that does not share memory with the host."""
        self.limit(300)
        self.rows(self.ended_host(), "device", n=len(ENDS) + 1, arrangement=lib.ZMQ)

    def test_remote(self):
        """A connection that has ended is all that the host sees."""
        self.limit(300)
        remote = self.remote(tenants=("alice",))
        host = self.host({"alice": {"memory": QUOTA}}, remote=remote)
        guest = self.guest(host, "e2e_ended", "take", "device", MOST, arrangement=lib.TCP)
        guest.wait_line("^held$")
        guest.kill()
        lib.until(lambda: "session: ended" in host.process.err, 20, "the host has noticed")
        guest = self.guest(host, "e2e_ended", "take", "device", MOST, arrangement=lib.TCP)
        guest.wait_line("^held$")
        self.assertIn("result 0\n", guest.out)


class EndedStrict(EndedAlone, lib.Case):
    isolation = "strict"


class EndedTenant(Ended, lib.Case):
    isolation = "tenant"

    def test_work_that_does_not_end(self):
        """The next program waits for some seconds, is refused, and the log says why; later ones do not wait."""
        host = self.ended_host(free_ms=0)
        other = self.steady(host, tenant="alice")
        guest = self.guest(host, "e2e_ended", "endless", HALF)
        guest.wait_line("^held$")
        guest.kill()
        for _ in range(2):
            guest = self.guest(host, "e2e_ended", "take", "device", HALF)
            guest.wait_line("^held$", limit_s=30)
            self.assertIn("result 2\n", guest.out)
            guest.close_stdin()
            self.assertEqual(guest.wait(), 0)
        refused = re.findall(r"allocation refused .*tenant=alice .*over the tenant's quota; waited (\d+\.\d) s for 1 "
                             r"ended programs, which hold (\d+) bytes", host.process.err)
        self.assertTrue(refused)
        self.assertGreaterEqual(int(refused[0][1]), HALF)
        self.assertFalse([s for s, _ in refused[1:] if float(s) >= 1], "those that need not wait")
        self.assertEqual(host.tenant("alice")["orphans"], 1)
        self.steady_undisturbed(other)


class EndedGroup(Kinds, Ended, lib.Case):
    isolation = "group"

    def test_a_full_device(self):
        """Then all tenants' ended programs count."""
        self.limit(300)
        host = self.host({name: {} for name in ("alice", "bob")},
                         env={"WEIR_SOFTGPU_FREE_MS": "200", "WEIR_SOFTGPU_MEMORY": str(QUOTA)})
        for i in range(6):
            guest = self.guest(host, "e2e_ended", "take", "device", MOST, tenant=("alice", "bob")[i % 2])
            guest.wait_line("^held$")
            self.assertIn("result 0\n", guest.out)
            guest.kill()

    def test_freed_memory(self):
        """What a program has freed, and Weir keeps for it, is another's as soon as that needs it."""
        device, piece, unit = 256 << 20, 30 << 20, 2 << 20
        host = self.host({name: {} for name in ("alice", "bob")}, env={"WEIR_SOFTGPU_MEMORY": str(device)})
        guest = self.guest(host, "e2e_ended", "freed", piece, 2)
        guest.wait_line("^held$")
        self.assertIn("all is free\n", guest.out)
        # Of two pieces one is kept by the library, and one by the worker.
        other = self.guest(host, "e2e_ended", "take", "device", device - piece - unit, tenant="bob")
        other.wait_line("^held$")
        self.assertIn("result 0\n", other.out)
        self.assertEqual(host.tenant("alice")["used_bytes"], piece)


if __name__ == "__main__":
    lib.main()
