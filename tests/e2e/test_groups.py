#!/usr/bin/env python3
"""Policies that put kernels of two programs side by side: a worker each, both clients of what stands for an MPS server."""
import mmap
import os
import re
import sys
import tempfile

import lib
import test_programs_mps

# A program that launches one kernel after the other, and tells when each has ended. Kernels of "steady" say in a word of a file that both
# programs map how many of their blocks are at work. Those of "shy" all but stand still while there are any, as a kernel does
# whose blocks find no room on the multiprocessors beside another one's.
LOOP = r"""
import ctypes, mmap, os, sys
from ctypes import byref, c_int, c_uint, c_uint64, c_void_p
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *args):
    result = getattr(cuda, name)(*args)
    assert result == 0, (name, result)
path, kind, rounds, blocks = *sys.argv[1:3], c_uint(int(sys.argv[3])), int(sys.argv[4])
fd = os.open(path, os.O_RDWR)
shared = mmap.mmap(fd, mmap.PAGESIZE)
word, ctx, module, function, event = c_uint64(), c_void_p(), c_void_p(), c_void_p(), (c_void_p * 2)()
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", byref(ctx), 0)
call("cuCtxSetCurrent", ctx)
at = ctypes.addressof(ctypes.c_char.from_buffer(shared))
call("cuMemHostRegister_v2", c_void_p(at), ctypes.c_size_t(mmap.PAGESIZE), 2)
call("cuMemHostGetDevicePointer_v2", byref(word), c_void_p(at), 0)
call("cuModuleLoadData", byref(module), b'''.version 6.4
.target sm_75
.address_size 64
.visible .entry steady(.param .u64 word, .param .u32 rounds)
{
    .reg .pred %p<3>;
    .reg .b32 %r<4>;
    .reg .b64 %d<2>;
    ld.param.u64 %d0, [word];
    cvta.to.global.u64 %d1, %d0;
    ld.param.u32 %r0, [rounds];
    mov.u32 %r1, %tid.x;
    setp.eq.u32 %p0, %r1, 0;
    @%p0 red.global.add.u32 [%d1], 1;
    mov.u32 %r2, 0;
again:
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p1, %r2, %r0;
    @%p1 bra again;
    @%p0 red.global.add.u32 [%d1], -1;
    ret;
}
.visible .entry shy(.param .u64 word, .param .u32 rounds)
{
    .reg .pred %p<4>;
    .reg .b32 %r<5>;
    .reg .b64 %d<2>;
    ld.param.u64 %d0, [word];
    cvta.to.global.u64 %d1, %d0;
    ld.param.u32 %r0, [rounds];
    mov.u32 %r1, 0;
again:
    ld.global.u32 %r2, [%d1];
    setp.eq.u32 %p0, %r2, 0;
    @%p0 bra next;
    mov.u32 %r3, 0;
slow:
    add.u32 %r3, %r3, 1;
    setp.lt.u32 %p1, %r3, 2000;
    @%p1 bra slow;
next:
    add.u32 %r1, %r1, 1;
    setp.lt.u32 %p2, %r1, %r0;
    @%p2 bra again;
    ret;
}
''')
call("cuModuleGetFunction", byref(function), module, kind.encode())
for i in range(2):
    call("cuEventCreate", byref(event, 8 * i), 2)
params = (c_void_p * 2)(ctypes.cast(byref(word), c_void_p), ctypes.cast(byref(rounds), c_void_p))
def launch(i):
    call("cuLaunchKernel", function, blocks, 1, 1, 32, 1, 1, 0, None, params, None)
    call("cuEventRecord", c_void_p(event[i]), None)
launch(0)
i = 0
while True:
    launch(1 - i)
    call("cuEventSynchronize", c_void_p(event[i]))
    print("ended", flush=True)
    i = 1 - i
"""


KERNELS = {"shy": (30, 2048), "steady": (150, 2048)}  # rounds of a block, and blocks: some 6 ms each, alone on two cores
FIRST, LAST = 20, 200  # of the steady one's kernels


class Groups(test_programs_mps.UnderMps):
    def ended(self, program):
        return sum(line == "ended" for line in list(program.lines))

    def places(self, host, path):
        """Of the kernels that began: where, and with how many blocks on each multiprocessor."""
        result = host.weir("trace", "show", path)
        self.assertEqual(result.returncode, 0, result.stderr)
        return set(re.findall(r" start .* sms=(.*)", result.stdout))

    def beside(self, policy):
        """How many kernels of the shy one end while so many of its equal do, under a policy that puts both side by side."""
        folder = self.folder()
        word = tempfile.NamedTemporaryFile(dir="/dev/shm", prefix="weir-e2e-")
        self.addCleanup(word.close)
        word.truncate(mmap.PAGESIZE)
        host = self.under_mps(lines=lib.forms_lines(folder, mode="auto"), args=["--policy", policy])
        shy, steady = (self.guest(host, sys.executable, "-c", LOOP, word.name, kind, *KERNELS[kind], tenant=tenant)
                       for tenant, kind in (("alice", "shy"), ("bob", "steady")))
        lib.until(lambda: self.ended(shy) and self.ended(steady) >= FIRST, 60, "both have begun")
        for i in range(5):  # on a busy machine it takes the policy longer to know the kernels
            trace = os.path.join(folder, f"trace{i}")
            self.assertEqual(host.weir("trace", "start", "--run-dir", host.run_dir, trace).returncode, 0)
            begun, last = self.ended(shy), self.ended(steady) + LAST - FIRST
            lib.until(lambda n=last: self.ended(steady) >= n, 120, "kernels of the steady one have ended")
            ended = self.ended(shy) - begun
            self.assertEqual(host.weir("trace", "stop", "--run-dir", host.run_dir).returncode, 0)
            if self.places(host, trace) - {"all"}:
                break
        else:
            self.fail("the policy does not put them side by side")
        for program in (shy, steady):
            program.kill()
        return ended

    def test_who_stands_still_beside_another_has_its_share_all_the_same(self):
        # Equals do as much in turns. Before, five kernels ended beside a hundred.
        self.assertGreater(self.beside("fair,corun"), (LAST - FIRST) / 3)


if __name__ == "__main__":
    lib.CASE_LIMIT_S = 400
    lib.main()
