"""An LLM engine's decoding, by CUDA graph: a program that the measure "llm" of the step "sched" runs.

    bench_llm.py --requests 1 2 8 32 [--layers 36] [--context 512]

A decoder of Qwen3-4B's shape (hidden 2560, 32 heads, 8 for keys and values, 128 each, feed-forward 9728, vocabulary
151936) with random weights in bf16, plain PyTorch, a key-value cache that is there from the start, and for each number of
requests a captured graph of one step: a token for each request. Says "ready"; then a line "REQUESTS SECONDS" on stdin is
answered by a JSON object: tokens a second, and the median, 99th percentile and longest time of a step, each waited for.
"""
import argparse
import json
import sys
import time

HIDDEN, HEADS, KV_HEADS, HEAD, FORWARD, VOCABULARY = 2560, 32, 8, 128, 9728, 151936


class Decoder:
    def __init__(self, torch, layers, requests, context):
        self.torch, self.context = torch, context

        def weight(*shape):
            return torch.empty(*shape, device="cuda", dtype=torch.bfloat16).normal_(0, 0.02)

        def ones(n):
            return torch.ones(n, device="cuda", dtype=torch.bfloat16)

        self.embedding = weight(VOCABULARY, HIDDEN)  # of tokens, and of the logits
        self.norm = ones(HIDDEN)
        self.layers = [{"qkv": weight((HEADS + 2 * KV_HEADS) * HEAD, HIDDEN), "out": weight(HIDDEN, HEADS * HEAD),
                        "up": weight(2 * FORWARD, HIDDEN), "down": weight(HIDDEN, FORWARD), "before": ones(HIDDEN),
                        "after": ones(HIDDEN), "q": ones(HEAD), "k": ones(HEAD),
                        "keys": weight(requests, KV_HEADS, context, HEAD), "values": weight(requests, KV_HEADS, context, HEAD)}
                       for _ in range(layers)]
        self.places = torch.arange(context, device="cuda")
        angles = self.places[:, None] / 1e6 ** (torch.arange(0, HEAD, 2, device="cuda") / HEAD)[None, :]
        self.cos, self.sin = angles.cos().bfloat16(), angles.sin().bfloat16()

    def rms(self, x, weight):
        return self.torch.nn.functional.rms_norm(x, (x.shape[-1],), weight, 1e-6)

    def turned(self, x, cos, sin):
        a, b = x.chunk(2, -1)
        return self.torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    def attend(self, layer, x, at, mask):
        n = x.shape[0]
        q, k, v = (x @ layer["qkv"].T).view(n, HEADS + 2 * KV_HEADS, HEAD).split((HEADS, KV_HEADS, KV_HEADS), 1)
        cos, sin = self.cos[at][:, None], self.sin[at][:, None]
        q = self.turned(self.rms(q, layer["q"]), cos, sin).view(n, KV_HEADS, HEADS // KV_HEADS, HEAD)
        keys, values = layer["keys"][:n], layer["values"][:n]
        keys.index_copy_(2, at, self.turned(self.rms(k, layer["k"]), cos, sin)[:, :, None])
        values.index_copy_(2, at, v[:, :, None])
        scores = (q @ keys.transpose(-1, -2)).float() * HEAD ** -0.5 + mask
        return (scores.softmax(-1).bfloat16() @ values).reshape(n, HEADS * HEAD) @ layer["out"].T

    def step(self, tokens, at):
        """The next token of each request; `at` (one number) is where they stand in the cache."""
        mask = (self.places > at).float() * -1e30
        x = self.embedding[tokens]
        for layer in self.layers:
            x = x + self.attend(layer, self.rms(x, layer["before"]), at, mask)
            gate, up = (self.rms(x, layer["after"]) @ layer["up"].T).chunk(2, -1)
            x = x + (self.torch.nn.functional.silu(gate) * up) @ layer["down"].T
        return (self.rms(x, self.norm) @ self.embedding.T).argmax(-1)


def captured(torch, decoder, requests):
    """A graph of one step that feeds itself."""
    tokens = torch.randint(VOCABULARY, (requests,), device="cuda")
    at = torch.zeros(1, device="cuda", dtype=torch.long)

    def once():
        tokens.copy_(decoder.step(tokens, at))
        at.add_(1).remainder_(decoder.context)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        once()
        once()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        once()
    graph.replay()
    torch.cuda.synchronize()
    return graph


def measure(torch, graph, requests, seconds):
    times = []
    begin = time.perf_counter()
    while (at := time.perf_counter()) - begin < seconds:
        graph.replay()
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - at))
    took = time.perf_counter() - begin
    times.sort()
    return {"requests": requests, "tokens_s": requests * len(times) / took, "p50": times[len(times) // 2],
            "p99": times[len(times) * 99 // 100], "max": times[-1], "n": len(times)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, nargs="+", required=True)
    parser.add_argument("--layers", type=int, default=36)
    parser.add_argument("--context", type=int, default=512)
    options = parser.parse_args()
    import torch
    torch.manual_seed(0)
    with torch.no_grad():
        decoder = Decoder(torch, options.layers, max(options.requests), options.context)
        graphs = {n: captured(torch, decoder, n) for n in options.requests}
    print("ready", flush=True)
    for line in sys.stdin:
        requests, seconds = line.split()
        print(json.dumps(measure(torch, graphs[int(requests)], int(requests), float(seconds))), flush=True)


if __name__ == "__main__":
    main()
