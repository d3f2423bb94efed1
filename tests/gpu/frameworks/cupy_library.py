"""CuPy: fft, linear algebra, CUB reductions, streams, graphs, pools, pinned memory."""
import numpy

import result
import cupy

rng = numpy.random.default_rng(4)


def show(name, value):
    result.array(name, cupy.asnumpy(value))


a = cupy.asarray(rng.standard_normal((200, 200)))
spd = a @ a.T + 200 * cupy.eye(200)
show("fft", cupy.abs(cupy.fft.fft(a[0])))
show("rfft2", cupy.abs(cupy.fft.rfft2(a)))
show("solve", cupy.linalg.solve(spd, a[:, 0]))
show("svd", cupy.linalg.svd(a, compute_uv=False))
show("eigh", cupy.linalg.eigvalsh(spd))
show("cholesky", cupy.linalg.cholesky(spd))
show("qr", cupy.abs(cupy.linalg.qr(a)[1]))
show("einsum", cupy.einsum("ij,kj->ik", a, a))
whole = cupy.asarray(rng.integers(-1000, 1000, 1000000))
for function in (cupy.sum, cupy.max, cupy.min, cupy.argmax, cupy.cumsum, cupy.sort, cupy.unique, cupy.prod):
    show(function.__name__, function(whole if function is not cupy.prod else whole[:5]))
show("histogram", cupy.histogram(whole, bins=20)[0])
show("random", cupy.random.RandomState(6).standard_normal(1000))

streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(3)]
parts = []
for number, stream in enumerate(streams):
    with stream:
        parts.append((a * (number + 1)).sum(0))
for stream in streams:
    stream.synchronize()
for number, part in enumerate(parts):
    show(f"stream_{number}", part)
start, end = cupy.cuda.Event(), cupy.cuda.Event()
start.record()
(a @ a).sum()
end.record()
end.synchronize()
result.check(cupy.cuda.get_elapsed_time(start, end) >= 0, "elapsed time")

stream = streams[0]
target = cupy.zeros(1000)
with stream:
    target += 1  # compiled and loaded before the capture
    target *= 2
    target[...] = 0
    stream.begin_capture()
    target += 1
    target *= 2
    graph = stream.end_capture()
    for _ in range(3):
        graph.launch(stream)
stream.synchronize()
show("graph", target)

pool = cupy.get_default_memory_pool()
before = pool.used_bytes()
block = cupy.empty(50 << 20, dtype=cupy.uint8)
result.same("pool_grew", pool.used_bytes() - before)
del block
pool.free_all_blocks()
free, total = cupy.cuda.runtime.memGetInfo()
result.check(0 < free <= total, "memGetInfo")
if cupy.cuda.runtime.deviceGetAttribute(115, 0):  # cudaDevAttrMemoryPoolsSupported
    cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
    show("async_pool", cupy.arange(100000).sum())
    cupy.cuda.set_allocator(pool.malloc)
memory = cupy.cuda.alloc_pinned_memory(1 << 20)
pinned = numpy.frombuffer(memory, numpy.uint8, 1 << 20)
pinned[...] = numpy.arange(1 << 20) % 251
device = cupy.empty(1 << 20, dtype=cupy.uint8)
device.set(pinned, stream=stream)
stream.synchronize()
show("pinned", device)
managed = cupy.ndarray(1000, cupy.float64, cupy.cuda.malloc_managed(8000)) \
    if cupy.cuda.runtime.deviceGetAttribute(83, 0) else None  # cudaDevAttrManagedMemory
if managed is not None:
    managed[...] = 3
    show("managed", managed)
result.done()
