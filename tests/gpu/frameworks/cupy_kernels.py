"""CuPy: raw kernels and modules through NVRTC, elementwise and reduction kernels."""
import numpy

import result
import cupy

rng = numpy.random.default_rng(3)
x = cupy.asarray(rng.standard_normal(100000).astype(numpy.float32))
y = cupy.asarray(rng.standard_normal(100000).astype(numpy.float32))


def show(name, value):
    result.array(name, cupy.asnumpy(value))


axpy = cupy.RawKernel(r"""
extern "C" __global__ void axpy(const float *x, const float *y, float *out, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a * x[i] + y[i];
}""", "axpy")
out = cupy.empty_like(x)
axpy((391,), (256,), (x, y, out, numpy.float32(2.5), numpy.int32(100000)))
result.check(bool(cupy.allclose(out, 2.5 * x + y, atol=1e-5)), "axpy")
show("raw_kernel", out)

module = cupy.RawModule(code=r"""
__constant__ float factors[4];
template <typename T> __global__ void scaled(const T *in, T *out, int n) {
    extern __shared__ char raw[];
    T *part = reinterpret_cast<T *>(raw);
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    part[threadIdx.x] = i < n ? in[i] * T(factors[i & 3]) : T(0);
    __syncthreads();
    if (i < n) out[i] = part[threadIdx.x] + part[(threadIdx.x + 1) % blockDim.x];
}""", options=("-std=c++17",), name_expressions=("scaled<float>", "scaled<double>"))
factors = cupy.ndarray(4, cupy.float32, module.get_global("factors"))
factors[...] = cupy.asarray([1, 2, 3, 4], dtype=cupy.float32)
for name, dtype in (("scaled<float>", cupy.float32), ("scaled<double>", cupy.float64)):
    source = x.astype(dtype)
    target = cupy.zeros_like(source)
    function = module.get_function(name)
    function((391,), (256,), (source, target, numpy.int32(100000)), shared_mem=256 * source.itemsize)
    show(name.replace("<", "_").strip(">"), target)
result.same("registers_known", function.num_regs > 0)

squares = cupy.ElementwiseKernel("T a, T b", "T c", "c = (a - b) * (a - b)", "squares")
show("elementwise", squares(x, y))
norm = cupy.ReductionKernel("T a", "T b", "a * a", "a + b", "b = sqrt(a)", "0", "norm")
show("reduction", norm(x))


@cupy.fuse()
def fused(a, b):
    return cupy.sqrt(cupy.abs(a)) * b + 1


show("fused", fused(x, y))
big = cupy.RawKernel(r"""
extern "C" __global__ void opted_in(float *out) {
    extern __shared__ float much[];
    much[threadIdx.x * 90] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = much[(255 - threadIdx.x) * 90];
}""", "opted_in")
big.max_dynamic_shared_size_bytes = 96 * 1024
few = cupy.zeros(256, dtype=cupy.float32)
big((1,), (256,), (few,), shared_mem=96 * 1024)
show("much_shared_memory", few)
result.done()
