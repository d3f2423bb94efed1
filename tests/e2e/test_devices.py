#!/usr/bin/env python3
"""Several devices: who sees which, and that processes on different ones work together."""
import json
import unittest

import lib

N = 2


class Devices(lib.Case):
    def devices_host(self, tenants=("alice", "bob"), n=N, **kwargs):
        if lib.DRIVER != "softgpu" and lib.gpus() < n:
            raise unittest.SkipTest(f"fewer than {n} GPUs")
        return self.host(tenants, env={"WEIR_SOFTGPU_DEVICES": str(n)}, **kwargs)

    def uuids(self, host, **kwargs):
        guest = self.finished(host, "e2e_devices", "list", **kwargs)
        return [line.split()[2] for line in guest.lines if line.startswith("device ")]

    def test_all_are_seen(self):
        host = self.devices_host(remote=self.remote())
        for arrangement in (lib.SHM, lib.ZMQ, lib.TCP):
            uuids = self.uuids(host, arrangement=arrangement)
            self.assertGreaterEqual(len(uuids), N)
            self.assertEqual(len(set(uuids)), len(uuids))
        self.assertGreaterEqual(host.worker()["n_devices"], N)
        self.assertTrue(host.worker()["devices"].startswith("0,1"))
        host.wait_idle()

    def test_visible_devices(self):
        host = self.devices_host()
        uuids = self.uuids(host)
        for text, want in (("1", uuids[1:2]), ("1,0", [uuids[1], uuids[0]]), ("0,9,1", uuids[:1]),
                           ("0,-1,1", uuids[:1])):
            self.assertEqual(self.uuids(host, env={"CUDA_VISIBLE_DEVICES": text}), want, text)
        text = uuids[1]
        text = "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
        self.assertEqual(self.uuids(host, env={"CUDA_VISIBLE_DEVICES": "GPU-" + text}), uuids[1:2])
        # All of it works when the host's second is the program's first.
        self.finished(host, "e2e_devices", "all", env={"CUDA_VISIBLE_DEVICES": "1"})
        host.wait_idle()

    def test_a_tenant_has_its_own(self):
        host = self.devices_host({"alice": {}, "bob": {"devices": "1"}, "carol": {"devices": 1},
                                  "dora": {"devices": "1", "isolation": "process"}})
        uuids = self.uuids(host)
        for tenant in ("bob", "carol", "dora"):
            self.assertEqual(self.uuids(host, tenant=tenant), uuids[1:2])
            self.finished(host, "e2e_devices", "all", tenant=tenant)
        workers = host.status()["worker"]
        self.assertEqual(len(workers), 3, workers)  # bob and carol share one
        self.assertEqual(sorted(w["devices"] for w in workers)[-2:], ["1", "1"])
        host.wait_idle()

    def test_work_on_all(self):
        host = self.devices_host(remote=self.remote())
        for arrangement in (lib.SHM, lib.ZMQ, lib.TCP):
            remote = {} if arrangement == lib.SHM else {"E2E_REMOTE": "1"}
            self.finished(host, "e2e_devices", "all", arrangement=arrangement, env=remote)
        host.wait_idle()

    def test_two_processes_on_two(self):
        """Each on its own device, as the ranks of an all-reduce are."""
        host = self.devices_host()
        for give, take in (({}, "0 1"), ({"CUDA_VISIBLE_DEVICES": "0"}, "0 0")):
            on, other = take.split()
            giver = self.guest(host, "e2e_devices", "give", on, env=give)
            handle = giver.wait_line(r"^handle ([0-9a-f]{128})$")[1]
            visible = {"CUDA_VISIBLE_DEVICES": "1"} if give else {}
            self.finished(host, "e2e_devices", "take", other, handle, env=visible)
            giver.say("")
            self.assertEqual(giver.wait(), 0, giver.tail())
        host.wait_idle()

    def test_nvml_shows_all(self):
        host = self.devices_host({"alice": {}, "bob": {"devices": "1"}})
        uuids = self.uuids(host)
        guest = self.finished(host, "e2e_devices", "nvml", env={"CUDA_VISIBLE_DEVICES": "1"})
        rows = [line.split() for line in guest.lines if line.startswith("nvml ")]
        self.assertEqual([row[2].removeprefix("GPU-").replace("-", "") for row in rows], uuids)
        self.assertEqual(rows[0][3], "5")  # a device is not its own peer
        if lib.DRIVER == "softgpu":
            self.assertEqual(rows[1][3], "0")
        guest = self.finished(host, "e2e_devices", "nvml", tenant="bob")
        rows = [line.split() for line in guest.lines if line.startswith("nvml ")]
        self.assertEqual([row[2].removeprefix("GPU-").replace("-", "") for row in rows], uuids[1:2])

    def test_the_quota_is_for_all(self):
        host = self.devices_host({"alice": {"memory": "256MiB"}, "bob": {}})
        self.finished(host, "e2e_devices", "fill", 1, 200 << 20)
        holder = self.guest(host, "e2e_quota", "hold", 200 << 20)
        holder.wait_line("^held$")
        self.finished(host, "e2e_quota", "fails", 200 << 20, env={"CUDA_VISIBLE_DEVICES": "1"})
        holder.close_stdin()
        self.assertEqual(holder.wait(), 0)
        host.wait_idle()

    def test_a_fault_ends_the_worker_on_all(self):
        host = self.devices_host()
        steady = self.guest(host, "e2e_steady", tenant="bob", env={"CUDA_VISIBLE_DEVICES": "1"})
        steady.wait_line(r"^round 0$")
        self.finished(host, "e2e_fault", "address")
        self.assertNotEqual(steady.wait(), 0)
        lib.until(lambda: host.worker()["restarts"] == 1, 10, "a new worker")
        self.finished(host, "e2e_devices", "all")

    def test_wrong_devices(self):
        for tenants, lines, text in (({"alice": {"devices": "1"}}, ['devices = "0"'], "alice"),
                                     ({"alice": {}}, ['devices = "0,0"'], "devices"),
                                     ({"alice": {}}, ['devices = "first"'], "devices")):
            host = self.devices_host(tenants, host_lines=lines, start=False)
            result = lib.run_weir("serve", "--check", "--config", host.config)
            self.assertEqual(result.returncode, 2, json.dumps([lines, result.stderr]))
            self.assertIn(text, result.stderr)
        host = self.devices_host(host_lines=['devices = "63"'], start=False)
        self.assertEqual(lib.run_weir("serve", "--config", host.config, "--run-dir", host.run_dir,
                                      "--driver", "softgpu").returncode, 69)


if __name__ == "__main__":
    lib.main()
