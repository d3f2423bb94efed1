"""Work that makes the allocator grow, split and shrink; run under several PYTORCH_CUDA_ALLOC_CONF."""
import gc
import os

import result

torch = result.torch_ready(deterministic=True)
result.same("backend", torch.cuda.get_allocator_backend())
print("settings", os.environ.get("PYTORCH_CUDA_ALLOC_CONF"))
MIB = 1 << 20
generator = torch.Generator().manual_seed(3)
held = {}
for turn in range(300):
    size = int(torch.randint(1, 24 * MIB, (1,), generator=generator))
    held[turn % 17] = torch.full((size,), turn % 251, dtype=torch.uint8, device="cuda")
    if turn % 60 == 59:
        torch.cuda.empty_cache()
result.same("sum", sum(int(t[-1]) + int(t[0]) for t in held.values()))
result.same("sizes", sum(t.numel() for t in held.values()))
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    other = torch.ones(64 * MIB, device="cuda")
    other.mul_(2)
torch.cuda.current_stream().wait_stream(side)
result.number("other_stream", other.sum().item())
growing = torch.zeros(1, device="cuda")
for _ in range(40):
    growing = torch.cat([growing, torch.ones(1 * MIB, device="cuda")])
result.number("growing", growing.sum().item())
del held, other
gc.collect()
torch.cuda.empty_cache()
result.check(torch.cuda.memory_allocated() >= growing.numel() * 4, "what is held is counted")
net = torch.nn.Linear(1024, 1024).cuda()
loss = net(torch.randn(256, 1024).cuda()).square().mean()
loss.backward()
result.tensor("gradient", net.weight.grad)
if torch.cuda.get_allocator_backend() == "native":
    static = torch.randn(512, 512).cuda()
    torch.cuda.synchronize()
    static @ static
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = (static @ static).relu()
    graph.replay()
    result.tensor("graph", out)
free, total = torch.cuda.mem_get_info()
result.check(0 < free <= total, "mem_get_info")
result.done()
