"""NCCL through torch.distributed with one rank."""
import os
import tempfile

os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
import result  # noqa: E402

torch = result.torch_ready()
import torch.distributed as dist  # noqa: E402

torch.cuda.set_device(0)
with tempfile.TemporaryDirectory() as folder:
    dist.init_process_group("nccl", init_method=f"file://{folder}/store", rank=0, world_size=1,
                            device_id=torch.device("cuda", 0))
    x = torch.arange(1 << 20, dtype=torch.float32, device="cuda")
    dist.all_reduce(x)
    result.tensor("all_reduce", x)
    dist.broadcast(x, 0)
    parts = [torch.empty_like(x)]
    dist.all_gather(parts, x * 2)
    result.tensor("all_gather", parts[0])
    out = torch.empty(1 << 20, device="cuda")
    dist.reduce_scatter_tensor(out, x)
    result.tensor("reduce_scatter", out)
    dist.all_to_all_single(out, x + 1)
    result.tensor("all_to_all", out)
    dist.barrier()
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(32, 32).cuda(), device_ids=[0])
    net(torch.ones(4, 32, device="cuda")).sum().backward()
    result.tensor("ddp_gradient", net.module.weight.grad)
    dist.destroy_process_group()
result.same("nccl", torch.cuda.nccl.version())
result.done()
