"""Triton with tensor maps (the bulk copy engine): descriptors made on the host and on the device."""
import result

torch = result.torch_ready()
import triton  # noqa: E402
import triton.language as tl  # noqa: E402

if torch.cuda.get_device_capability()[0] < 9:
    result.skip("tensor maps need a device of 9.0 or later")
try:
    from triton.tools.tensor_descriptor import TensorDescriptor
except ImportError:
    result.skip("this Triton has no tensor descriptors")


@triton.jit
def from_host(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for at in range(0, K, BK):
        total += tl.dot(a.load([row, at]), b.load([at, column]))
    c.store([row, column], total.to(tl.float16))


@triton.jit
def on_device(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    source = tl.make_tensor_descriptor(x, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    target = tl.make_tensor_descriptor(out, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    target.store([row, column], source.load([row, column]) * 2)


M, N, K = 512, 384, 256
a, b = torch.randn(M, K).cuda().half(), torch.randn(K, N).cuda().half()
c = torch.zeros(M, N, device="cuda", dtype=torch.float16)
from_host[(M // 128, N // 128)](TensorDescriptor.from_tensor(a, [128, 64]), TensorDescriptor.from_tensor(b, [64, 128]),
                                TensorDescriptor.from_tensor(c, [128, 128]), K, BM=128, BN=128, BK=64, num_warps=8)
result.check(torch.allclose(c, a @ b, atol=0.1, rtol=0.01), "product through host descriptors")
result.tensor("from_host", c)

triton.set_allocator(lambda size, alignment, stream: torch.empty(size, device="cuda", dtype=torch.int8))
x = torch.randn(M, N).cuda()
out = torch.zeros_like(x)
on_device[(M // 64, N // 64)](x, out, M, N, BM=64, BN=64)
result.check(torch.equal(out, x * 2), "copy through device descriptors")
result.tensor("on_device", out)
result.done()
