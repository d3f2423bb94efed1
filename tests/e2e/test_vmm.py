#!/usr/bin/env python3
"""Virtual memory management between processes: quota, lifetime of descriptors, other tenants, deaths."""
import os
import signal
import unittest

import lib

MIB = 1 << 20


class Vmm(lib.Case):
    isolation = "group"

    def used(self, host, tenant="alice"):
        return host.tenant(tenant)["used_bytes"]

    def offered(self, host, megabytes):
        path = os.path.join(host.folder, "offer.sock")
        guest = self.guest(host, "e2e_vmm", "offer", megabytes * MIB, path)
        guest.wait_line("^offered$")
        return guest, path

    def test_addresses_of_a_driver_that_grants_no_small_wish(self):
        """As with two H200, where no 32 MiB were to be had at an address that the worker had held."""
        host = self.host(env={"WEIR_SOFTGPU_WISH": "1G"})
        self.finished(host, "drv_vmm_order")
        self.assertEqual([line for line in host.process.errors if "vmm: " in line], [])

    def test_quota_is_shared_by_sessions(self):
        host = self.host({"alice": {"memory": "256MiB"}, "bob": {}})
        first = self.guest(host, "e2e_vmm", "hold", 160 * MIB)
        first.wait_line("^held$")
        self.assertGreaterEqual(self.used(host), 160 * MIB)
        self.finished(host, "e2e_vmm", "fails", 160 * MIB)
        self.finished(host, "e2e_quota", "fails", 160 * MIB)
        first.close_stdin()
        self.assertEqual(first.wait(), 0)
        lib.until(lambda: self.used(host) == 0, 5, "the memory is free")
        host.wait_idle()

    def test_memory_is_accounted(self):
        host = self.host({"alice": {"memory": "256MiB"}}, remote=self.remote(("alice",)))
        for arrangement in (lib.SHM, lib.ZMQ, lib.TCP):
            self.finished(host, "e2e_vmm", "account", 128 * MIB, arrangement=arrangement)
            host.wait_idle()

    def test_reservations_of_a_large_device(self):
        host = self.host()
        self.finished(host, "e2e_vmm", "reserve", 12)
        first = self.guest(host, "e2e_vmm", "reserve", 10)
        second = self.guest(host, "e2e_vmm", "reserve", 10, tenant="bob")
        self.assertEqual((first.wait(), second.wait()), (0, 0), first.tail() + second.tail())
        host.wait_idle()

    def test_memory_follows_its_descriptor(self):
        host = self.host()
        maker, path = self.offered(host, 48)
        self.assertGreaterEqual(self.used(host), 48 * MIB, "the descriptor keeps it")
        taker = self.guest(host, "e2e_vmm", "take", path)
        taker.wait_line("^taken$")
        maker.signal(signal.SIGKILL)
        maker.wait()
        lib.until(lambda: host.tenant("alice")["sessions"] == 1, 5, "the maker is gone")
        self.assertGreaterEqual(self.used(host), 48 * MIB, "the taker's mapping keeps it")
        taker.close_stdin()
        self.assertEqual(taker.wait(), 0, taker.tail())
        lib.until(lambda: self.used(host) == 0, 5, "now nobody does")
        host.wait_idle()

    def test_new_memory_is_empty(self):
        host = self.host({"alice": {}, "bob": {}})
        for tenant in ("alice", "bob", "alice"):
            self.finished(host, "e2e_vmm", "fresh", 64 * MIB, tenant=tenant)
        host.wait_idle()

    def test_killed_with_an_open_export(self):
        host = self.host()
        self.finished(host, "e2e_minimal")
        host.wait_idle()
        before = host.resting_footprint()
        for _ in range(5):
            maker, path = self.offered(host, 16)
            maker.signal(signal.SIGKILL)
            maker.wait()
            os.unlink(path)
            lib.until(lambda: self.used(host) == 0, 5, "the memory is free", 0.02)
        host.wait_idle()
        lib.until(lambda: host.footprint() == before, 5, f"descriptors as before: {before}", 0.1)

    def test_other_tenants_are_refused(self):
        host = self.host()
        _, path = self.offered(host, 16)
        self.finished(host, "e2e_vmm", "refused", path, tenant="bob")
        taker = self.guest(host, "e2e_vmm", "take", path)
        taker.wait_line("^taken$")
        taker.close_stdin()
        self.assertEqual(taker.wait(), 0, taker.tail())

    @unittest.skipIf(lib.DRIVER != "softgpu", "knows softgpu's descriptors by their names")
    def test_the_keeper_keeps_it_until_the_worker_is_gone(self):
        host = self.host()
        maker, _ = self.offered(host, 16)
        kept = lib.until(lambda: [t for t in lib.fds_of(host.keeper_pid()).values() if "memfd:weir-softgpu" in t],
                         5, "descriptors in the keeper")
        self.assertTrue(kept)
        os.kill(host.worker_pid(), signal.SIGKILL)
        lib.until(lambda: host.worker()["restarts"] == 1, 10, "a new worker")
        maker.kill()
        self.finished(host, "e2e_vmm", "reserve", 4)
        host.wait_idle()


if __name__ == "__main__":
    lib.main()
