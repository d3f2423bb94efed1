#!/usr/bin/env python3
"""What a program's own user can find out: that it is Weir, why memory was refused, whom it waits for."""
import json
import os
import re
import select
import socket
import subprocess
import sys

import lib

MIB = 1 << 20

# A program that makes one call which is to be refused, and prints its result.
REFUSED = """
import ctypes as c, sys
cu = c.CDLL("libcuda.so.1")
p, ctx, n = c.c_void_p(), c.c_void_p(), c.c_size_t(int(sys.argv[2]))
assert cu.cuInit(0) == 0 and cu.cuDevicePrimaryCtxRetain(c.byref(ctx), 0) == 0 and cu.cuCtxSetCurrent(ctx) == 0
class Array(c.Structure):
    _fields_ = [("width", c.c_size_t), ("height", c.c_size_t), ("format", c.c_int), ("channels", c.c_uint)]
class Prop(c.Structure):
    _fields_ = [("type", c.c_int), ("handles", c.c_int), ("where", c.c_int), ("device", c.c_int), ("rest", c.c_byte * 16)]
calls = {
    "cuMemAlloc": lambda: cu.cuMemAlloc_v2(c.byref(p), n),
    "cuMemAllocPitch": lambda: cu.cuMemAllocPitch_v2(c.byref(p), c.byref(c.c_size_t()), n, c.c_size_t(1), 4),
    "cuMemAllocAsync": lambda: cu.cuMemAllocAsync(c.byref(p), n, None),
    "cuMemAllocManaged": lambda: cu.cuMemAllocManaged(c.byref(p), n, 1),
    "cuMemHostAlloc": lambda: cu.cuMemHostAlloc(c.byref(p), n, 0),
    "cuMemAllocHost": lambda: cu.cuMemAllocHost_v2(c.byref(p), n),
    "cuArrayCreate": lambda: cu.cuArrayCreate_v2(c.byref(p), c.byref(Array(1 << 14, n.value >> 14, 1, 1))),
    "cuMemCreate": lambda: cu.cuMemCreate(c.byref(p), n, c.byref(Prop(1, 0, 1, 0)), c.c_ulonglong(0)),
}
print(calls[sys.argv[1]]())
"""


class Lacks(lib.Case):
    def refused(self, host, call, mib, expect=2, **env):
        """What the library says when a call for so many MiB is refused."""
        env = dict(lib.clean_environment(), **env)
        done = lib.run_weir("run", "--tenant", "bob", "--run-dir", host.run_dir, "--", sys.executable, "-c", REFUSED, call,
                            str(mib * MIB), env=env)
        self.assertEqual((done.returncode, done.stdout), (0, f"{expect}\n"), (call, done.stderr))
        return done.stderr

    def test_out_of_memory_says_why_in_the_program(self):
        host = self.host({"bob": {"memory": "64MiB", "pinned": "32MiB"}})
        for call in ("cuMemAlloc", "cuMemAllocPitch", "cuMemAllocAsync", "cuArrayCreate", "cuMemCreate"):
            said = self.refused(host, call, 80, WEIR_LOG="error")
            self.assertRegex(said, r"out of memory \(CUDA_ERROR_OUT_OF_MEMORY\): quota of tenant bob: \d.* of 64 MiB in use, "
                             rf"asked \d+ MiB by {call} \(over the tenant's quota\)\n$", call)
            self.assertEqual(said.count("\n"), 1, said)
        for call in ("cuMemAllocManaged", "cuMemHostAlloc", "cuMemAllocHost"):
            said = self.refused(host, call, 40, WEIR_LOG="error")
            self.assertRegex(said, r"pinned memory of tenant bob: \d.* of 32 MiB in use, "
                             rf"asked \d+ MiB by {call} \(over the tenant's quota\)\n$", call)
        said = self.refused(host, "cuMemAlloc", 40, WEIR_LOG="error", CUDA_DEVICE_MEMORY_LIMIT="16m")
        self.assertIn("asked 40 MiB by cuMemAlloc (over the limit that its environment sets)", said)

    def test_what_other_programs_of_the_tenant_have_is_told(self):
        host = self.host({"bob": {"memory": "64MiB"}})
        for n in range(2):  # each in a worker of its own
            self.guest(host, "e2e_quota", "hold", 20 * MIB, tenant="bob").wait_line("^held$")
        said = self.refused(host, "cuMemAlloc", 40, WEIR_LOG="error")
        used = re.search(r"quota of tenant bob: (\d+) MiB of 64 MiB in use, asked 40 MiB", said)
        self.assertTrue(used and int(used[1]) >= 40, said)

    def test_the_library_says_nothing_unasked(self):
        host = self.host({"bob": {"memory": "64MiB"}})
        self.assertEqual(self.refused(host, "cuMemAlloc", 80), "")
        self.assertEqual(self.refused(host, "cuMemAlloc", 80, WEIR_LOG="none"), "")
        self.assertEqual(self.refused(host, "cuMemAlloc", 1, expect=0, WEIR_LOG="error"), "")

    def test_a_program_knows_that_it_uses_weir_and_as_whom(self):
        host = self.host({"bob": {"memory": "64MiB", "weight": 7}})
        said = self.refused(host, "cuMemAlloc", 1, expect=0, WEIR_LOG="info")
        self.assertRegex(said, r'^\S+ libcuda info cuda: this is Weir \S+ tenant=bob quota="64 MiB" weight=7 transport=shm '
                         rf"host=ipc://{host.socket('bob')}\n$")


