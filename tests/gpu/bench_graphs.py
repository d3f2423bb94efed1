"""The measures graphs and decode of the step "sched": long CUDA graphs beside other tenants.

graphs      a loop of long graphs (KERNELS kernels of KERNEL_US each) beside a short kernel every GAP_US: from launch to
            synchronised, and what the graphs get done of what they do alone ("the other"); and two loops of such graphs:
            what both get done together. "alone" is one loop by itself. With "instantiated" the time that
            cuGraphInstantiate took in the program.
decode      PyTorch: a decoder of the size of Qwen3-4B with random weights, a token by CUDA graph, beside the training of a
            ResNet-50: the time of a token; and ResNet-18 inference every 2 ms beside a training of which each step is one
            CUDA graph. Needs --python.

An arrangement that ends in "whole" has graph_piece_us = 0, in "half" 500, in "pieces" 1000. With "programs" each program has a worker
of its own, with "MPS" these are under MPS servers that the host runs; otherwise there is one worker for all tenants.

As a program this file is such a tenant: bench_graphs.py decode|train|captured|infer SECONDS.
"""
import json
import os
import re
import sys
import time

import bench_sched

KERNELS, KERNEL_US = 300, 100
SHORT_US, GAP_US = 100, 2000
DECODE_S = 6.0
PIECES = {"whole": 0, "half": 500, "pieces": 1000}  # an arrangement's last word, and graph_piece_us


# -------------------------------------------------------------------- the measured PyTorch process

class Decoder:
    """A token of a decoder, batch 1, behind CONTEXT others; nothing of it depends on what the weights are."""

    LAYERS, WIDTH, HEADS, KEY_HEADS, HEAD, INNER, VOCABULARY, CONTEXT = 36, 2560, 32, 8, 128, 9728, 151936, 1024

    def __init__(self, torch):
        self.torch = torch
        self.layers = [self.layer() for _ in range(self.LAYERS)]
        self.words = self.weight(self.VOCABULARY, self.WIDTH)
        self.word = torch.zeros(1, dtype=torch.long, device="cuda")

    def weight(self, *shape):
        return self.torch.randn(shape, device="cuda", dtype=self.torch.half) * 0.02

    def layer(self):
        keys = self.KEY_HEADS * self.HEAD
        return {"qkv": self.weight(self.HEADS * self.HEAD + 2 * keys, self.WIDTH), "out": self.weight(self.WIDTH, self.HEADS * self.HEAD),
                "up": self.weight(2 * self.INNER, self.WIDTH), "down": self.weight(self.WIDTH, self.INNER),
                "keys": self.weight(1, self.KEY_HEADS, self.CONTEXT, self.HEAD), "values": self.weight(1, self.KEY_HEADS, self.CONTEXT, self.HEAD)}

    def attention(self, x, layer):
        F = self.torch.nn.functional
        keys = self.KEY_HEADS * self.HEAD
        q, k, v = F.linear(x, layer["qkv"]).split([self.HEADS * self.HEAD, keys, keys], -1)
        layer["keys"][:, :, -1] = k.view(1, self.KEY_HEADS, self.HEAD)
        layer["values"][:, :, -1] = v.view(1, self.KEY_HEADS, self.HEAD)
        # The heads of a group share keys: they are so many queries of one head.
        q = q.view(1, self.KEY_HEADS, self.HEADS // self.KEY_HEADS, self.HEAD)
        y = F.scaled_dot_product_attention(q, layer["keys"], layer["values"])
        return F.linear(y.reshape(1, -1), layer["out"])

    def norm(self, x):
        return x * self.torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6).half()

    def step(self):
        F = self.torch.nn.functional
        x = F.embedding(self.word, self.words)
        for layer in self.layers:
            x = x + self.attention(self.norm(x), layer)
            gate, up = F.linear(self.norm(x), layer["up"]).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, layer["down"])
        self.word.copy_(F.linear(self.norm(x), self.words).argmax(-1))


def captured_graph(torch, step):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph


