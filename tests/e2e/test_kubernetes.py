#!/usr/bin/env python3
"""weir-dra: claims become shares, whatever ends and begins meanwhile. Kubelet and the API server are stand-ins (kubernetes.py)."""
import concurrent.futures
import os
import random
import signal
import sys
import time
import unittest

import kubernetes
import lib
from kubernetes import GIB, MIB, NODE


class Claims(kubernetes.Case):
    def test_a_claim_from_its_beginning_to_its_end(self):
        host = self.node()
        self.assertEqual(self.kubelet.info[0:2], ("DRAPlugin", "gpu.weir.dev"))
        self.assertIn("v1.DRAPlugin", self.kubelet.info[2])
        device = self.api.devices()[0]
        self.assertEqual((device["name"], device["allowMultipleAllocations"], device["capacity"]["memory"]["value"]),
                         ("gpu0", True, "4Gi"))
        self.assertNotIn("taints", device)
        self.assertEqual(self.api.slice()["metadata"]["ownerReferences"][0]["kind"], "Node")
        claim = self.api.claim("512Mi", "30", parameters={"weight": 90, "priority": "low", "sm_limit": 50}, pod="train-0")
        name = self.tenant_of(claim)
        devices = self.prepared(claim)
        share = claim["status"]["allocation"]["devices"]["results"][0]["shareID"]
        self.assertEqual(devices, [(["gpu"], NODE, "gpu0", [f"weir.dev/gpu={name}"], share)])
        self.assertIn(name, self.cdi_names())
        row = host.tenant(name)
        self.assertEqual((row["quota_bytes"], row["min_share_pct"], row["weight"], row["priority"], row["sm_limit_pct"]),
                         (512 * MIB, 30, 90, "low", 50))
        self.assertTrue(row["labels"].startswith("namespace=ml,pod=train-0,claim=claim-"), row["labels"])
        self.finished(host, "e2e_quota", "shows", 512 * MIB, tenant=name)
        # A second pod shares the claim, at the same time as others ask again.
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for answer in pool.map(lambda _: self.kubelet.prepare(claim), range(8)):
                self.assertEqual(answer[claim["metadata"]["uid"]], (devices, ""))
        self.assertEqual(self.tenants(), [name])
        self.assertEqual(self.records(), [claim["metadata"]["uid"]])
        self.ended(claim)
        self.assertEqual((self.tenants(), self.records()), ([], []))
        self.ended(claim)  # again: kubelet may ask twice
        self.assertNotIn(name, self.cdi_names())

    def test_a_wrong_claim_is_explained(self):
        self.node()
        big = self.api.claim("5Gi")
        for claim, why in (
                (big, "'gpu0'.*5120 MiB.*it has 4096 MiB"),
                (self.api.claim(parameters={"weight": 300}), "weight=300 is over the limit of 100 for claims"),
                (self.api.claim(parameters={"priority": "high"}), "priority=high is over the limit of normal"),
                (self.api.claim(parameters={"priority": "urgent"}), "one of: low, normal, high"),
                (self.api.claim(parameters={"wieght": 3}), "unknown field 'wieght'; did you mean 'weight'"),
                (self.api.claim(parameters={"weight": 0}), "number from 1 to 10000"),
                (self.api.claim(parameters={"weight": "9"}), "number from 1 to 10000"),
                (self.api.claim(parameters={"sm_limit": 101}), "number from 1 to 100"),
                (self.api.claim(parameters={"kind": "Slice"}), "kind Share, not"),
                (self.api.claim(parameters={"apiVersion": "gpu.weir.dev/v9"}), "v1alpha1, kind Share, not 'gpu.weir.dev/v9'"),
                (self.api.claim("a lot"), "memory is no quantity"),
                (self.api.claim(compute="101"), "101 %"),
                (self.api.claim(device="gpu7"), "this node has no device 'gpu7'"),
                (self.api.claim(driver="gpu.other.dev"), "no device of gpu.weir.dev")):
            with self.subTest(why=why):
                self.refused(claim, why)
        replaced = self.api.claim()
        replaced = {**replaced, "metadata": {**replaced["metadata"], "uid": "0f8fad5b-d9cb-469f-a165-70867728950e"}}
        self.refused(replaced, "replaced by another")
        self.refused({"metadata": {"namespace": "ml", "name": "gone", "uid": replaced["metadata"]["uid"]}}, "404")
        self.refused({"metadata": {"namespace": "ml", "name": "gone", "uid": "../../x"}}, "uid is none")
        # What a class says is an administrator's, and a claim's own parameters come after it.
        claim = self.api.claim(of_class={"weight": 500, "priority": "high"}, parameters={"weight": 60})
        self.prepared(claim)
        row = self.weir.tenant(self.tenant_of(claim))
        self.assertEqual((row["weight"], row["priority"]), (60, "high"))

    def test_several_gpus_and_requests(self):
        host = self.node(gpus=2, memory=GIB)
        self.assertEqual([d["name"] for d in self.api.devices()], ["gpu0", "gpu1"])

        def result(request, device, memory, compute=None):
            return {"request": request, "driver": "gpu.weir.dev", "pool": NODE, "device": device, "shareID": request,
                    "consumedCapacity": {"memory": memory, **({"compute": compute} if compute else {})}}

        two = self.api.claim(results=[result("a", "gpu0", "128Mi"), result("b", "gpu1", "256Mi")])
        devices = self.prepared(two)
        self.assertEqual([(d[0], d[2], d[4]) for d in devices], [(["a"], "gpu0", "a"), (["b"], "gpu1", "b")])
        self.finished(host, "e2e_quota", "each", 128 * MIB, 0, tenant=self.tenant_of(two))
        self.finished(host, "e2e_quota", "each", 256 * MIB, 1, tenant=self.tenant_of(two))
        # Two requests may be given one GPU: the share has the sum.
        merged = self.api.claim(results=[result("a", "gpu1", "128Mi", "10"), result("b", "gpu1", "64Mi", "20")])
        self.assertEqual(len(self.prepared(merged)), 2)
        row = host.tenant(self.tenant_of(merged))
        self.assertEqual(row["min_share_pct"], 30)
        self.finished(host, "e2e_quota", "shows", 192 * MIB, tenant=self.tenant_of(merged))
        self.ended(two, merged)
        self.refused(self.api.claim(results=[result("a", "gpu0", "64Mi", "10"), result("b", "gpu1", "64Mi", "20")]),
                     "different amounts of compute")

    def test_contexts_are_taken_off_what_is_published(self):
        """Two spares have one each, and so will each claim's program, the next claim's, too."""
        self.node(gpus=2, env={"WEIR_SOFTGPU_CONTEXT_BYTES": str(64 * MIB)})

        def published(*mib):
            now = lambda: [d["capacity"]["memory"]["value"] for d in self.api.devices()]  # noqa: E731
            try:
                lib.until(lambda: now() == [f"{n}Mi" for n in mib], 10, f"{mib} MiB are published")
            except lib.Stuck as why:
                raise lib.Stuck(f"{why}, but {now()}") from None

        published(4096 - 3 * 64, 4096 - 3 * 64)
        claims = [self.api.claim("512Mi", device=device) for device in ("gpu0", "gpu0", "gpu1")]
        for claim in claims:
            self.prepared(claim)
        published(4096 - 5 * 64, 4096 - 4 * 64)
        for claim in claims[1:]:
            self.ended(claim)
        published(4096 - 4 * 64, 4096 - 3 * 64)

    def test_the_successor_of_a_deleted_pod_comes_first(self):
        self.node()
        old, new = self.api.claim("4Gi"), self.api.claim("4Gi")
        self.prepared(old)
        self.prepared(new)  # a force-deleted pod's claim is free at once
        self.assertEqual(len(self.tenants()), 2)
        self.ended(old)
        self.assertEqual(self.tenants(), [self.tenant_of(new)])

    def test_strangers_on_the_sockets(self):
        self.node()
        call, end = self.kubelet.call, self.kubelet.endpoint
        for method, data, code in (("/v1.DRAPlugin/Nothing", b"", kubernetes.grpc.StatusCode.UNIMPLEMENTED),
                                   ("/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources", b"\xff\xff\xff",
                                    kubernetes.grpc.StatusCode.INVALID_ARGUMENT)):
            with self.assertRaises(kubernetes.grpc.RpcError) as caught:
                call(end, method, data)
            self.assertEqual(caught.exception.code(), code)
        with self.assertRaises(kubernetes.grpc.RpcError):
            call(end, "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources", bytes(2 << 20), 5)
        self.kubelet.version = "v1beta1"
        claim = self.api.claim()
        self.prepared(claim)
        self.assertEqual(os.stat(end).st_mode & 0o777, 0o600)

    def test_thirty_claims_at_once(self):
        self.node()
        claims = [self.api.claim("64Mi") for _ in range(30)]
        times = []

        def prepare(claim):
            begin = time.monotonic()
            self.prepared(claim)
            times.append(time.monotonic() - begin)

        begin = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(30) as pool:
            list(pool.map(prepare, claims))
        took = time.monotonic() - begin
        self.assertEqual(len(self.tenants()), 30)
        with open(f"/proc/{self.driver.pid}/status") as f:
            peak = next(line.split()[1] for line in f if line.startswith("VmHWM"))
        times.sort()
        print(f"30 claims at once: {took * 1000:.0f} ms in all, median {times[15] * 1000:.0f} ms, the longest "
              f"{times[-1] * 1000:.0f} ms; driver {int(peak) / 1024:.1f} MiB at most", file=sys.stderr)
        self.ended(*claims)
        self.assertEqual(self.tenants(), [])


