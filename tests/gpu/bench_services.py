"""The measure services of the step "sched": many small programs at once, a tenant each.

services    SERVICES processes, each of which replays a CUDA graph of ResNet-18's inference, batch 1, and waits for it,
            again and again: inferences a second of all together, of the one that got least and the one that got most,
            the median and the worst service's 99th percentile of an inference's time, and the GPU memory in use.
            Needs PyTorch in --python.
workers     how long WORKERS tenants with isolation = "tenant" take until all their workers are ready, beside as many
            native contexts made at once.

In "MPS Weir" each tenant has a worker of its own, a client of MPS; in "Weir isolated" the same without MPS. In "Weir programs" each
program has one, and with "MPS" behind that under MPS servers that the host runs. The others have one worker for all tenants. With "weights" the
tenants have the weights 100, 200, 300 and 400 in turn, and the TSV has what those of each weight did, as a part of all.

As a program this file is such a service: bench_services.py SECONDS.
"""
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time

SERVICES = 20
WORKERS = 24
SECONDS = 5.0
READY_S = 100


def serve(seconds):
    import torch
    import torchvision
    torch.manual_seed(0)
    net = torchvision.models.resnet18().cuda().half().eval()
    image = torch.randn(1, 3, 224, 224, device="cuda").half()
    with torch.no_grad():
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                net(image)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            net(image)
    graph.replay()
    torch.cuda.synchronize()
    print("ready", flush=True)
    sys.stdin.readline()
    begin, times = time.perf_counter(), []
    while (at := time.perf_counter()) - begin < seconds:
        graph.replay()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - at)
    times.sort()
    print(json.dumps({"n": len(times), "s": time.perf_counter() - begin, "p50": 1e3 * times[len(times) // 2],
                      "p99": 1e3 * times[int(len(times) * 0.99)], "max": 1e3 * times[-1]}), flush=True)


class Services:
    def __init__(self, bench):
        self.bench, self.suite, self.lib = bench, bench.suite, bench.lib
        self.count = 3 if self.suite.options.rehearse else SERVICES
        self.workers_count = 3 if self.suite.options.rehearse else WORKERS

    # ---------------------------------------------------------------- hosts

    def settings(self, kind, count):
        isolated = "isolated" in kind or kind.startswith("MPS")
        isolation = "program" if "programs" in kind else "tenant" if isolated else "group"
        return {f"t{i}": {"isolation": isolation, "weight": self.weight(kind, i)} for i in range(count)}

    @staticmethod
    def weight(kind, index):
        return 100 * (index % 4 + 1) if "weights" in kind else 100

    @contextlib.contextmanager
    def host_for(self, kind, count):
        """A host that serves count tenants, and how long its start took; (None, 0) for a kind without Weir."""
        with self.host_with(kind, self.settings(kind, count)) as both:
            yield both

    @contextlib.contextmanager
    def host_with(self, kind, settings):
        """The same with tenants as they are told."""
        if "Weir" not in kind:
            yield None, 0
            return
        env = self.bench.mps.env if kind.startswith("MPS") else {}
        lines = [f'mps = "{"on" if "programs MPS" in kind else "off"}"']
        host = self.lib.Host(settings, driver=self.suite.driver, env=env, host_lines=lines,
                             args=["--policy", kind.split(" ")[-1]])
        try:
            begin = time.monotonic()
            host.start(READY_S)
            yield host, time.monotonic() - begin
        finally:
            if host.process:
                self.bench.end_host(kind, host)
            else:
                host.discard()

    def process(self, kind, host, index, argv, high=False):
        env = self.bench.native_env()
        if host:
            argv, env = self.lib.guest_argv(host, self.lib.SHM, f"t{index}", argv[0], argv[1:])
        elif kind.startswith("MPS"):
            env.update(self.bench.mps.env)
            if kind == "MPS priority":
                env["CUDA_MPS_CLIENT_PRIORITY"] = "0" if high else "1"
        return self.lib.Process([str(a) for a in argv], env={**env, "OMP_NUM_THREADS": "1"}, name=f"t{index}")

    # ---------------------------------------------------------------- services

    def argv(self):
        if self.suite.options.rehearse:  # a loop of kernels in place of PyTorch
            return [self.bench.load, "pulse", "--wait", *map(str, self.bench.kernel(200)), "--seconds", "1", "--gap-us", "0"]
        return [self.suite.options.python, os.path.abspath(__file__), str(SECONDS)]

    def result(self, process):
        if self.suite.options.rehearse:
            p50, p99, most = self.bench.latency(process.lines)
            return {"n": 1, "s": 1.0, "p50": p50 * 1e-3, "p99": p99 * 1e-3, "max": most * 1e-3}
        return json.loads(process.lines[-1])

    @staticmethod
    def memory_mib():
        ask = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i", "0"]
        try:
            return subprocess.run(ask, capture_output=True, text=True, timeout=20).stdout.strip()
        except (OSError, subprocess.TimeoutExpired):
            return ""

    def one(self, kind):
        processes = []
        try:
            with self.host_for(kind, self.count) as (host, _):
                try:
                    processes = [self.process(kind, host, i, self.argv()) for i in range(self.count)]
                    for p in processes:
                        p.wait_line("^ready$", READY_S)
                    memory = self.memory_mib()
                    for p in processes:
                        p.say("go")
                    for p in processes:
                        self.bench.ends(p, 60)
                    return [self.result(p) for p in processes], memory
                finally:
                    for p in processes:
                        p.kill()
        except (self.lib.Stuck, BrokenPipeError, ValueError, IndexError, TypeError) as error:
            self.bench.notes.append(f"services, {kind}: {str(error)[-600:]}")
            return None

    def services(self, kinds):
        rows = []
        for kind in kinds:
            if self.suite.left_s() < 20:
                break
            if "programs MPS" in kind and not shutil.which("nvidia-cuda-mps-control"):
                self.bench.notes.append(f"services, {kind}: there is no nvidia-cuda-mps-control")
                continue
            found = self.one(kind)
            if not found:
                rows.append([kind, "failed", "", "", "", ""])
                continue
            all_, memory = found
            rates = [r["n"] / r["s"] for r in all_]
            p50s, worst = sorted(r["p50"] for r in all_), max(r["p99"] for r in all_)
            p50 = p50s[len(p50s) // 2]
            rows.append([kind, f"{sum(rates):.0f}", f"{min(rates):.0f} to {max(rates):.0f}", f"{p50:.2f}",
                         f"{worst:.2f}", f"{max(r['max'] for r in all_):.1f}", memory])
            self.bench.note("services", kind, len(all_), "all", sum(rates), "1/s")
            self.bench.note("services", kind, len(all_), "p50", p50, "ms")
            self.bench.note("services", kind, len(all_), "worst p99", worst, "ms")
            for weight in sorted({self.weight(kind, i) for i in range(len(rates))} if "weights" in kind else ()):
                done = sum(rate for i, rate in enumerate(rates) if self.weight(kind, i) == weight)
                self.bench.note("services", kind, len(all_), f"weight {weight}", 100 * done / sum(rates), "%")
        return rows

    # ---------------------------------------------------------------- workers

    def native_s(self, kind):
        """(how many of the contexts came to be, after how many seconds the last)"""
        env = self.bench.native_env()
        if kind.startswith("MPS"):
            env.update(self.bench.mps.env)
        argv = [os.path.join(os.path.dirname(self.bench.load), "contexts"), "start", str(self.workers_count)]
        words = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=READY_S).stdout.split()
        return int(words[2]), float(words[7])

    def workers(self, kinds):
        rows = []
        for kind in kinds:
            try:
                if "Weir" in kind:
                    with self.host_for(kind, self.workers_count) as (host, took_s):
                        ready, seconds = len(host.status()["tenant"]), took_s
                else:
                    ready, seconds = self.native_s(kind)
            except (self.lib.Stuck, ValueError, IndexError, subprocess.TimeoutExpired) as error:
                self.bench.notes.append(f"workers, {kind}: {str(error)[-600:]}")
                rows.append([kind, "failed", ""])
                continue
            rows.append([kind, f"{ready} of {self.workers_count}", f"{seconds:.2f}"])
            self.bench.note("workers", kind, ready, "all", seconds, "s")
        return rows


if __name__ == "__main__":
    serve(float(sys.argv[1]))
