#!/usr/bin/env python3
"""Several devices: who sees which, where a worker has contexts, and that processes on different ones work together."""
import json
import os
import pathlib
import unittest

import lib

N = 2


class Base(lib.Case):
    isolation = "group"

    def devices_host(self, tenants=("alice", "bob"), n=N, env=None, **kwargs):
        if lib.DRIVER != "softgpu" and lib.gpus() < n:
            raise unittest.SkipTest(f"fewer than {n} GPUs")
        return self.host(tenants, env={"WEIR_SOFTGPU_DEVICES": str(n), **(env or {})}, **kwargs)


    def passed(self, host, on, other, give=None, take=None):
        """Memory of a device, used by a program on another one by its IPC handle."""
        giver = self.guest(host, "e2e_devices", "give", on, env=give or {})
        handle = giver.wait_line(r"^handle ([0-9a-f]{128})$")[1]
        self.finished(host, "e2e_devices", "take", other, handle, env=take or {})
        giver.say("")
        self.assertEqual(giver.wait(), 0, giver.tail())


class Devices(Base):

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
            visible = {"CUDA_VISIBLE_DEVICES": "1"} if give else {}
            self.passed(host, on, other, give, visible)
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
        self.faulted(host)
        self.assertNotEqual(steady.wait(), 0)
        lib.until(lambda: host.worker()["restarts"] == 1, 10, "a new worker")
        self.finished(host, "e2e_devices", "all")

    def test_a_call_that_fails_says_so_at_once(self):
        """With its own error, and the program ends by its own status, although another GPU's kernel waits for it."""
        host = self.devices_host({name: {"isolation": "program"} for name in ("alice", "bob")}, host_lines=['mps = "off"'])
        steady = self.steady(host)
        for what, code, then in (("memory", 2, 0), ("copy", 1, 0), ("function", 500, 0), ("fault", 700, 700)):
            with self.subTest(what):
                guest = self.guest(host, "e2e_devices", "fails", what)
                self.assertEqual(guest.wait(20), 7, guest.tail())
                self.assertEqual(guest.lines[-2:], [f"error {code}", f"then {then}"])
        self.steady_undisturbed(steady)

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


class Peers(Base):
    """Whether kernels of a program may wait for those on another GPU (WEIR_SCHED_PEERS), as a recording says."""

    def seen(self, host, work):
        """For arrivals on the first GPU while something runs: how many there are, and how many of them have peers."""
        path = os.path.join(self.folder(), "live.trace")
        for action in (("start", path), ("stop",)):
            result = lib.run_weir("trace", action[0], "--run-dir", host.run_dir, *action[1:])
            self.assertEqual(result.returncode, 0, result.stderr)
            if action[0] == "start":
                work()
        shown = lib.run_weir("trace", "show", path).stdout
        arrivals = [line for line in shown.splitlines() if " arrive " in line]
        return len(arrivals), len([line for line in arrivals if line.endswith(" peers")])

    def test_who_has_peers(self):
        host = self.devices_host()
        self.finished(host, "e2e_devices", "all")  # so that the GPU is there to be recorded
        alone, peers = self.seen(host, lambda: self.one(host, 0))
        self.assertGreater(alone, 1)
        self.assertEqual(peers, 0)
        n, peers = self.seen(host, lambda: self.finished(host, "e2e_devices", "all"))
        self.assertGreater(peers, 0)
        self.assertLess(peers, n)  # it begins on one GPU
        n, peers = self.seen(host, lambda: self.finished(host, "e2e_registered", "kinds"))  # of files, and others
        self.assertGreater(peers, 0)
        self.assertLess(peers, n)
        for on, other in ((0, 1), (1, 0)):  # who gives its memory, and who takes it
            self.assertGreater(self.seen(host, lambda: self.passed(host, on, other))[1], 0)
        host.wait_idle()

    def one(self, host, device):
        guest = self.guest(host, "e2e_devices", "one", device)
        guest.wait_line("^ready$")
        guest.say("")
        self.ends(host, guest)


