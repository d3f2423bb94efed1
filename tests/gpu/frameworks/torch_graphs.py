"""CUDA graphs of PyTorch: capture, replay, new inputs, shared pools, training, graphed callables."""
import result

torch = result.torch_ready(deterministic=True)
from torch import nn  # noqa: E402


def warm(function, turns=3):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(turns):
            function()
    torch.cuda.current_stream().wait_stream(side)


a = torch.randn(256, 256).cuda()
static = a.clone()


def chain():
    b = static
    for _ in range(20):
        b = (b @ a).relu() * 0.01
    return b


warm(chain)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    out = chain()
for turn in range(3):
    static.copy_(a * (turn + 1))
    graph.replay()
    result.check(torch.equal(out, chain()), f"replay {turn} equals eager")
    result.tensor(f"replay_{turn}", out)

# A second graph in the first one's memory pool.
second = torch.cuda.CUDAGraph()
with torch.cuda.graph(second, pool=graph.pool()):
    out2 = (out + 1).sqrt().sum(0)
graph.replay()
second.replay()
result.tensor("second_graph", out2)

# Copies, fills, a host-to-device copy of pinned memory and random numbers inside a graph.
pinned = torch.arange(1024, dtype=torch.float32).pin_memory()
device = torch.zeros(1024, device="cuda")
back = torch.zeros(1024).pin_memory()
noise = torch.zeros(1024, device="cuda")


def mixed():
    device.copy_(pinned, non_blocking=True)
    device.mul_(3)
    noise.normal_()
    back.copy_(device, non_blocking=True)


warm(mixed)
torch.cuda.manual_seed(99)
third = torch.cuda.CUDAGraph()
with torch.cuda.graph(third):
    mixed()
for turn in range(3):
    pinned.fill_(turn + 0.5)
    third.replay()
    torch.cuda.synchronize()
    result.check(bool((back == (turn + 0.5) * 3).all()), f"copies inside a graph, turn {turn}")
    result.tensor(f"noise_{turn}", noise)

# A whole training step.
net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).cuda()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, capturable=True)
x, y = torch.randn(32, 64).cuda(), torch.randint(0, 10, (32,)).cuda()


def step():
    optimizer.zero_grad(set_to_none=True)
    loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    return loss


warm(step)
training = torch.cuda.CUDAGraph()
optimizer.zero_grad(set_to_none=True)
with torch.cuda.graph(training):
    loss = step()
for turn in range(50):
    training.replay()
result.number("graphed_training_loss", loss.item())
result.tensor("graphed_training_weights", net[0].weight)

module = nn.Sequential(nn.Linear(64, 64), nn.Tanh()).cuda()
sample = torch.randn(16, 64, device="cuda", requires_grad=True)
graphed = torch.cuda.make_graphed_callables(module, (sample,))
values = torch.randn(16, 64).cuda().requires_grad_()
graphed(values).square().sum().backward()
result.tensor("graphed_callable_gradient", values.grad)

for graph_ in (graph, second, third, training):
    graph_.reset()
result.tensor("after_reset", chain())
result.done()
