"""Speaks as bench_contain.py with PyTorch does, in the Driver API."""
import ctypes
import os
import sys

import driver

sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
import bench_contain  # noqa: E402

SPIN = b""".version 6.4
.target sm_75
.address_size 64
.visible .entry spin()
{
    .reg .pred %q;
    .reg .b32 %r;
    mov.u32 %r, 0;
again:
    add.u32 %r, %r, 1;
    setp.lt.u32 %q, %r, 300;
    @%q bra again;
    ret;
}
"""


class Worker:
    cuda = None

    def up(self):
        self.cuda = self.cuda or driver.Driver()
        return self.cuda

    def quota(self):
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        device = ctypes.c_size_t()
        self.up().must("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        self.cuda.must("cuDeviceTotalMem_v2", ctypes.byref(device), 0)
        return {"free": free.value, "total": total.value, "device": device.value}

    def over(self):
        held, status = [], 0
        while status == 0 and len(held) < 1000:
            memory = ctypes.c_uint64()
            status = self.up().cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(16 << 20))
            held += [memory] if status == 0 else []
        for memory in held:
            self.cuda.must("cuMemFree_v2", memory)
        error = "OutOfMemoryError: CUDA_ERROR_OUT_OF_MEMORY" if status == 2 else f"status {status}"
        return {"error": error, "got": len(held) * (16 << 20), "works": self.cuda.round_trip(b"abcd") == b"abcd"}

    def loop(self, seconds):
        cuda = self.up()
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        cuda.must("cuModuleLoadData", ctypes.byref(module), SPIN)
        cuda.must("cuModuleGetFunction", ctypes.byref(function), module, b"spin")

        def step():
            cuda.must("cuLaunchKernel", function, 16, 1, 1, 256, 1, 1, 0, None, None, None)

        def event():
            mark = ctypes.c_void_p()
            cuda.must("cuEventCreate", ctypes.byref(mark), 2)
            cuda.must("cuEventRecord", mark, None)
            return mark

        def wait(mark):
            cuda.must("cuEventSynchronize", mark)
            cuda.must("cuEventDestroy_v2", mark)

        bench_contain.work(seconds, 1, step, event, wait)


bench_contain.serve(Worker())