class Ranks(Base):
    """Programs whose kernels wait for each other on all GPUs, as those of collective operations do."""

    def ranks(self, n, isolation):
        self.limit(150)
        host = self.devices_host({"alice": {"isolation": isolation}, "bob": {"isolation": isolation}}, n=n)
        self.assertEqual(self.finished(host, "drv_peer_copies").lines[-1], "PASS drv_peer_copies")
        for tenants in (("alice",), ("alice", "bob")) if n < 8 else (("alice", "bob"),):  # two are admitted on all together
            jobs = [self.guest(host, "drv_collective", tenant=tenant) for tenant in tenants]
            for job in jobs:
                self.assertEqual(job.wait(100), 0, job.tail())
                self.assertEqual(job.lines[-1], "PASS drv_collective")
        for giver, taker in zip(range(n), [*range(1, n), 0]):
            self.passed(host, giver, taker)
        host.wait_idle()

    def test_on_two(self):
        """In one worker for all, and in workers of their own."""
        for isolation in ("group", "program"):
            self.ranks(2, isolation)

    @unittest.skipUnless(lib.DRIVER == "softgpu", "softgpu has as many devices as it is told")
    def test_on_four(self):
        self.ranks(4, "program")

    @unittest.skipUnless(lib.DRIVER == "softgpu", "softgpu has as many devices as it is told")
    def test_on_eight(self):
        self.ranks(8, "program")


class Contexts(Base):
    """A worker opens the context of its first device when it starts, and each other at its first use."""

    SHARED = {"alice": {"isolation": "group"}, "bob": {"isolation": "group"}}

    def opened(self, host, device):
        """How often a context was opened on the device, so far."""
        return sum(f"context opened device={device} " in line for line in host.process.errors)

    def work_on(self, host, *devices, tenant="alice"):
        """A program for each of the devices, all at once."""
        guests = [self.guest(host, "e2e_devices", "one", device, tenant=tenant) for device in devices]
        for guest in guests:
            guest.wait_line("^ready$")
        for guest in guests:
            guest.say("")
        for guest in guests:
            self.assertEqual(guest.wait(), 0, guest.tail())

    def test_at_first_use(self):
        host = self.devices_host(self.SHARED, n=3 if lib.DRIVER == "softgpu" else 2)
        n = host.worker()["n_devices"]
        self.assertEqual(host.worker()["contexts"], 1)
        for word in ("list", "nvml"):
            self.finished(host, "e2e_devices", word)
        self.work_on(host, 0)
        self.assertEqual(host.worker()["contexts"], 1)
        rows = host.status()["device"]
        self.assertEqual(len(rows), n)
        self.assertTrue(all(row["memory_bytes"] and row["scheduled"] for row in rows), rows)
        self.work_on(host, n - 1)
        self.assertEqual(host.worker()["contexts"], 2)
        self.assertEqual([self.opened(host, i) for i in range(n)], [1, *(n - 2) * [0], 1])
        self.finished(host, "e2e_devices", "all", tenant="bob")
        self.assertEqual(host.worker()["contexts"], n)
        self.assertEqual([self.opened(host, i) for i in range(n)], n * [1])
        host.wait_idle()

    def test_a_programs_worker(self):
        """Spares have one context; so has a program's worker until it uses another device. One whose limits were
        changed there serves nobody else."""
        host = self.devices_host({"alice": {"isolation": "program"}}, host_lines=["spare_workers = 1", "worker_idle_s = 600"])

        def workers(state):
            return [(w["pid"], w["contexts"]) for w in host.status()["worker"] if w["state"] == state]

        lib.until(lambda: workers("spare"), 10, "a spare is ready")
        second = {"CUDA_VISIBLE_DEVICES": "1"}
        self.finished(host, "e2e_minimal")
        lib.until(lambda: workers("kept"), 10, "the worker is kept")
        (kept, contexts), = workers("kept")
        self.assertEqual(contexts, 1)
        self.finished(host, "e2e_minimal", env=second)
        lib.until(lambda: workers("kept") == [(kept, 2)], 10, "it is kept with a context more")
        self.finished(host, "e2e_limits", env=second)
        lib.until(lambda: not workers("kept") and not lib.pid_is_alive(kept), 10, "it has ended")
        lib.until(lambda: [n for _pid, n in workers("spare")] == [1], 10, "a spare is ready again")

    @unittest.skipUnless(lib.DRIVER == "softgpu", "a context takes as long as it takes")
    def test_two_at_once(self):
        """The context is opened once, and nobody else waits for it: not at work, not to begin, not to ask."""
        held = pathlib.Path(self.folder(), "held")
        host = self.devices_host(self.SHARED, env={"WEIR_SOFTGPU_CONTEXT_HELD": str(held)})
        steady = self.steady(host)
        held.touch()
        pair = [self.guest(host, "e2e_devices", "one", 1, tenant=tenant) for tenant in ("alice", "bob")]
        for guest in pair:
            guest.wait_line("^ready$")
        for guest in pair:
            guest.say("")
        before = self.rounds(steady)
        lib.until(lambda: self.rounds(steady) > before + 3, 20, "the other gets on")
        self.finished(host, "e2e_minimal")
        self.assertEqual(host.worker()["contexts"], 1)
        self.assertEqual(self.opened(host, 1), 0)
        held.unlink()
        for guest in pair:
            self.assertEqual(guest.wait(), 0, guest.tail())
        self.assertEqual(self.opened(host, 1), 1)
        self.assertEqual(host.worker()["contexts"], 2)
        self.steady_undisturbed(steady)
        host.wait_idle()

    @unittest.skipUnless(lib.DRIVER == "softgpu", "a GPU cannot be told to be full")
    def test_none_to_be_had(self):
        """The call that needs it gets the driver's error, all else goes on, and a later try succeeds."""
        full = os.path.join(self.folder(), "full")
        for isolation in ("group", "program"):
            host = self.devices_host({**self.SHARED, "alice": {"isolation": isolation}}, host_lines=["spare_workers = 1"],
                                     env={"WEIR_SOFTGPU_FULL": full})
            steady = self.steady(host)
            ready = {"group": "", "program": "spare"}[isolation]
            lib.until(lambda h=host, r=ready: any(w["state"] == r and w["contexts"] for w in h.status()["worker"]), 10,
                      "a worker is ready")
            with open(full, "w", encoding="ascii"):
                pass
            guest = self.guest(host, "e2e_devices", "later", 1)
            guest.wait_line("^refused$")
            os.unlink(full)
            guest.say("")
            self.assertEqual(guest.wait(), 0, guest.tail())
            host.process.wait_log("no context can be made, so what needs it fails device=1 result=2")
            self.steady_undisturbed(steady)
            host.wait_idle()
            self.assertEqual(sum(w["restarts"] for w in host.status()["worker"]), 0)
            host.stop()