class Ends(kubernetes.Case):
    """What ends and begins again, and nothing is lost or left over."""

    def test_kubelet_restarts(self):
        self.node()
        generation = self.api.slice()["spec"]["pool"]["generation"]
        claim = self.api.claim()
        self.prepared(claim)
        self.kubelet.forget()
        self.api.delete_slice()  # kubelet does that when it starts
        self.kubelet.register()
        lib.until(self.api.devices, 5, "the slice is there again")
        self.assertGreaterEqual(self.api.slice()["spec"]["pool"]["generation"], generation)
        self.prepared(claim)
        self.assertEqual(self.tenants(), [self.tenant_of(claim)])

    def test_no_slice_before_kubelet_has_the_driver(self):
        self.node(register=False)
        self.kubelet.register(good=False)
        lib.until(lambda: "refuses the driver" in self.log(), 5, "the driver says that it is refused")
        self.assertIsNone(self.api.slice())
        self.kubelet.register()
        lib.until(self.api.devices, 5, "the slice is there")

    def test_a_slice_that_somebody_deletes_or_changes(self):
        self.node()
        self.api.delete_slice()
        lib.until(self.api.devices, 20, "the slice is back")  # 3 s on a machine that is not busy
        changed = self.api.slice()
        changed["spec"]["devices"][0]["capacity"]["memory"]["value"] = "1Ti"
        self.api.put(self.api.slice_path, changed, "MODIFIED")
        lib.until(lambda: self.api.devices()[0]["capacity"]["memory"]["value"] == "4Gi", 10, "the slice is right again")
        self.assertGreater(self.api.slice()["spec"]["pool"]["generation"], changed["spec"]["pool"]["generation"])

    def test_the_driver_restarts(self):
        self.node()
        claim = self.api.claim()
        devices = self.prepared(claim)
        self.driver.signal(signal.SIGTERM)
        self.assertEqual(self.driver.wait(10), 0)
        self.assertFalse(os.path.exists(self.kubelet.registry), "kubelet then unregisters it at once")
        self.assertTrue(self.api.devices(), "the slice stays")
        self.api.claims_fail = 503  # what is prepared is known without the API server
        self.start_driver()
        self.kubelet.forget()
        self.kubelet.register()
        self.assertEqual(self.prepared(claim), devices)
        self.driver.kill()
        self.start_driver()
        self.kubelet.forget()
        self.kubelet.register()
        self.ended(claim)
        self.assertEqual((self.tenants(), self.records()), ([], []))

    def test_the_host_restarts(self):
        host = self.node()
        told = self.kubelet.watch_health()
        self.assertEqual(told.get(timeout=60), {"gpu0": (1, "")})
        claim, late = self.api.claim(), self.api.claim()
        self.prepared(claim)
        folder = os.path.join(host.run_dir, "containers", self.tenant_of(claim))
        inode = os.stat(folder).st_ino
        host.process.kill()
        until_told = lambda health: lib.until(lambda: told.get(timeout=60)["gpu0"][0] == health, 20, f"health {health}")
        until_told(2)
        lib.until(lambda: self.api.devices()[0].get("taints"), 10, "a taint keeps new pods away")
        self.assertEqual(self.api.devices()[0]["taints"][0]["effect"], "NoSchedule")
        # A claim that comes meanwhile is prepared when the host is back, in the same call.
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            waits = pool.submit(self.prepared, late)
            time.sleep(0.5)
            self.assertFalse(waits.done())
            host.start()
            waits.result(timeout=30)
        until_told(1)
        lib.until(lambda: not self.api.devices()[0].get("taints"), 10, "no taint any more")
        self.assertEqual(self.tenants(), sorted(map(self.tenant_of, (claim, late))))
        self.assertEqual(os.stat(folder).st_ino, inode, "containers have this folder mounted")
        self.finished(host, "e2e_quota", "shows", 512 * MIB, tenant=self.tenant_of(claim))
        # A claim that ends while the host is down is none that comes back with it.
        host.process.kill()
        self.ended(late)
        host.start()
        lib.until(lambda: self.tenants() == [self.tenant_of(claim)], 10, "its tenant goes when the host is back")

    def test_the_host_has_lost_its_tenants(self):
        host = self.node()
        claim = self.api.claim()
        self.prepared(claim)
        host.process.kill()
        os.unlink(os.path.join(host.run_dir, "tenants"))
        host.start()
        lib.until(lambda: self.tenants() == [self.tenant_of(claim)], 10, "the driver makes it again")

    def test_the_api_server_is_away(self):
        self.node()
        claim = self.api.claim()
        port = self.api.port
        self.api.stop()
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            waits = pool.submit(self.prepared, claim)
            time.sleep(0.5)
            self.assertFalse(waits.done())
            self.api.start(port)
            waits.result(timeout=30)
        self.api.claims_fail = 403
        other = self.api.claim()
        _, error = self.kubelet.prepare(other)[other["metadata"]["uid"]]
        self.assertIn("403: made to fail", error)

    def test_a_token_that_is_renewed(self):
        self.node()
        path = os.path.join(self.folder(), "token")
        for token in ("first", "second"):
            with open(path, "w") as f:
                f.write(token + "\n")
            self.api.token = token
            if token == "first":
                self.driver.signal(signal.SIGTERM)
                self.driver.wait(10)
                self.start_driver("--token", path)
                self.kubelet.forget()
                self.kubelet.register()
            self.prepared(self.api.claim())


