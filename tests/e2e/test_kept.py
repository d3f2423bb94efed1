#!/usr/bin/env python3
"""Tenants that outlive the host, a quota for each GPU, labels, and a host that begins without a tenant."""
import json
import os
import signal
import urllib.request

import lib

MIB = 1 << 20


class Kept(lib.Case):
    def weir(self, host, *words, expect=0):
        result = lib.run_weir(*words, "--run-dir", host.run_dir)
        self.assertEqual(result.returncode, expect, f"{words}: {result.stdout}{result.stderr}")
        return result

    def keeps(self, host):
        path = os.path.join(host.run_dir, "tenants")
        if not os.path.exists(path):
            return []
        with open(path) as f:
            return [line.rstrip("\n").split("\t") for line in f]

    def again(self, host, number=signal.SIGKILL):
        """The host ends and another one begins."""
        host.process.signal(number)
        host.process.wait(20)
        host.start()

    def folder_of(self, host, tenant):
        return os.path.join(host.run_dir, "containers", tenant)

    def test_a_kept_tenant_outlives_the_host_with_its_folder(self):
        host = self.host({"alice": {}}, args=("--cdi", os.path.join(self.folder(), "weir.json")))
        said = self.weir(host, "tenant", "add", "--keep", "job", "memory=128Mi", "weight=7", "labels=namespace=ml,pod=a-0")
        self.assertEqual(said.stdout, "job: added, until it is removed\n")
        self.weir(host, "tenant", "add", "passing", "memory=64Mi")
        place = os.stat(self.folder_of(host, "job"))
        self.assertEqual(self.keeps(host), [["job", "weight=7", "memory=128MiB", "labels=namespace=ml,pod=a-0"]])
        for number in (signal.SIGKILL, signal.SIGTERM):
            self.again(host, number)
            row = host.tenant("job")
            self.assertEqual((row["weight"], row["quota_bytes"] or 128 * MIB, row["source"], row["labels"]),
                             (7, 128 * MIB, "kept", "namespace=ml,pod=a-0"))
            self.finished(host, "e2e_quota", "shows", 128 * MIB, tenant="job")
            # A container that has the folder mounted finds the new socket in it.
            now = os.stat(self.folder_of(host, "job"))
            self.assertEqual((now.st_ino, now.st_ctime_ns != 0), (place.st_ino, True))
            self.assertTrue(os.path.exists(os.path.join(self.folder_of(host, "job"), "default.sock")))
            self.assertNotIn("passing", [t["name"] for t in host.status()["tenant"]])
        # What is set lasts until the host ends, as with any tenant.
        self.assertIn("(until the host ends; kept: 7)", self.weir(host, "tenant", "set", "job", "weight=9").stdout)
        self.weir(host, "tenant", "remove", "job")
        self.assertEqual(self.keeps(host), [])
        self.assertFalse(os.path.exists(self.folder_of(host, "job")))
        self.again(host)
        self.assertEqual([t["name"] for t in host.status()["tenant"]], ["alice"])
        self.assertIn("--keep is for add", self.weir(host, "tenant", "set", "--keep", "alice", "weight=3", expect=2).stderr)

    def test_what_cannot_be_kept(self):
        host = self.host({"alice": {}, "bob": {"vsock_cid": 77}})
        for name in ("one", "two", "three"):
            self.weir(host, "tenant", "add", "--keep", name)
        # The file is the host's own; a line that makes no sense costs that tenant, and the log says why.
        with open(os.path.join(host.run_dir, "tenants"), "a") as f:
            f.write("odd\tweight=much\n../x\nlost\tcolour=red\nclash\tvsock_cid=77\nalice\tweight=3\nelse\tdevices=9\n\n")
        host.host_lines.append('devices = "0"')
        host.write_config({"alice": {}, "bob": {"vsock_cid": 77}, "two": {"weight": 5}})
        self.again(host, signal.SIGTERM)
        rows = {t["name"]: (t["source"], t["weight"]) for t in host.status()["tenant"]}
        self.assertEqual(rows, {"alice": ("weir.toml", 100), "bob": ("weir.toml", 100), "two": ("weir.toml", 5),
                                "one": ("kept", 100), "three": ("kept", 100)})
        log = "\n".join(host.process.errors)
        for why in ("'weight' must be", "unknown setting 'colour'", "same key or vsock_cid", "weir.toml has a tenant of that name",
                    "not among those that the host serves"):
            self.assertIn(why, log)
        # It cannot be written: then there is no such tenant.
        os.mkdir(os.path.join(host.run_dir, "tenants.new"))
        self.assertIn("not added: the file", self.weir(host, "tenant", "add", "--keep", "four", expect=1).stderr)
        self.assertNotIn("four", [t["name"] for t in host.status()["tenant"]])
        self.assertIn("comes back", self.weir(host, "tenant", "remove", "one").stderr)
        os.rmdir(os.path.join(host.run_dir, "tenants.new"))
        self.weir(host, "tenant", "remove", "three")
        self.assertEqual(self.keeps(host), [])

    def test_labels_say_who_it_is(self):
        host = self.host({"alice": {"labels": "team=vision"}}, args=("--metrics", f"127.0.0.1:{lib.free_port()}"))
        name = "k8s-0f8fad5b-d9cb-469f-a165-70867728950e"
        self.weir(host, "tenant", "add", name, "labels=namespace=ml,claim=big,pod=train-0,tenant=fool")
        for words, complaint in (("labels=1a=b", "NAME=VALUE"), ("labels=a=b c", "NAME=VALUE"), ("labels=a", "NAME=VALUE"),
                                 ('labels=a="', "NAME=VALUE"), ("labels=a=b,", "NAME=VALUE"),
                                 ("labels=a=" + "x" * 190, "too long")):
            self.assertIn(complaint, self.weir(host, "tenant", "set", "alice", words, expect=1).stderr)
        text = self.weir(host, "status").stdout
        row, head = (next(line for line in text.splitlines() if line.startswith(start)) for start in (name, "TENANT"))
        self.assertRegex(row, rf"^{name} +100 normal .*  namespace=ml,claim=big,pod=train-0,tenant=fool$")
        self.assertEqual(row.index("normal"), head.index("PRIORITY"), "columns stand in line")
        self.assertIn("team=vision", self.weir(host, "top", "--batch", "--count", "1", "--interval-ms", "100").stdout)
        events = self.weir(host, "events", "--tenant", name)
        self.assertRegex(events.stdout, rf'tenant-added +tenant={name} labels="namespace=ml,claim=big')
        self.assertIn('labels="namespace=ml,claim=big', "\n".join(host.process.errors))
        with urllib.request.urlopen("http://" + host.args[1] + "/metrics", timeout=20) as answer:
            metrics = answer.read().decode()
        self.assertIn(f'weir_tenant_info{{tenant="{name}",priority="normal",isolation="program",source="weir tenant"'
                      ',namespace="ml",claim="big",pod="train-0"} 1\n', metrics)

    def test_each_gpu_has_a_quota(self):
        host = self.host({"alice": {"device_memory": "64MiB,128Mi"}, "bob": {"device_memory": "25%", "memory": "1GiB"}},
                         env={"WEIR_SOFTGPU_DEVICES": "3", "WEIR_SOFTGPU_MEMORY": str(512 * MIB)})
        for device, quota in enumerate((64, 128, 128)):  # the last one is also for all that follow
            self.finished(host, "e2e_quota", "each", quota * MIB, device)
        self.finished(host, "e2e_quota", "each", 512 * MIB // 100 * 25, 2, tenant="bob")
        # Programs of a tenant, each in a worker of its own, have the quota together.
        holder = self.guest(host, "e2e_quota", "hold", 48 * MIB)
        holder.wait_line("^held$")
        small = self.finished(host, "e2e_quota", "fails", 32 * MIB)
        self.assertIn("refused", small.out)
        self.finished(host, "e2e_quota", "each", 128 * MIB, 1)
        events = self.weir(host, "events", "--json").stdout
        self.assertIn("over the tenant's quota of this GPU", events)
        # It can change while the program runs.
        self.weir(host, "tenant", "set", "alice", "device_memory=96MiB")
        other = self.guest(host, "e2e_quota", "hold", 32 * MIB)
        other.wait_line("^held$")
        for guest in (holder, other):
            guest.close_stdin()
            self.assertEqual(guest.wait(), 0)
        for wrong in ("64", "much", "64MiB,", "64MiB,,64MiB"):
            self.assertIn("amounts with commas", self.weir(host, "tenant", "set", "alice", f"device_memory={wrong}", expect=1).stderr)
        host.wait_idle()

    def test_a_host_without_tenants(self):
        cdi = os.path.join(self.folder(), "weir.json")
        host = self.host({}, args=("--cdi", cdi), start=False, env={"WEIR_SOFTGPU_DEVICES": "2"})
        with open(host.config) as f:
            text = f.read()
        with open(host.config, "w") as f:
            f.write("tenant = []\n" + text)
        host.start()
        self.assertEqual(host.status()["tenant"], [])
        self.assertFalse(os.path.exists(host.socket("default")))
        # It knows its GPUs all the same.
        devices = lib.until(lambda: host.status().get("device"), 20, "the GPUs are known", 0.1)
        self.assertEqual(len(devices), 2)
        for device in devices:
            self.assertRegex(device["uuid"], "^GPU-")
            self.assertEqual(device["memory_bytes"], device["promise_bytes"])  # contexts of softgpu take nothing
            self.assertGreater(device["promise_bytes"], 0)
        self.weir(host, "tenant", "add", "job")
        self.finished(host, "e2e_minimal", tenant="job")
        with open(cdi) as f:
            names = [device["name"] for device in json.load(f)["devices"]]
        self.assertNotIn("all", names)
        self.assertIn("job", names)


if __name__ == "__main__":
    lib.main()
