"""A process of a job of several, one on each GPU: a program that bench_ranks.py runs.

    rank.py RANK RANKS PORT CASE...

Says each row as a line of JSON when it has it; {"row": "ready"} is the first. Without CUDA it uses the CPU and Gloo, to try it.
"""
import json
import os
import sys
import time

SIZES = (8, 4096, 65536, 1 << 20, 16 << 20, 256 << 20)
STEPS, WARM = 50, 10


def say(row, **values):
    print(json.dumps({"row": row, **values}), flush=True)


class Rank:
    def __init__(self, rank, ranks, port):
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
        os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
        os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
        import torch
        import torch.distributed as dist
        self.torch, self.dist, self.rank, self.ranks = torch, dist, rank, ranks
        self.cuda = torch.cuda.is_available()
        self.device = torch.device("cuda", rank) if self.cuda else torch.device("cpu")
        self.width = 1024 if self.cuda else 32  # of layers
        options = {}
        if self.cuda:
            torch.cuda.set_device(rank)
            options["device_id"] = self.device
        dist.init_process_group("nccl" if self.cuda else "gloo", rank=rank, world_size=ranks, **options)
        self.wait()
        say("ready")

    def wait(self):
        if self.cuda:
            self.torch.cuda.synchronize()

    def together(self):
        self.wait()
        self.dist.barrier()
        self.wait()

    def timed(self, call, n):
        """Seconds of a call, of n behind each other."""
        for _ in range(max(3, n // 5)):
            call()
        self.together()
        begin = time.perf_counter()
        for _ in range(n):
            call()
        self.wait()
        return (time.perf_counter() - begin) / n

    # ------------------------------------------------------------ collectives

    def calls(self, size):
        """{name: (call, bytes on the bus of each GPU)}; size: of what a rank has in the end, or has given."""
        torch, dist, ranks = self.torch, self.dist, self.ranks
        n = max(size // 4 // ranks, 1) * ranks
        whole, other = (torch.ones(n, device=self.device) for _ in range(2))
        part = torch.ones(n // ranks, device=self.device)
        others = size * (ranks - 1) / ranks
        both = {"all_reduce": (lambda: dist.all_reduce(whole), 2 * others), "broadcast": (lambda: dist.broadcast(whole, 0), size)}
        if not self.cuda:  # Gloo has no more
            return both
        return {**both, "all_gather": (lambda: dist.all_gather_into_tensor(whole, part), others),
                "reduce_scatter": (lambda: dist.reduce_scatter_tensor(part, whole), others),
                "all_to_all": (lambda: dist.all_to_all_single(other, whole), others)}

    def collectives(self):
        for size in SIZES:
            n = 200 if size <= 1 << 20 else 40 if size <= 16 << 20 else 10
            for name, (call, moved) in self.calls(size).items():
                took = self.timed(call, n)
                say(f"{name} {size}", us=took * 1e6, gb_s=moved / took / 1e9)

    def captured(self):
        """all_reduce in a graph: its value after some replays, and the time of one."""
        torch, dist = self.torch, self.dist
        for size in (4096, 1 << 20, 16 << 20):
            x = torch.ones(size // 4, device=self.device)
            dist.all_reduce(x)
            self.wait()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                dist.all_reduce(x)
            x.fill_(1)
            for _ in range(5):
                graph.replay()
            self.wait()
            value = x[-1].item()
            x.fill_(0)
            say(f"captured all_reduce {size}", us=self.timed(graph.replay, 100) * 1e6, value=value)

    # ------------------------------------------------------------ training

    def net(self):
        torch = self.torch
        torch.manual_seed(0)
        layers = torch.nn.Linear(self.width, 4 * self.width), torch.nn.ReLU(), torch.nn.Linear(4 * self.width, self.width)
        return torch.nn.Sequential(*layers).to(self.device)

    def train(self, name, net):
        torch = self.torch
        optimizer = torch.optim.SGD(net.parameters(), 1e-3)
        torch.manual_seed(1 + self.rank)
        data = torch.randn(256, self.width, device=self.device)
        for i in range(WARM + STEPS):
            if i == WARM:
                self.together()
                begin = time.perf_counter()
            optimizer.zero_grad()
            loss = net(data).pow(2).mean()
            loss.backward()
            optimizer.step()
        self.wait()
        say(name, ms=(time.perf_counter() - begin) / STEPS * 1e3, loss=loss.item().hex())

    def ddp(self):
        self.train("ddp", self.torch.nn.parallel.DistributedDataParallel(
            self.net(), device_ids=[self.rank] if self.cuda else None))

    def fsdp(self):
        from torch.distributed.fsdp import fully_shard
        net = self.net()
        for layer in (net[0], net[2], net):
            fully_shard(layer)
        self.train("fsdp", net)

    def tensor(self):
        """Two products, the first one's columns and the second one's rows divided, by hand; then in a graph."""
        torch, dist = self.torch, self.dist
        torch.manual_seed(0)
        x, first, second = (torch.randn(self.width, self.width, device=self.device) / 32 for _ in range(3))
        first, second = first.chunk(self.ranks, 1)[self.rank].contiguous(), second.chunk(self.ranks, 0)[self.rank].contiguous()
        y = torch.empty_like(x)

        def step():
            torch.matmul(torch.relu(x @ first), second, out=y)
            dist.all_reduce(y)

        took = self.timed(step, 50)
        say("tensor parallel", us=took * 1e6, loss=y.double().sum().item().hex())
        if self.cuda:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                step()
            took = self.timed(graph.replay, 50)
            say("tensor parallel, captured", us=took * 1e6, loss=y.double().sum().item().hex())

    # ------------------------------------------------------------ a load

    def load(self):
        """Products and all_reduces until the seconds that a line on stdin says are over. The job stops together."""
        torch, dist = self.torch, self.dist
        a = torch.randn(2 * self.width, 2 * self.width, device=self.device)
        x, stop = torch.ones(1 << 18, device=self.device), torch.zeros(1, device=self.device)
        self.together()
        say("loaded")
        seconds = float(sys.stdin.readline())
        begin = last = time.perf_counter()
        gaps = []
        while stop.item() == 0:
            for _ in range(4):
                a @ a
                dist.all_reduce(x)
            stop.fill_(float(time.perf_counter() - begin >= seconds))
            dist.all_reduce(stop)
            self.wait()
            now = time.perf_counter()
            gaps.append(now - last)
            last = now
        gaps.sort()
        say("load", rank=self.rank, steps_s=len(gaps) / (last - begin), median_ms=gaps[len(gaps) // 2] * 1e3,
            longest_ms=gaps[-1] * 1e3)


def main():
    rank = Rank(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
    for case in sys.argv[4:]:
        getattr(rank, case)()
    rank.dist.destroy_process_group()


if __name__ == "__main__":
    main()