class Clusters(kubernetes.Case):
    """Clusters that know less."""

    def test_without_consumable_capacity(self):
        host = self.node(forgets=("capacity", "taints"))
        devices = self.api.devices()
        self.assertEqual([d["name"] for d in devices], [f"gpu0-{i}" for i in range(4)])
        self.assertEqual(devices[0]["capacity"], {"memory": {"value": "1Gi"}})
        self.assertNotIn("allowMultipleAllocations", devices[0])
        self.assertIn("does not count capacity", self.log())
        claim = self.api.claim(None, device="gpu0-3")
        self.assertEqual(self.prepared(claim)[0][2], "gpu0-3")
        self.finished(host, "e2e_quota", "shows", GIB, tenant=self.tenant_of(claim))
        self.ended(claim)
        self.refused(self.api.claim(None, device="gpu0-4"), "no device")
        self.refused(self.api.claim(None, device="gpu0"), "no device")
        told = self.kubelet.watch_health()
        self.assertEqual(sorted(told.get(timeout=60)), [f"gpu0-{i}" for i in range(4)])

    def test_v1beta1(self):
        self.node(versions=("v1beta1",), forgets=("capacity", "taints"))
        found = self.api.slice()
        self.assertEqual(found["apiVersion"], "resource.k8s.io/v1beta1")
        self.assertIn("basic", found["spec"]["devices"][0])
        self.kubelet.version = "v1beta1"
        self.prepared(self.api.claim(None, device="gpu0-0"))


