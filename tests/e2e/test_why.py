#!/usr/bin/env python3
"""What a program's own user can find out: that it is Weir, why memory was refused, whom it waits for."""
import os
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


if __name__ == "__main__":
    lib.main()
