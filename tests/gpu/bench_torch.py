"""The step "torchbench" of tests/gpu/run: PyTorch workloads timed natively and through Weir in turn.

Two long-lived processes, one native and one in a guest, set up the same measure and are asked for one
sample after the other in turn; the one that is not asked is blocked in a read. A sample is the median (for
the round trip the mean) of a few steps, each with a synchronisation behind it; the figure is the median of
the samples. "first" takes fresh processes: they import PyTorch, several at once, and then wait; asked one
by one, in turn, they time their first tensor on the GPU.

As a program this file is such a process: bench_torch.py --serve (commands on stdin) or --first.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
MIB = 1 << 20
FIRST_AT_ONCE = 8
ANSWER_LIMIT_S = 90

# measure: (unit, is more better, target as a ratio to native or None, what it is)
MEASURES = {
    "first": ("ms", False, 0.60, "first tensor on the GPU, process warm in the page cache"),
    "item": ("us", False, 1.10, "x.add_(1).item() round trip"),
    "mlp": ("ms", False, 1.03, "MLP training step, 3 small layers, Adam"),
    "resnet18": ("ms", False, 1.03, "ResNet-18 inference, batch 1"),
    "resnet50": ("ms", False, 1.01, "ResNet-50 training, bf16, batch 64"),
    "gpt2": ("tok/s", True, 0.98, "GPT-2 generate, batch 1, fp16"),
    "graph": ("ms", False, 1.02, "CUDA graph of 60 kernels, replay"),
}
for _kind, _targets in (("pinned", (0.98, 0.98)), ("pageable", (1.5, 1.1))):
    for _size in (1, 64, 256):
        for _way, _target in zip(("h2d", "d2h"), _targets):
            MEASURES[f"{_kind}_{_way}_{_size}"] = (
                "GB/s", True, _target if _size > 1 else None, f"{_kind} copy, {_size} MiB, {_way.upper()}")


# -------------------------------------------------------------------- in the measured process

def timed(torch, step, count):
    """Milliseconds of `count` steps, each with its synchronisation."""
    times = []
    for _ in range(count):
        start = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def prepare_item(torch):
    cell = torch.zeros(1, device="cuda")

    def sample():
        start = time.perf_counter()
        for _ in range(200):
            cell.add_(1).item()
        return (time.perf_counter() - start) / 200 * 1e6
    return sample


def prepare_mlp(torch):
    nn = torch.nn
    layers = [nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)]
    net = nn.Sequential(*layers).to("cuda")
    adam = torch.optim.Adam(net.parameters())
    inputs = torch.randn((32, 64), device="cuda")
    classes = torch.randint(10, (32,), device="cuda")

    def step():
        adam.zero_grad()
        nn.functional.cross_entropy(net(inputs), classes).backward()
        adam.step()
    return lambda: timed(torch, step, 30)


def prepare_resnet18(torch):
    import torchvision
    net = torchvision.models.resnet18().to("cuda").eval()
    image = torch.randn((1, 3, 224, 224), device="cuda")

    def sample():
        with torch.no_grad():
            return timed(torch, lambda: net(image), 30)
    return sample


def prepare_resnet50(torch):
    import torchvision
    net = torchvision.models.resnet50().to("cuda").train()
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    images = torch.randn((64, 3, 224, 224), device="cuda")
    classes = torch.randint(1000, (64,), device="cuda")

    def step():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(net(images), classes)
        sgd.zero_grad()
        loss.backward()
        sgd.step()
    return lambda: timed(torch, step, 5)


def prepare_gpt2(torch):
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
    import transformers
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config()).to("cuda").half().eval()
    prompt = torch.randint(1000, (1, 16), device="cuda")
    tokens = 64

    def step():
        with torch.no_grad():
            model.generate(prompt, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False, pad_token_id=0)
    return lambda: tokens / timed(torch, step, 1) * 1e3


def prepare_graph(torch):
    matrix = torch.randn((512, 512), device="cuda")

    def kernels():
        value = matrix
        for _ in range(20):
            value = (value @ matrix).relu() * 0.01
        return value

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        kernels()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernels()
    return lambda: timed(torch, graph.replay, 50)


def prepare_copy(torch, name):
    kind, way, size = name.split("_")
    count = int(size) * MIB
    host = torch.randint(255, (count,), dtype=torch.uint8)
    host = host.pin_memory() if kind == "pinned" else host
    device = torch.empty(count, dtype=torch.uint8, device="cuda")
    source, target = (host, device) if way == "h2d" else (device, host)

    def step():
        target.copy_(source, non_blocking=kind == "pinned")
    return lambda: count / timed(torch, step, 10) / 1e6


def serve():
    """Commands `prepare NAME`, `sample`, `drop`; a JSON line answers each."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer

    def answer(**what):
        answers.write(json.dumps(what) + "\n")
        answers.flush()

    import torch
    torch.manual_seed(0)
    torch.zeros(1, device="cuda")
    answer(ready=torch.__version__)
    sample = None
    for line in sys.stdin:
        words = line.split()
        try:
            if words[0] == "prepare":
                make = globals().get(f"prepare_{words[1]}")
                sample = make(torch) if make else prepare_copy(torch, words[1])
                sample(), sample()  # what the first steps load and choose
                answer(prepared=words[1])
            elif words[0] == "sample":
                answer(value=sample())
            else:
                sample = None
                torch.cuda.empty_cache()
                answer(dropped=True)
        except Exception as error:
            answer(error=f"{type(error).__name__}: {error}".splitlines()[0][:300])


