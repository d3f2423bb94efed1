"""A program that rests between rounds: bench_rebuild.py runs it.

    rest.py CASE

Says {"row": "ready"} as a line of JSON, then for each line of its input {"row": "round N", "ms": M, "sum": S}. The results of
a round depend on all rounds before. Without CUDA it uses the CPU, to try it.
"""
import hashlib
import json
import os
import sys
import time


def say(row, **values):
    print(json.dumps({"row": row, **values}), flush=True)


class Torch:
    """Work of PyTorch's: each method makes it, and returns a function that does one round and gives tensors."""

    def __init__(self):
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # results repeat
        import torch
        torch.manual_seed(1)
        torch.backends.cudnn.benchmark = False
        torch.use_deterministic_algorithms(True, warn_only=True)
        self.torch, self.cuda = torch, torch.cuda.is_available()
        self.device = "cuda" if self.cuda else "cpu"

    def add(self):
        """One kernel on one tensor."""
        x = self.torch.zeros(1 << 20, device=self.device)
        return lambda: [x.add_(1)]

    def matmul(self):
        a = self.torch.randn(1024, 1024, device=self.device) / 32
        state = [self.torch.eye(1024, device=self.device)]

        def go():
            state[0] = state[0] @ a
            return state
        return go

    def conv(self):
        net = self.torch.nn.Sequential(self.torch.nn.Conv2d(3, 64, 7, 2, 3), self.torch.nn.ReLU(), self.torch.nn.Conv2d(64, 64, 3, 1, 1),
                                       self.torch.nn.BatchNorm2d(64), self.torch.nn.AdaptiveAvgPool2d(1)).to(self.device).eval()
        x = self.torch.randn(8, 3, 112, 112, device=self.device)

        @self.torch.no_grad()
        def go():
            out = net(x)
            x.add_(out.mean())
            return [out, x]
        return go

    def train(self):
        """An MLP by Adam."""
        net = self.torch.nn.Sequential(self.torch.nn.Linear(512, 512), self.torch.nn.GELU(), self.torch.nn.Linear(512, 10)).to(self.device)
        step = self.torch.optim.Adam(net.parameters())
        x, y = self.torch.randn(256, 512, device=self.device), self.torch.randint(10, (256,), device=self.device)

        def go():
            for _ in range(10):
                step.zero_grad()
                loss = self.torch.nn.functional.cross_entropy(net(x), y)
                loss.backward()
                step.step()
            return [loss, *net.parameters()]
        return go

    def random(self):
        """The generator's state lies on the device."""
        return lambda: [self.torch.randn(1 << 16, device=self.device)]

    def graph(self):
        """A captured network."""
        net = self.torch.nn.Sequential(*[self.torch.nn.Linear(512, 512) for _ in range(8)]).to(self.device)
        x = self.torch.randn(64, 512, device=self.device)
        with self.torch.no_grad():
            net(x)
            if not self.cuda:
                return lambda: [x.copy_(net(x))]
            side = self.torch.cuda.Stream()
            with self.torch.cuda.stream(side):
                net(x)
            self.torch.cuda.synchronize()
            graph = self.torch.cuda.CUDAGraph()
            with self.torch.cuda.graph(graph):
                x.copy_(net(x))

        def go():
            graph.replay()
            return [x]
        return go

    def sum(self, tensors):
        digest = hashlib.sha256()
        for tensor in tensors:
            digest.update(tensor.detach().cpu().numpy().tobytes())
        return digest.hexdigest()[:16]


def cupy():
    import cupy as cp
    kernel = cp.RawKernel("__device__ int calls; extern \"C\" __global__ void step(float *x)"
                          "{ if (threadIdx.x == 0) calls++; __syncthreads(); x[threadIdx.x] += calls; }", "step")
    x = cp.zeros(256, dtype=cp.float32)

    def go():
        kernel((1,), (256,), (x,))
        return hashlib.sha256(cp.asnumpy(x).tobytes()).hexdigest()[:16]
    return go


CASES = ("add", "matmul", "conv", "train", "random", "graph", "cupy")


def main():
    if sys.argv[1] == "cupy":
        go = cupy()
    else:
        torch = Torch()
        work = getattr(torch, sys.argv[1])()
        go = lambda: torch.sum(work())
    go()
    say("ready")
    for number, _ in enumerate(sys.stdin):
        begin = time.perf_counter()
        result = go()
        say(f"round {number}", ms=(time.perf_counter() - begin) * 1e3, sum=result)


if __name__ == "__main__":
    main()