class OneWorker(Lacks):
    isolation = "group"  # softgpu's memory is a process's

    def test_a_device_that_is_full_is_called_so(self):
        host = self.host({"bob": {}, "alice": {}})
        total = host.status()["device"][0]["memory_bytes"]
        holder = self.guest(host, "e2e_quota", "hold", total // 4 * 3, tenant="alice")
        holder.wait_line("^held$")
        said = self.refused(host, "cuMemAlloc", total // 2 // MIB, WEIR_LOG="error")
        self.assertRegex(said, r"tenant bob: .*asked .* by cuMemAlloc \(the device has no memory\)\n$")
        self.assertNotIn("alice", said)


class Names(lib.Case):
    """What operators see of the host's processes and sessions."""

    def test_sessions_have_numbers_of_their_own(self):
        host = self.host({"alice": {}, "bob": {"isolation": "group"}})
        guests = [self.guest(host, "e2e_quota", "hold", MIB, tenant=tenant) for tenant in ("alice", "alice", "bob", "alice")]
        for guest in guests:
            guest.wait_line("^held$")
        ids = [s["id"] for s in host.status()["session"]]
        self.assertEqual(len(set(ids)), 4, ids)
        stats = [json.loads(line) for line in lib.run_weir("stats", "--json", "--run-dir", host.run_dir).stdout.splitlines()]
        self.assertEqual(sorted(s["session"] for s in stats), sorted(ids))
        self.assertEqual(sorted(int(n) for n in re.findall(r"session: begun session=(\d+) ", host.process.err)), sorted(ids))

    def test_processes_have_names(self):
        host = self.host({"alice": {}})
        guest = self.guest(host, "e2e_quota", "hold", MIB)
        guest.wait_line("^held$")
        names = set()
        for pid in lib.children_of(host.pid):
            with open(f"/proc/{pid}/comm") as f:
                names.add(f.read().strip())
        self.assertEqual(names, {"weir-keep", "weir-worker", "weir-gate"})

    def test_whole_numbers_are_whole_in_json(self):
        host = self.host({"alice": {}})
        text = lib.run_weir("status", "--json", "--run-dir", host.run_dir).stdout
        self.assertRegex(text, r'"free_bytes":\d+,')
        self.assertNotRegex(text, r"\.000\b")


class Why(lib.Case):
    """weir why, by a user who may do no more than run programs as the tenant."""

    show = ["", "[default]", "show_others = true"]

    def why(self, host, tenant, *args, expect=0, prefix=()):
        done = subprocess.run([*prefix, lib.places.weir, "why", "--tenant", tenant, "--run-dir", host.run_dir, *args],
                              env=lib.clean_environment(), capture_output=True, text=True, timeout=600)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done.stdout if expect == 0 else done.stderr

    def rows(self, host, tenant, kind, **kwargs):
        rows = [json.loads(line) for line in self.why(host, tenant, "--json", "--interval-ms", "0", **kwargs).splitlines()]
        return [row for row in rows if row["row"] == kind]

    def waits(self, host, tenant):
        """{(cause, other): ns} of the tenant's live sessions."""
        return {(row["cause"], row["other"]): row["wait_ns"] for row in self.rows(host, tenant, "wait") if row["session"]}

    def meet(self, host):
        guests = [self.busy(host, tenant) for tenant in ("alice", "bob")]
        lib.until(lambda: all(any(other for _, other in self.waits(host, tenant)) for tenant in ("alice", "bob")), 20,
                  "each has waited for the other", 0.2)
        return guests

    def test_it_names_the_other_where_the_operator_allows_it(self):
        host = self.host({"alice": {"weight": 300}, "bob": {}}, host_lines=self.show)
        guests = self.meet(host)
        for tenant, other in (("alice", "bob"), ("bob", "alice")):
            waits = self.waits(host, tenant)
            self.assertEqual({name for _, name in waits} - {""}, {other}, waits)
        text = self.why(host, "bob", "--interval-ms", "500")
        self.assertRegex(text, r"^tenant bob: weight 100, .*; lately: the last 0\.5 s\n")
        self.assertRegex(text, rf"\nsched_load \(pid {guests[1].pid}, session \d+\): lately it ran [\d.]+ s and waited [\d.]+ s;")
        self.assertRegex(text, r"\n +[\d.]+ +[\d.]+ +(turn|in-flight|domain|linger) +alice +\w+")
        # What has ended still counts, by its name.
        for guest in guests:
            guest.kill()
        host.wait_idle()
        self.assertEqual(self.rows(host, "bob", "session"), [])
        ended = [row for row in self.rows(host, "bob", "wait") if row["program"] == "sched_load"]
        self.assertIn("alice", {row["other"] for row in ended})
        self.assertRegex(self.why(host, "bob", "--interval-ms", "0"), r"\nall programs named sched_load, .*\n(.*\n)*.*alice")
        # A tenant that is gone has no name any more, and its slot may be another's.
        self.assertEqual(lib.run_weir("tenant", "remove", "alice", "--run-dir", host.run_dir).returncode, 0)
        self.assertEqual(lib.run_weir("tenant", "add", "carol", "--run-dir", host.run_dir).returncode, 0)
        self.assertEqual({row["other"] for row in self.rows(host, "bob", "wait")} - {""}, {"(gone)"})

    def test_by_default_others_have_no_names(self):
        host = self.host({"alice": {"weight": 300}, "bob": {}})
        self.meet(host)
        text = self.why(host, "bob", "--interval-ms", "0") + self.why(host, "bob", "--json", "--interval-ms", "0")
        self.assertNotIn("alice", text)
        self.assertEqual({name for _, name in self.waits(host, "bob")} - {""}, {"(another)"})
        # Nothing that tells of others, or of the host.
        self.assertEqual({row["tenant"] for row in self.rows(host, "bob", "session")}, {"bob"})
        self.assertEqual([row["name"] for row in self.rows(host, "bob", "tenant")], ["bob"])
        device = self.rows(host, "bob", "device")[0]
        self.assertEqual((device["free_bytes"], device["sm_ns"]), (None, 0))
        # A reload may show them.
        with open(host.config, "a") as f:
            f.write("\n[default]\nshow_others = true\n")
        host.process.signal(1)
        lib.until(lambda: {name for _, name in self.waits(host, "bob")} - {""} == {"alice"}, 10, "the reload shows alice", 0.1)

    def test_a_tenant_is_asked_by_who_may_be_it_and_by_no_other(self):
        if os.geteuid() != 0:
            self.skipTest("only root has other users")
        host = self.host({"alice": {"user": "65534"}, "bob": {"user": "0"}})
        nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
        if not os.access(lib.places.weir, os.X_OK) or subprocess.run([*nobody, lib.places.weir, "version"], capture_output=True).returncode != 0:
            self.skipTest("another user does not get to this build")
        self.assertEqual([row["name"] for row in self.rows(host, "alice", "tenant", prefix=nobody)], ["alice"])
        self.assertIn("this user may not be that tenant", self.why(host, "bob", expect=1, prefix=nobody))
        self.assertIn("not found", self.why(host, "carol", expect=1))

    def test_who_asks_without_end_is_bounded(self):
        host = self.host({"alice": {}, "bob": {}})
        asking = []
        self.addCleanup(lambda: [s.close() for s in asking])
        # A hello as weir why sends it: protocol 1, "why".
        hello = bytes([0x08, 1, 0x68, 1])
        for _ in range(40):
            s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            s.connect(host.socket("bob"))
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            s.send(hello)
            asking.append(s)
        self.assertEqual(self.rows(host, "alice", "tenant")[0]["name"], "alice")
        # They get rows, or a refusal; none keeps a place.
        lib.until(lambda: self.rows(host, "bob", "tenant"), 20, "bob is answered again", 0.2)
        self.assertEqual(len(host.status()["tenant"]), 2)
        # An answer is whole, also where the asker is slow to read it.
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(s.close)
        s.connect(host.socket("alice"))
        s.send(hello)
        poll = select.poll()
        poll.register(s, select.POLLHUP)
        self.assertTrue(poll.poll(10000), "the host has answered and closed")
        text = b""
        while piece := s.recv(1 << 20):
            text += piece
        self.assertTrue(text.endswith(b'{"row":"end"}\n'), text[-100:])

    def test_wrong_usage(self):
        host = self.host({"bob": {}})
        self.why(host, "bob", "--interval-ms", "soon", expect=2)
        self.why(host, "bob", "word", expect=2)
        done = lib.run_weir("why", "--host", "tcp://127.0.0.1:1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("only a tenant's socket of this machine tells it", done.stderr)


class WhyOfOneWorker(Why):
    isolation = "group"


class WhyOfTenants(Why):
    isolation = "tenant"


if __name__ == "__main__":
    lib.main()
