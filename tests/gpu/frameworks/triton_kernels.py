"""Hand-written Triton kernels: vector addition, softmax, a matrix product, atomics, autotuning."""
import result

torch = result.torch_ready()
import triton  # noqa: E402
import triton.language as tl  # noqa: E402


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


@triton.jit
def softmax(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    values = tl.exp(values - tl.max(values, 0))
    tl.store(out + row * columns + at, values / tl.sum(values, 0), mask=at < columns)


@triton.jit
def product(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        inner = start + tl.arange(0, BK)
        left = tl.load(a + rows[:, None] * K + inner[None, :])
        right = tl.load(b + inner[:, None] * N + columns[None, :])
        total += tl.dot(left, right)
    tl.store(c + rows[:, None] * N + columns[None, :], total.to(tl.float16))


@triton.jit
def count(x, bins, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(bins + tl.load(x + at, mask=at < n, other=0), 1, mask=at < n)


n = 98432
x, y = torch.rand(n).cuda(), torch.rand(n).cuda()
out = torch.empty_like(x)
add[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)
result.check(torch.equal(out, x + y), "addition")
result.tensor("add", out)

table = torch.randn(300, 781).cuda()
soft = torch.empty_like(table)
for warps in (2, 8):
    softmax[(300,)](table, soft, 781, BLOCK=1024, num_warps=warps)
    result.check(torch.allclose(soft, torch.softmax(table, 1), atol=1e-5), "softmax")
    result.tensor(f"softmax_{warps}_warps", soft)

a, b = torch.randn(512, 256).cuda().half(), torch.randn(256, 384).cuda().half()
c = torch.empty(512, 384, device="cuda", dtype=torch.float16)
for stages in (1, 3):
    product[(4, 3)](a, b, c, 512, 384, 256, BM=128, BN=128, BK=64, num_warps=8, num_stages=stages)
    result.check(torch.allclose(c, a @ b, atol=0.1, rtol=0.01), "matrix product")
    result.tensor(f"product_{stages}_stages", c)

bins = torch.zeros(64, dtype=torch.int32, device="cuda")
numbers = torch.randint(0, 64, (n,), dtype=torch.int32).cuda()
count[(triton.cdiv(n, 256),)](numbers, bins, n, BLOCK=256)
result.check(torch.equal(bins.long(), torch.bincount(numbers, minlength=64)), "atomics")
result.tensor("count", bins)

tuned = triton.autotune([triton.Config({"BLOCK": size}) for size in (256, 512, 2048)], key=["n"])(add)
tuned[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n)
result.tensor("autotuned", out)
result.done()
