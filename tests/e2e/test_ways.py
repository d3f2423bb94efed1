#!/usr/bin/env python3
"""A tenant whose programs come in several ways at once: here each has a worker of its own; those on other machines
come to a worker of several tenants, and those in a virtual machine, too, or to one that all of them have."""
import os
import signal
import sys

import kvm
import lib
import test_programs
import test_programs_mps
from test_programs import ASKS

LONG_ROUNDS = 180000000  # a kernel of some seconds in softgpu, which the end of its session waits for


class Ways(test_programs.Base):
    def test_nvml_lists_all_programs_of_a_worker_of_several(self):
        """Of those on other machines, which are in one worker: also for a program here, which is in another one."""
        host = self.own(remote=self.remote())
        held = [self.guest(host, "e2e_quota", "hold", mib << 20, tenant="alice", arrangement=how)
                for mib, how in ((32, lib.TCP), (64, lib.TCP), (96, lib.SHM))]
        for guest in held:
            guest.wait_line("^held$")
        all_of_them = {(guest.pid, mib) for guest, mib in zip(held, (32, 64, 96))}
        for how in (lib.SHM, lib.TCP):
            found = self.finished(host, sys.executable, "-c", ASKS, tenant="alice", arrangement=how)
            self.assertEqual(self.processes(found), all_of_them, how)
        held[0].close_stdin()
        self.assertEqual(held[0].wait(), 0)
        found = self.finished(host, sys.executable, "-c", ASKS, tenant="alice")
        self.assertEqual(self.processes(found), all_of_them - {(held[0].pid, 32)})

    def holds_together(self, host, tenant):
        """The quota of 256 MiB: what a program on another machine has counts for one here, and the other way round."""
        for first, second in ((lib.TCP, lib.SHM), (lib.SHM, lib.TCP)):
            holder = self.guest(host, "e2e_quota", "hold", 160 << 20, tenant=tenant, arrangement=first)
            holder.wait_line("^held$")
            self.finished(host, "e2e_quota", "fails", 160 << 20, tenant=tenant, arrangement=second)
            holder.close_stdin()
            self.assertEqual(holder.wait(), 0, holder.tail())
            lib.until(lambda: host.tenant(tenant)["used_bytes"] == 0, 10, "what it had is free")

    def test_the_quota_holds_for_a_tenant_that_is_added(self):
        settings = {"isolation": "program", "memory": "256MiB"}
        host = self.own({"alice": settings}, remote=self.remote(("alice", "carol")))
        host.write_config({"alice": settings, "carol": settings})
        host.process.signal(signal.SIGHUP)
        lib.until(lambda: any(t["name"] == "carol" for t in host.status()["tenant"]), 10, "carol is added")
        self.holds_together(host, "carol")

    def test_the_quota_holds_after_a_quarantine(self):
        host = self.own({"alice": {"isolation": "program", "memory": "256MiB"}}, lines=["quarantine_s = 1"],
                        remote=self.remote())
        faulting = self.guest(host, "e2e_fault", "trap", tenant="alice", arrangement=lib.TCP)
        faulting.close_stdin()
        host.process.wait_log("quarantine begun tenant=alice")
        host.process.wait_log("quarantine ended tenant=alice")
        self.holds_together(host, "alice")

    def test_a_removed_tenant_has_its_place_until_its_last_program_has_ended(self):
        """Also where the worker for its programs on other machines has let it go at once."""
        host = self.own(remote=self.remote())
        guest = self.guest(host, "e2e_fault", "long", LONG_ROUNDS, tenant="alice")
        guest.wait_line("^ready$")
        for words in (("remove", "alice"), ("add", "carol")):
            self.assertEqual(host.weir("tenant", *words, "--run-dir", host.run_dir).returncode, 0)
        ended = "supervisor: worker of a program ended worker=.* tenant="
        host.process.wait_log(ended)
        self.assertRegex(host.process.err, ended + "alice", "the worker was alice's to its end")
        self.finished(host, "e2e_minimal", tenant="carol")

    def reload(self, host, tenants):
        host.write_config(tenants)
        host.process.signal(signal.SIGHUP)
        lib.until(lambda: {t["name"] for t in host.status()["tenant"]} == set(tenants), 10, "the file is followed")

    def test_a_quarantine_ends_when_its_tenant_is_removed(self):
        """Also if the tenant comes back while one of its programs is still ending."""
        host = self.own(lines=["quarantine_s = 60"], remote=self.remote())
        both = host.tenants
        guest = self.guest(host, "e2e_fault", "long", LONG_ROUNDS, tenant="alice")
        guest.wait_line("^ready$")
        faulting = self.guest(host, "e2e_fault", "trap", tenant="alice", arrangement=lib.TCP)
        faulting.close_stdin()
        host.process.wait_log("quarantine begun tenant=alice")
        self.assertEqual(host.tenant("alice")["quarantined"], 1)
        self.reload(host, {"bob": both["bob"]})
        host.process.wait_log("supervisor: worker ended with its tenant")
        self.reload(host, both)
        self.assertEqual((host.tenant("alice")["quarantined"], host.tenant("alice")["faults"]), (0, 0))
        self.finished(host, "e2e_minimal", tenant="alice", arrangement=lib.TCP)

    def test_the_worker_of_a_removed_tenants_machines_is_not_started_again(self):
        """While a program of the tenant is still ending."""
        host = self.own()
        machine = kvm.StandIn(host)
        self.addCleanup(machine.close)
        self.ends(host, machine.start("e2e_minimal"))
        guest = self.guest(host, "e2e_fault", "long", LONG_ROUNDS, tenant="alice")
        guest.wait_line("^ready$")
        self.assertEqual(host.weir("tenant", "remove", "alice", "--run-dir", host.run_dir).returncode, 0)
        host.process.wait_log("supervisor: worker ended with its tenant")
        host.process.wait_log("supervisor: worker of a program ended worker=.* tenant=alice")
        self.assertNotIn("worker died", host.process.err)
        self.assertEqual(host.weir("tenant", "add", "alice", "--run-dir", host.run_dir).returncode, 0)
        self.finished(host, "e2e_minimal", tenant="alice")

    def test_a_key_that_comes_after_a_virtual_machine(self):
        """Its programs have a worker of their own by then, which ends as soon as none of them runs."""
        host = self.host(["alice", "bob"], remote=self.remote(), start=False)
        with open(host.config) as f:
            with_keys = f.read()
        with open(host.config, "w") as f:
            f.write(with_keys.replace(f'key = "{host.remote.public("alice")}"\n', ""))
        host.start()
        machine = kvm.StandIn(host)
        self.addCleanup(machine.close)
        inside = machine.start("e2e_steady")
        self.addCleanup(inside.kill)
        inside.wait_line("^round 0$")
        with open(host.config, "w") as f:
            f.write(with_keys)
        host.process.signal(signal.SIGHUP)
        host.process.wait_log("turned away as long as programs of its virtual machines run.* tenant=alice")
        self.finished(host, "e2e_minimal", tenant="alice", arrangement=lib.TCP, expect=1)
        self.steady_undisturbed(inside)
        host.process.wait_log("moved to the worker of several tenants tenant=alice")
        self.finished(host, "e2e_minimal", tenant="alice", arrangement=lib.TCP)
        inside = machine.start("e2e_minimal")
        self.addCleanup(inside.kill)
        self.ends(host, inside)
        self.assertEqual(len([w for w in host.status()["worker"] if w["state"] == ""]), 1)
        self.assertNotIn("quarantine", host.process.err)


class UnderMps(test_programs_mps.UnderMps):
    def test_another_tenants_fault_turns_no_remote_guests_away(self):
        """Of a tenant in quarantine for a fault under MPS, which has done nothing to the worker of several tenants."""
        host = self.under_mps(lines=["quarantine_s = 60"], remote=self.remote(("alice", "bob", "carol")))
        self.steady(host, tenant="alice")
        os.kill(*self.pids(host, "alice", "busy"), signal.SIGKILL)
        lib.until(lambda: host.tenant("alice")["quarantined"], 5, "alice's programs run outside MPS")
        faulting = self.guest(host, "e2e_fault", "trap", tenant="bob", arrangement=lib.TCP)
        faulting.close_stdin()
        host.process.wait_log("quarantine begun tenant=bob worker=")
        self.finished(host, "e2e_minimal", tenant="alice", arrangement=lib.TCP)
        self.finished(host, "e2e_minimal", tenant="bob", arrangement=lib.TCP, expect=1)
        self.assertNotIn("quarantine begun tenant=alice worker=", host.process.err)


if __name__ == "__main__":
    lib.main()