def first():
    """The first tensor on the GPU, once asked; the import came before."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import torch
    answers.write('{"ready": true}\n')
    answers.flush()
    if sys.stdin.readline():
        start = time.perf_counter()
        torch.zeros(1).cuda()
        torch.cuda.synchronize()
        answers.write(json.dumps({"value": (time.perf_counter() - start) * 1e3}) + "\n")
        answers.flush()


# -------------------------------------------------------------------- the measuring process

class Broken(Exception):
    """A worker gave an error, or none at all."""


class Worker:
    def __init__(self, argv, env):
        self.err = tempfile.TemporaryFile()
        self.process = subprocess.Popen(argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.err, start_new_session=True)
        self.buffer = b""

    def tell(self, text):
        try:
            self.process.stdin.write(text.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Broken(self.last_words()) from None

    def hear(self, limit_s=ANSWER_LIMIT_S):
        import select
        end = time.monotonic() + limit_s
        while b"\n" not in self.buffer:
            ready, _, _ = select.select([self.process.stdout], [], [], max(end - time.monotonic(), 0))
            if not ready:
                raise Broken(f"no answer for {limit_s:.0f} s")
            piece = os.read(self.process.stdout.fileno(), 4096)
            if not piece:
                raise Broken(self.last_words())
            self.buffer += piece
        line, self.buffer = self.buffer.split(b"\n", 1)
        said = json.loads(line)
        if "error" in said:
            raise Broken(said["error"])
        return said

    def ask(self, text, limit_s=ANSWER_LIMIT_S):
        self.tell(text)
        return self.hear(limit_s)

    def last_words(self):
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            pass
        self.err.seek(0)
        lines = [t for t in self.err.read().decode("utf-8", "replace").splitlines() if t.strip()]
        return f"ended with {self.process.poll()}: " + (lines[-1][:300] if lines else "no message")

    def end(self, limit_s=10):
        """Let it end by itself (its statistics are written then), else end it."""
        self.process.stdin.close()
        try:
            self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            pass
        run_frameworks.end_group(self.process)
        self.process.wait()
        self.process.stdout.close()
        self.err.close()


class Bench:
    def __init__(self, suite):
        self.suite = suite
        self.options = suite.options
        self.weir_kind = {"shm": lib.SHM, "zmq": lib.ZMQ, "tcp": lib.TCP}[self.options.transport]
        self.kinds = (suite.native, self.weir_kind)
        self.host = None
        self.workers = {}
        self.samples = {}
        self.notes = {}

    def argv(self, kind, mode, env=None):
        script = os.path.join(HERE, "bench_torch.py")
        if self.options.rehearse:  # the same conversation without PyTorch
            script = os.path.join(HERE, "frameworks", "rehearsal", "bench_worker.py")
        argv, full_env = lib.guest_argv(self.host, kind, "alice", self.options.python, [script, mode])
        full_env.update(PYTHONDONTWRITEBYTECODE="1", PYTHONHASHSEED="0", **(env or {}))
        return argv, full_env

    def worker(self, kind):
        if kind not in self.workers:
            worker = Worker(*self.argv(kind, "--serve"))
            self.workers[kind] = worker
            worker.hear()
        return self.workers[kind]

    def end_workers(self):
        for worker in self.workers.values():
            worker.end()
        self.workers = {}

    def start_host(self):
        remote = None
        if self.weir_kind == lib.TCP:
            self.keys = tempfile.TemporaryDirectory(prefix="weir-keys-")
            remote = lib.Remote(self.keys.name, ("alice", "bob"), self.suite.namespaces())
        settings = dict(s.split("=", 1) for s in self.options.tenant)
        settings = {k: int(v) if v.isdigit() else v for k, v in settings.items()}
        self.host = self.suite.host(tenants={"alice": settings, "bob": {}}, remote=remote)

    def measure(self, name):
        """Samples of both in turn, those who begin taking turns too."""
        values = self.samples[name] = {kind: [] for kind in self.kinds}
        for kind in self.kinds:
            self.worker(kind).ask(f"prepare {name}")
        for turn in range(self.options.samples):
            for kind in self.kinds if turn % 2 == 0 else reversed(self.kinds):
                values[kind].append(self.worker(kind).ask("sample")["value"])
            if self.suite.left_s() < 10:
                break
        for kind in self.kinds:
            self.worker(kind).ask("drop")

    def measure_first(self):
        values = self.samples["first"] = {kind: [] for kind in self.kinds}
        order = [kind for turn in range(self.options.samples + 1)  # the first of each is not counted
                 for kind in (self.kinds if turn % 2 == 0 else reversed(self.kinds))]
        for at in range(0, len(order), FIRST_AT_ONCE):
            batch = [(kind, Worker(*self.argv(kind, "--first"))) for kind in order[at:at + FIRST_AT_ONCE]]
            try:
                for _, worker in batch:
                    worker.hear()  # all of them have imported, before one is measured
                for kind, worker in batch:
                    values[kind].append(worker.ask("go")["value"])
                    worker.end()
            finally:
                for _, worker in batch:
                    if worker.process.poll() is None:
                        worker.end(0)
            if self.suite.left_s() < 10:
                break
        for kind in self.kinds:
            del values[kind][0]

    def guarded(self, name):
        start = time.monotonic()
        try:
            self.measure_first() if name == "first" else self.measure(name)
        except (Broken, IndexError) as error:
            at = " and ".join(f"{k}: {len(v)}" for k, v in self.samples[name].items())
            self.notes[name] = f"{error} (samples so far: {at})"
            for worker in self.workers.values():
                run_frameworks.end_group(worker.process)
            self.end_workers()
            if not self.host.process.alive():
                self.notes[name] += "; the host ended: " + " ".join(self.host.process.errors[-3:])
                self.host.discard()
                self.start_host()
        print("  " + self.line(name) + f" ({time.monotonic() - start:.0f} s)", flush=True)

    def figures(self, name):
        """(native, Weir, ratio, smaller number of samples) or None."""
        native, weir = (self.samples.get(name, {}).get(kind, []) for kind in self.kinds)
        if not native or not weir:
            return None
        low, high = statistics.median(native), statistics.median(weir)
        return low, high, high / low, min(len(native), len(weir))

    def verdict(self, name):
        found, (_, more, target, _) = self.figures(name), MEASURES[name]
        if name in self.notes or not found:
            return "not measured"
        if target is None or self.weir_kind != lib.SHM or self.options.rehearse:
            return "for information"
        return "met" if (found[2] >= target if more else found[2] <= target) else "missed"

    def line(self, name):
        found, (unit, more, target, _) = self.figures(name), MEASURES[name]
        if name in self.notes or not found:
            return f"{name:18} FAIL: {self.notes.get(name, 'no samples')}"
        asked = "" if target is None else f", asked {'at least' if more else 'at most'} {target:g}"
        return (f"{name:18} {self.verdict(name)}: native {found[0]:.4g} {unit}, Weir {found[1]:.4g} {unit} = "
                f"{found[2]:.3f}{asked}")

    def profile(self, name):
        """One run of a measure through Weir with WEIR_STATS, for where the time goes."""
        path = os.path.join(self.suite.out, f"stats_{name}.txt")
        mode = "--first" if name == "first" else "--serve"
        worker = Worker(*self.argv(self.weir_kind, mode, {"WEIR_STATS": path}))
        try:
            worker.hear()
            if name == "first":
                worker.ask("go")
            else:
                worker.ask(f"prepare {name}")
                for _ in range(self.options.samples):
                    worker.ask("sample")
        finally:
            worker.end()
        found = [os.path.join(self.suite.out, n) for n in sorted(os.listdir(self.suite.out))
                 if n.startswith(os.path.basename(path))]
        text = ""
        for one in found:
            with open(one, errors="replace") as f:
                text += f.read(6000)
        self.suite.page(f"Calls of {name} ({self.options.samples} samples and what precedes them)",
                        f"```\n{text or 'WEIR_STATS wrote nothing'}\n```")
        print(f"  {name:18} statistics: {', '.join(found) or 'none written'}", flush=True)

    def wanted(self):
        names = [n for n in MEASURES if any(run_frameworks.fnmatch.fnmatch(n, w) for w in self.options.measures)]
        missing = {"resnet18": "torchvision", "resnet50": "torchvision", "gpt2": "transformers"}
        if self.options.rehearse:
            return names
        if not self.has("torch"):
            raise lib.unittest.SkipTest("no module torch")
        for name in [n for n in names if n in missing and not self.has(missing[n])]:
            print(f"  {name:18} skipped: no module {missing[name]}", flush=True)
            names.remove(name)
        return names

    def has(self, module):
        script = f"import importlib.util, sys; sys.exit(not importlib.util.find_spec({module!r}))"
        return subprocess.run([self.options.python, "-c", script], env=lib.clean_environment(),
                              timeout=60).returncode == 0

    def run(self):
        names = self.wanted()
        unknown = set(self.options.profile) - set(MEASURES)
        if unknown:
            raise ValueError(f"no measure {', '.join(sorted(unknown))}; there are {' '.join(MEASURES)}")
        self.start_host()
        late = []
        try:
            for name in [] if self.options.profile else names:
                if self.suite.left_s() < 15:
                    late.append(name)
                else:
                    self.guarded(name)
            for name in self.options.profile:
                self.end_workers()
                self.profile(name)
        finally:
            self.end_workers()
            self.host.discard()
        if self.options.profile:
            return f"profiled {', '.join(self.options.profile)}", True
        return self.report([n for n in names if n not in late], late)

    def report(self, names, late):
        rows, tsv = [], ["measure\tunit\tn\tnative\tweir\tratio\ttarget\tverdict"]
        for name in names:
            unit, more, target, what = MEASURES[name]
            found, verdict = self.figures(name), self.verdict(name)
            asked = "" if target is None else f"{'≥' if more else '≤'} {target:g}"
            cells = [f"{found[0]:.4g}", f"{found[1]:.4g}", f"{found[2]:.3f}"] if found else ["", "", ""]
            count = found[3] if found else 0
            rows.append([what, f"{cells[0]} {unit}", f"{cells[1]} {unit}", cells[2], asked, count,
                         verdict + (f": {self.notes[name]}" if name in self.notes else "")])
            tsv.append("\t".join([name, unit, str(count), *cells, "" if target is None else f"{target:g}", verdict]))
        self.suite.write(f"torchbench_{self.options.transport}.tsv", "\n".join(tsv) + "\n")
        self.suite.write(f"torchbench_{self.options.transport}.json", json.dumps(self.samples))
        self.suite.page(f"PyTorch, native and through Weir ({self.weir_kind}) in turn, medians",
                        self.suite.table_of(["measure", "native", "Weir", "Weir / native", "asked", "samples", ""],
                                            rows))
        verdicts = [self.verdict(n) for n in names]
        missed = [n for n in names if self.verdict(n) == "missed"]
        judged = verdicts.count("met") + len(missed)
        text = f"{len(names) - verdicts.count('not measured')} measures over {self.weir_kind}"
        text += f", {verdicts.count('met')} of {judged} targets met" if judged else ""
        text += f"; missed: {', '.join(missed)}" if missed else ""
        text += f"; not for time: {', '.join(late)}" if late else ""
        return text, "not measured" not in verdicts


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["--serve"] else first()
else:
    import lib
    import run_frameworks
