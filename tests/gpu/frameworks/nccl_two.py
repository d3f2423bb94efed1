"""NCCL all-reduce between two processes on two GPUs."""
import os
import tempfile

os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
import result  # noqa: E402

torch = result.torch_ready()
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402


def rank(number, store, outbox):
    torch.cuda.set_device(number)
    dist.init_process_group("nccl", init_method=f"file://{store}", rank=number, world_size=2,
                            device_id=torch.device("cuda", number))
    digests = []
    for size in (1, 1000, 1 << 20, 1 << 24):
        x = torch.arange(size, dtype=torch.float32, device="cuda") * (number + 1)
        dist.all_reduce(x)
        digests.append(float(x.double().sum()))
    parts = [torch.empty(4, device="cuda") for _ in range(2)]
    dist.all_gather(parts, torch.full((4,), float(number), device="cuda"))
    digests.append(float(torch.stack(parts).sum()))
    if number == 0:
        dist.send(torch.full((1000,), 7.0, device="cuda"), 1)
    else:
        got = torch.empty(1000, device="cuda")
        dist.recv(got, 0)
        digests.append(float(got.sum()))
    torch.manual_seed(0)
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(256, 256).cuda(), device_ids=[number])
    net(torch.full((8, 256), 1.0 + number, device="cuda")).sum().backward()
    digests.append(float(net.module.weight.grad.double().sum()))
    torch.cuda.synchronize()
    outbox.put((number, digests))
    dist.destroy_process_group()


if __name__ == "__main__":
    if torch.cuda.device_count() < 2:
        result.skip("one GPU")
    context = mp.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        outbox = context.Queue()
        ranks = [context.Process(target=rank, args=(n, os.path.join(folder, "store"), outbox)) for n in range(2)]
        for process in ranks:
            process.start()
        for number, digests in sorted(outbox.get(timeout=90) for _ in ranks):
            result.numbers(f"rank_{number}", digests)
        for process in ranks:
            process.join(30)
            result.check(process.exitcode == 0, f"a rank ended with {process.exitcode}")
    result.done()