class Slots(kubernetes.Case):
    """The device plugin, for clusters without claims."""

    def slots(self, n=4):
        return [f"gpu{gpu}-{i}" for gpu in range(2) for i in range(n)]

    def plugin(self):
        kind, path, resource = self.kubelet.plugins.get(timeout=60)
        self.assertEqual((kind, resource), ("v1beta1", "weir.dev/gpu"))
        return path

    def test_slots_are_tenants(self):
        host = self.node(gpus=2, plugin=("--device-plugin",))
        self.kubelet.take_plugins()
        path = self.plugin()
        told = self.kubelet.watch_slots(path)
        self.assertEqual(told.get(timeout=60), dict.fromkeys(self.slots(), "Healthy"))
        self.assertEqual(self.tenants(), [f"k8s-{slot}" for slot in self.slots()])
        self.assertEqual(self.kubelet.allocate(path, ["gpu1-2"], ["gpu0-0"]), [["weir.dev/gpu=k8s-gpu1-2"], ["weir.dev/gpu=k8s-gpu0-0"]])
        self.assertIn("k8s-gpu1-2", self.cdi_names())
        self.finished(host, "e2e_quota", "shows", GIB, tenant="k8s-gpu1-2")
        for wrong in (["gpu0-0", "gpu0-1"], ["gpu0-4"], ["../gpu0-0"], []):
            with self.subTest(wrong), self.assertRaises(kubernetes.grpc.RpcError) as caught:
                self.kubelet.allocate(path, wrong)
            self.assertEqual(caught.exception.details(), "a container has one weir.dev/gpu, not several")
        # A host that ends, and one that has lost its tenants.
        host.process.kill()
        lib.until(lambda: told.get(timeout=60)["gpu0-0"] == "Unhealthy", 20, "the slots are unhealthy")
        os.unlink(os.path.join(host.run_dir, "tenants"))
        host.start()
        lib.until(lambda: told.get(timeout=60)["gpu0-0"] == "Healthy", 20, "the slots are healthy")
        lib.until(lambda: len(self.tenants()) == 8, 10, "a tenant for each slot again")

    def test_kubelet_restarts(self):
        self.node(gpus=2, plugin=("--device-plugin", "--slots", "2"))
        self.kubelet.take_plugins(taken=False)
        lib.until(lambda: "does not take the device plugin" in self.log(), 20, "a refusal")
        self.kubelet.server.stop(None)
        for _ in range(2):
            self.kubelet.take_plugins()
            self.assertEqual(sorted(self.kubelet.watch_slots(self.plugin()).get(timeout=60)), self.slots(2))
            self.kubelet.server.stop(None)
        self.driver.signal(signal.SIGTERM)
        self.assertEqual(self.driver.wait(10), 0)
        self.assertNotIn("weir.sock", os.listdir(os.path.join(self.kubelet.folder, "device-plugins")))

    def test_other_slots_and_claims(self):
        host = self.node(plugin=("--device-plugin",))
        lib.until(lambda: len(self.tenants()) == 4, 20, "four slots")
        for words, names, quota in ((("--device-plugin", "--slots", "2"), ["k8s-gpu0-0", "k8s-gpu0-1"], 2 * GIB), ((), [], None)):
            self.driver.signal(signal.SIGTERM)
            self.driver.wait(10)
            self.start_driver(*words)
            lib.until(lambda: self.tenants() == names, 20, f"tenants {names}")
            if names:
                lib.until(lambda: host.tenant(names[0])["quota_bytes"] == quota, 10, "a slot's part is another")
        self.assertEqual(self.records(), [])
        self.kubelet.register()
        lib.until(self.api.devices, 10, "the slice is there")
        self.prepared(self.api.claim())