class Exclusive(lib.Case):
    """Two hosts on one GPU, which is softgpu under the name of NVIDIA's driver."""
    isolation = "group"

    def setUp(self):
        super().setUp()
        self.space = []
        if os.geteuid() == 0:  # where no other test's host has the same GPU
            holder = lib.Process(["unshare", "--net", "sleep", "600"])
            self.addCleanup(holder.kill)
            here = os.readlink("/proc/self/ns/net")
            lib.until(lambda: os.readlink(f"/proc/{holder.pid}/ns/net") != here or not holder.alive(), 5, "a network namespace")
            if holder.alive():
                self.space = ["nsenter", f"--net=/proc/{holder.pid}/ns/net"]

    def serve(self, *lines, **kwargs):
        return self.host(driver="nvidia", env={"LD_LIBRARY_PATH": lib.softgpu_folder()}, prefix=self.space, host_lines=lines, **kwargs)

    def refused(self, *lines):
        """What a host says that must not start, and its exit status."""
        host = self.serve(*lines, start=False)
        try:
            host.start()
        except lib.Stuck:
            return host.process.err, host.process.popen.returncode
        self.fail("it serves")

    def test_the_second_is_refused(self):
        first = self.serve("exclusive = true")
        said, status = self.refused("exclusive = true")
        self.assertEqual(status, 75)
        self.assertRegex(said, rf'another host serves this GPU.* gpu=GPU-[0-9a-f-]+ pid={first.pid} user={os.geteuid()} '
                         rf'run_dir="{first.run_dir}"')
        self.finished(first, "e2e_minimal")
        second = self.serve("exclusive = false")  # of two it is enough that one allows it
        self.finished(second, "e2e_minimal")
        self.assertEqual(second.stop(), 0)
        first.process.kill()
        self.finished(self.serve("exclusive = true"), "e2e_minimal")

    def test_also_where_programs_have_workers_of_their_own(self):
        tenants = {"alice": {"isolation": "program"}}
        first = self.serve("exclusive = true", "spare_workers = 1", tenants=tenants)
        lib.until(lambda: first.status()["worker"][0]["n_devices"], 10, "a spare is ready")
        said, status = self.refused("exclusive = true")
        self.assertEqual((status, f"pid={first.pid}" in said), (75, True), said)


if __name__ == "__main__":
    lib.main()
