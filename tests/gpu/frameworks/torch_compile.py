"""torch.compile: inductor and Triton kernels, forward, backward, dynamic shapes, reduce-overhead."""
import result

torch = result.torch_ready()
from torch import nn  # noqa: E402

torch.set_float32_matmul_precision("highest")
net = nn.Sequential(nn.Linear(128, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 10)).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
inputs = torch.randn(64, 128).cuda()
labels = torch.randint(0, 10, (64,)).cuda()
eager = net(inputs)
compiled = torch.compile(net)
result.check(torch.allclose(compiled(inputs), eager, atol=1e-4), "compiled and eager agree")
for step in range(20):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(compiled(inputs), labels)
    loss.backward()
    optimizer.step()
result.number("loss", loss.item())
for name, weights in net.named_parameters():
    result.tensor(name, weights)


@torch.compile(dynamic=True)
def softmax_and_sum(x):
    return torch.softmax(x * 2 + 1, dim=-1), x.sin().cumsum(0).sum(1)


for rows in (3, 17, 129):
    first, second = softmax_and_sum(torch.arange(rows * 50, device="cuda").reshape(rows, 50).float() / 100)
    result.tensor(f"dynamic_{rows}_softmax", first)
    result.tensor(f"dynamic_{rows}_sum", second)

graphed = torch.compile(lambda x: (x @ x.T).relu().mean(1) + x.sum(1), mode="reduce-overhead")
for turn in range(4):
    torch.compiler.cudagraph_mark_step_begin()
    result.tensor(f"reduce_overhead_{turn}", graphed(inputs + turn).clone())
result.done()
