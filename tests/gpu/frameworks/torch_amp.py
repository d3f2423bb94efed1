"""Mixed precision: fp16 with a gradient scaler, bf16, and matrix products of each type."""
import result

torch = result.torch_ready(deterministic=True)
from torch import nn  # noqa: E402

net = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(4),
                    nn.Flatten(), nn.Linear(256, 10)).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
scaler = torch.amp.GradScaler("cuda")
x, y = torch.randn(32, 3, 32, 32).cuda(), torch.randint(0, 10, (32,)).cuda()
for step in range(20):
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = nn.functional.cross_entropy(net(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
result.number("loss", loss.item())
result.number("scale", scaler.get_scale())
result.tensor("weight", net[5].weight)
a, b = torch.randn(384, 512).cuda(), torch.randn(512, 256).cuda()
for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
    result.tensor(f"matmul_{dtype}", a.to(dtype) @ b.to(dtype))
torch.backends.cuda.matmul.allow_tf32 = True
result.tensor("matmul_tf32", a @ b)
quantised = torch.randint(-100, 100, (64, 64)).to(torch.int8).cuda()
result.tensor("int8_matmul", torch._int_mm(quantised, quantised.t().contiguous().t()))
scale = torch.ones((), device="cuda")
try:
    result.tensor("fp8_matmul", torch._scaled_mm(a[:, :256].to(torch.float8_e4m3fn).contiguous(),
                                                 b[:256].t().contiguous().to(torch.float8_e4m3fn).t(),
                                                 scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16))
except (RuntimeError, AttributeError, NotImplementedError) as error:
    result.same("fp8_matmul", "refused")
    print(error)
result.tensor("bmm", torch.bmm(torch.randn(16, 32, 48).cuda().half(), torch.randn(16, 48, 64).cuda().half()))
result.done()