def times_of(torch, step, seconds):
    """Of one step after the other, each with its synchronisation."""
    for _ in range(20):
        step()
    torch.cuda.synchronize()
    bench_sched.meet()
    times, begin = [], time.perf_counter()
    while (at := time.perf_counter()) < begin + seconds:
        step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - at) * 1e3)
    n = len(times)
    times.sort()
    return {"p50": times[n // 2], "p99": times[n * 99 // 100], "max": times[-1], "steps_s": n / (time.perf_counter() - begin), "n": n}


def decode(torch, seconds):
    with torch.no_grad():
        return times_of(torch, captured_graph(torch, Decoder(torch).step).replay, seconds)


def captured(torch, seconds):
    """A training whose steps are graphs, with two of them in flight."""
    net, sgd, images, classes = bench_sched.training(torch)

    def step():
        sgd.zero_grad(set_to_none=False)
        with torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False):
            loss = torch.nn.functional.cross_entropy(net(images), classes)
        loss.backward()
        sgd.step()

    graph = captured_graph(torch, step)
    graph.replay()
    torch.cuda.synchronize()
    bench_sched.meet()
    begin, count, done = time.perf_counter(), 0, [torch.cuda.Event(), torch.cuda.Event()]
    while time.perf_counter() < begin + seconds:
        done[count % 2].synchronize()
        graph.replay()
        done[count % 2].record()
        count += 1
    torch.cuda.synchronize()
    return {"steps_s": count / (time.perf_counter() - begin), "n": count}


def serve():
    import torch
    torch.manual_seed(0)
    work = {"decode": decode, "captured": captured, "train": bench_sched.train, "infer": bench_sched.infer}[sys.argv[1]]
    print(json.dumps(work(torch, float(sys.argv[2]))), flush=True)


# -------------------------------------------------------------------- the measuring process

WEIR = [f"Weir fair{where} {word}" for where in ("", " programs", " MPS", ",corun MPS") for word in ("whole", "pieces", "half")] + \
    ["Weir priority whole", "Weir priority pieces"]
REHEARSED = ["Weir fair programs pieces"]


class Graphs:
    def __init__(self, bench):
        self.bench, self.suite = bench, bench.suite
        self.kernels = 20 if self.suite.options.rehearse else KERNELS

    def weir(self):
        return REHEARSED if self.suite.options.rehearse else WEIR

    def priorities(self, kind):
        return ("high", "low") if " priority" in kind else ("normal", "normal")

    def loop(self, priority="normal"):
        bench = self.bench
        return bench.tenant([bench.load, "loop", "--wait", "--graph", self.kernels, *bench.kernel(KERNEL_US), "--depth", 2,
                             "--batch", 1, "--seconds", bench.seconds], 1, priority)

    def pulse(self, priority):
        bench = self.bench
        return bench.tenant([bench.load, "pulse", "--wait", *bench.kernel(SHORT_US), "--seconds", bench.seconds,
                             "--gap-us", GAP_US * bench.slow], 1, priority)

    def done(self, lines):
        """What a loop got done, of what its kernels take alone; until it stopped launching."""
        slots = self.bench.slots(lines)
        if len(slots) < 3:
            return 0
        graph_ms = self.kernels * self.bench.calibrate(KERNEL_US)[1] * 1e-3
        return sum(n for _, n in slots[1:]) * graph_ms / (slots[-1][0] - slots[0][0])

    @staticmethod
    def instantiated(lines):
        found = re.search(r"instantiated in ([\d.]+) us", "\n".join(lines))
        return found[1] if found else ""

    def attempt(self, kind, case, tenants):
        """A row; the first tenant may be the short one."""
        bench = self.bench
        lines = bench.together(kind, tenants)
        if not lines:
            return [case, kind, "failed", "", "", "", ""]
        times = bench.latency(lines[0])
        loops = lines[1:] if times else lines
        done = sum(self.done(one) for one in loops)
        for name, value in zip(("p50", "p99", "max"), times or []):
            bench.note("graphs", kind, case, name, value, "us")
        bench.note("graphs", kind, case, "graphs", done, "of alone")
        cells = [f"{t:.0f}" for t in times] if times else [""] * 3
        return [case, kind, *cells, f"{done:.3f}", self.instantiated(loops[0])]

    def graphs(self, kinds):
        rows = []
        for kind in kinds:
            short, long = self.priorities(kind)
            cases = (("short kernels beside graphs", [self.pulse(short), self.loop(long)]), ("alone", [self.loop()]),
                     ("graphs beside graphs", [self.loop(), self.loop()]))
            for case, tenants in cases[:1] if self.suite.options.rehearse else cases:
                if self.suite.left_s() >= 15 and self.bench.wanted([case], self.suite.options.cases):
                    rows.append(self.attempt(kind, case, tenants))
        return rows

    # ---------------------------------------------------------------- PyTorch

    def torch_tenants(self, modes, priorities):
        return [self.bench.tenant([self.suite.options.python, os.path.abspath(__file__), mode, DECODE_S], 1, priority)
                for mode, priority in zip(modes, priorities)]

    def torch_row(self, kind, modes):
        case = " beside ".join(modes)
        lines = self.bench.together(kind, self.torch_tenants(modes, self.priorities(kind)), 120)
        try:
            results = [json.loads(tenant[-1]) for tenant in lines]
        except (TypeError, ValueError, IndexError):
            return [case, kind, "failed", "", "", ""]
        for i, result in enumerate(results):
            for name, value in result.items():
                self.bench.note("decode", kind, case, i, value, name)
        first = results[0]
        return [case, kind, *(f"{first[k]:.2f}" if k in first else "" for k in ("p50", "p99", "max")),
                f"{results[-1]['steps_s']:.2f}"]

    def decode(self, kinds):
        rows = []
        for kind in kinds:
            for modes in (("decode",), ("decode", "train"), ("captured",), ("infer", "captured")):
                if self.suite.left_s() >= 30 and self.bench.wanted([" beside ".join(modes)], self.suite.options.cases):
                    rows.append(self.torch_row(kind, modes))
        return rows


if __name__ == "__main__":
    serve()