class Killed(kubernetes.Case):
    """Driver and host are killed at random moments: no share is lost, none is left over."""

    def test_kills(self):
        rounds = int(os.environ.get("WEIR_E2E_KILLS", "6"))  # 100 by one command: WEIR_E2E_KILLS=100
        seed = int(os.environ.get("WEIR_E2E_SEED", "1"))
        print(f"WEIR_E2E_SEED={seed} WEIR_E2E_KILLS={rounds}", file=sys.stderr)
        chance = random.Random(seed)
        host = self.node()
        alive = {}

        def work(claim, begins):
            """As kubelet does: again until it has succeeded."""
            def done():
                try:
                    if begins:
                        return not self.kubelet.prepare(claim, limit_s=10)[claim["metadata"]["uid"]][1]
                    return not self.kubelet.unprepare(claim, limit_s=10)[claim["metadata"]["uid"]]
                except (kubernetes.grpc.RpcError, ValueError):  # the driver is gone, or the channel is closed
                    return False
            lib.until(done, 60, "the claim is done", 0.05)

        for turn in range(rounds):
            going = chance.sample(sorted(alive), len(alive) // 2)
            coming = [self.api.claim("64Mi") for _ in range(4)]
            victims = chance.choice((("driver",), ("host",), ("driver", "host"), ("kubelet",), ("driver", "kubelet")))
            with concurrent.futures.ThreadPoolExecutor(16) as pool:
                jobs = [pool.submit(work, claim, True) for claim in coming]
                jobs += [pool.submit(work, alive[name], False) for name in going]
                time.sleep(chance.uniform(0, 0.05))
                if "driver" in victims:
                    self.driver.kill()
                if "host" in victims:
                    host.process.kill()
                time.sleep(chance.uniform(0, 0.05))
                if "host" in victims:
                    host.start()
                if "driver" in victims:
                    self.start_driver()
                if "kubelet" in victims or "driver" in victims:
                    self.kubelet.forget()
                    if "kubelet" in victims and self.api.slice():
                        self.api.delete_slice()
                    self.kubelet.register()
                for job in jobs:
                    job.result(timeout=90)
            for name in going:
                del alive[name]
            alive.update({c["metadata"]["name"]: c for c in coming})
            want = sorted(map(self.tenant_of, alive.values()))
            lib.until(lambda: self.tenants() == want, 20, f"round {turn} ({victims}): a share for each claim, and no other", 0.1)
            self.assertEqual(self.records(), sorted(c["metadata"]["uid"] for c in alive.values()))
        lib.until(self.api.devices, 20, "the slice is there")
        self.ended(*alive.values())
        self.assertEqual((self.tenants(), self.records()), ([], []))


if __name__ == "__main__":
    lib.main()
