"""The step "sched" of tests/gpu/run: tenants that share the GPU, natively, with MPS, and through Weir.

fairness    tenants in endless loops of kernels of different lengths. A tenant's share is what its kernels
            would have taken alone (count times calibrated time) over what all of them would have; by the
            second, against its weight. Total: that sum over the time, 1.00 being as much as one alone.
priority    a short kernel every now and then, with high priority, beside an endless loop of long ones:
            from launch to synchronised, and what the loop still gets.
newcomer    a short kernel that comes beside a tenant that was alone, and what that got done: bench_alone.py.
flep, antt, slate, waterfill, tensor
            the papers' pairs of kernels: bench_pairs.py.
transfers   applications that copy, compute and copy back: bench_transfers.py.
workers, services
            many workers' start, and twenty PyTorch services at once: bench_services.py.
copies, mixes, llm, gate
            copies without end, services and inference beside trainings, LLM engines, the way to a grant: bench_mixes.py.
graphs, decode
            long graphs, whole and in pieces, beside other tenants: bench_graphs.py.
torch       ResNet-18 inference every 2 ms with high priority beside ResNet-50 training; two trainings with
            weights 3:1. Needs PyTorch in --python.

Natively every tenant is a process of its own: time slicing. MPS has a daemon of its own folder; "MPS threads"
gives each client the share of its weight as CUDA_MPS_ACTIVE_THREAD_PERCENTAGE. With MPS in its name an
arrangement of Weir's gives each tenant a worker under Weir's own MPS server. Everything in one run, the arrangements in turn;
kernels' times are calibrated natively, alone, before.

As a program this file is such a tenant: bench_sched.py infer|train SECONDS.
"""
import contextlib
import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

import bench_alone
import bench_graphs
import bench_mixes
import bench_pairs
import bench_services
import bench_transfers

FAIR = (((2, 1), (200, 2000)), ((1, 1, 2), (20, 2000, 200)), ((1, 2, 3, 4, 10), (20, 200, 1000, 20000, 2000)))
# us: the short kernel, the long one, and how long a block of that takes
PAIRS = ((100, 2000, 40), (100, 10000, 40), (1000, 20000, 40), (100, 10000, 1250))
BLOCK_US = 40  # of all others: as in programs, whatever the kernel takes
SECONDS = 4.6
MEASURES = ("fairness", "priority", "newcomer", "graphs", "workers", "services", "flep", "antt", "slate", "waterfill",
            "tensor", "transfers", "torch", "copies", "mixes", "llm", "gate", "decode")
TORCH_MEASURES = ("torch", "services", "mixes", "llm", "decode")
WARM_S = 1.6  # twins are made and tried meanwhile
TORCH_S = 5.0


# -------------------------------------------------------------------- the measured PyTorch process

def infer(torch, seconds):
    import torchvision
    net = torchvision.models.resnet18().cuda().half().eval()
    image = torch.randn(1, 3, 224, 224, device="cuda").half()
    times = []
    with torch.no_grad():
        for _ in range(20):
            net(image)
        torch.cuda.synchronize()
        meet()
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            start = time.perf_counter()
            net(image)
            torch.cuda.synchronize()
            times.append((time.perf_counter() - start) * 1e3)
            time.sleep(0.002)
    times.sort()
    return {"p50": times[len(times) // 2], "p99": times[len(times) * 99 // 100], "max": times[-1], "n": len(times)}


def training(torch):
    """A ResNet-50, what trains it, and a batch of images and their classes."""
    import torchvision
    net = torchvision.models.resnet50().cuda().train()
    images = torch.randn(64, 3, 224, 224, device="cuda")
    return net, torch.optim.SGD(net.parameters(), 0.1), images, torch.randint(0, 1000, (64,), device="cuda")


def train(torch, seconds):
    net, sgd, images, classes = training(torch)

    def step():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(net(images), classes)
        sgd.zero_grad()
        loss.backward()
        sgd.step()

    for _ in range(5):
        step()
    torch.cuda.synchronize()
    meet()
    start, count = time.perf_counter(), 0
    while time.perf_counter() < start + seconds:
        step()
        count += 1
        if count % 4 == 0:
            torch.cuda.synchronize()
    torch.cuda.synchronize()
    return {"steps_s": count / (time.perf_counter() - start), "n": count}


def meet():
    print("ready", flush=True)
    sys.stdin.readline()


def serve():
    import torch
    torch.manual_seed(0)
    work = {"infer": infer, "train": train}[sys.argv[1]]
    print(json.dumps(work(torch, float(sys.argv[2]))), flush=True)


# -------------------------------------------------------------------- arrangements

class Mps:
    """An MPS daemon in a folder of its own."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="weir-mps-")
        self.env = {"CUDA_MPS_PIPE_DIRECTORY": self.folder, "CUDA_MPS_LOG_DIRECTORY": self.folder}

    def start(self):
        if not shutil.which("nvidia-cuda-mps-control"):
            return False
        done = subprocess.run(["nvidia-cuda-mps-control", "-d"], env={**os.environ, **self.env},
                              capture_output=True, timeout=20)
        return done.returncode == 0

    def stop(self):
        try:
            subprocess.run(["nvidia-cuda-mps-control"], env={**os.environ, **self.env}, input=b"quit -t 2\n",
                           capture_output=True, timeout=30)
        except (OSError, subprocess.TimeoutExpired):
            pass
        shutil.rmtree(self.folder, ignore_errors=True)


class Tenant:
    """What one process runs: program and arguments, weight and priority."""

    def __init__(self, argv, weight=1, priority="normal"):
        self.argv, self.weight, self.priority = [str(a) for a in argv], weight, priority


class Bench:
    def __init__(self, suite):
        import lib
        self.lib, self.suite = lib, suite
        folder = os.path.join(suite.options.build, "tests/bench") if suite.options.build else \
            os.path.join(suite.options.bundle, "bench")
        self.load = os.path.join(folder, "sched_load")
        self.forms_load = os.path.join(folder, "forms" if suite.options.build else "", "forms_load")
        rehearse = suite.options.rehearse  # softgpu's kernels take longer: the first cases will do
        self.slow = 20 if rehearse else 1
        self.seconds = 1.5 if rehearse else SECONDS
        self.fair, self.pairs = (FAIR[:1], PAIRS[:1]) if rehearse else (FAIR, PAIRS)
        self.rounds = {}
        self.notes = []
        self.texts = {}
        self.traces = 0
        self.tsv = ["measure\tarrangement\tcase\ttenant\tvalue\tunit\n"]

    # ---------------------------------------------------------------- processes

    def native_env(self):
        env = self.lib.clean_environment()
        if self.suite.options.rehearse:
            env["LD_LIBRARY_PATH"] = self.lib.softgpu_folder()
        return env

    def start(self, kind, host, tenants):
        processes = []
        total = sum(t.weight for t in tenants)
        for i, t in enumerate(tenants):
            env = self.native_env()
            if kind.startswith("MPS"):
                env.update(self.mps.env)
                if kind == "MPS priority":
                    env["CUDA_MPS_CLIENT_PRIORITY"] = "0" if t.priority == "high" else "1"
                if kind == "MPS threads":
                    env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(max(round(100 * t.weight / total), 1))
            argv = t.argv
            if host:
                argv, env = self.lib.guest_argv(host, self.lib.SHM, f"t{i}", argv[0], argv[1:])
            processes.append(self.lib.Process(argv, env=env, name=f"t{i}"))
        return processes

    def attended(self, kind, tenants, work, limit_s=60):
        """What work(host, processes) gives, once all tenants are ready; None where one failed: a note says why."""
        host = self.host_for(kind, tenants) if kind.startswith("Weir") else None
        processes = []
        try:
            processes = self.start(kind, host, tenants)
            for p in processes:
                p.wait_line("^ready$", limit_s)
            return work(host, processes)
        except (self.lib.Stuck, BrokenPipeError) as error:
            self.notes.append(f"{kind}: {str(error)[-600:]}")
            return None
        finally:
            for p in processes:
                p.kill()
            if host:
                self.end_host(kind, host)

    def together(self, kind, tenants, limit_s=60):
        """The processes' lines, having been let loose at once; None where one failed."""
        def work(host, processes):
            self.let_loose(kind, host, processes, limit_s)
            if host:
                rows = {r["name"]: r for r in host.status()["tenant"]}
                self.used = [rows[f"t{i}"] for i in range(len(tenants))]
            return [list(p.lines) for p in processes]

        return self.attended(kind, tenants, work, limit_s)

    def let_loose(self, kind, host, processes, limit_s):
        """All at once, until they have ended, with a trace of the middle where one is asked for."""
        for p in processes:
            p.say("go")
        if host and self.suite.options.trace_s:
            time.sleep(0.5)
            with self.recorded(kind, host):
                time.sleep(self.suite.options.trace_s)
        for p in processes:
            self.ends(p, limit_s)

    def ends(self, process, limit_s):
        if process.wait(limit_s) != 0:
            raise self.lib.Stuck(process.tail())

    @contextlib.contextmanager
    def recorded(self, kind, host):
        """RESULTS/trace-N-KIND has what happens in it, where --trace-s asks for traces."""
        if not host or not self.suite.options.trace_s:
            yield
            return
        self.traces += 1
        with self.traced(host, os.path.join(self.suite.out, f"trace-{self.traces}-{kind.replace(' ', '-')}")):
            yield

    @contextlib.contextmanager
    def traced(self, host, path):
        """The file has what happens in it; where it has not, a note says why."""
        where = ("--run-dir", host.run_dir)
        done = [host.weir("trace", "start", *where, "--force", path)]
        yield
        done.append(host.weir("trace", "stop", *where))
        self.notes += [f"{path}: {step.stderr.strip()}" for step in done if step.returncode != 0]

    def note_predictions(self, kind, host):
        """How far off the host's predictions of durations were, % (weir-stats(1))."""
        said = host.weir("stats", "--run-dir", host.run_dir, "--predictions", "--json")
        for line in said.stdout.splitlines() if said.returncode == 0 else ():
            row = json.loads(line)
            for of, seen in (("kernel", "kernels"), ("copy", "copies")):
                if row.get(seen):
                    median, mean = 100 * row[f"{of}_median"], 100 * row[f"{of}_mean"]
                    self.notes.append(f"{kind}: predictions of {of} times were off by {median:.1f} % (median), {mean:.1f} % (mean)")
                    self.note("predictions", kind, of, "median", median, "%")
                    self.note("predictions", kind, of, "mean", mean, "%")

    def end_host(self, kind, host):
        self.note_predictions(kind, host)
        host.stop()
        self.notes += [f"{kind}: {line.split('worker ')[-1]}" for line in host.process.errors
                       if " sched: " in line or "forms: runs" in line or " warn " in line]
        host.discard()

    @staticmethod
    def tenant(argv, weight=1, priority="normal"):
        return Tenant(argv, weight, priority)

    @staticmethod
    def isolation(kind):
        """What an arrangement says of workers: a setting of each tenant."""
        words = kind.split(" ")
        return {"isolation": "program" if "programs" in words or "MPS" in words else "group"}

    def host_for(self, kind, tenants, log="info", lines=()):
        policy = kind.split(" ")[1]
        last = kind.split(" ")[-1]
        own = [f'fill = "{self.suite.options.fill}"'] if self.suite.options.fill else []
        own += [f"graph_piece_us = {bench_graphs.PIECES[last]}"] if last in bench_graphs.PIECES else []
        if own:
            lines = [*(lines or ["[scheduler]"]), *own]
        lines = [f'mps = "{"on" if "MPS" in kind.split(" ") else "off"}"', *lines]
        settings = {f"t{i}": {"weight": t.weight * 100, "priority": t.priority, **self.isolation(kind)}
                    for i, t in enumerate(tenants)}
        host = self.lib.Host(settings, driver=self.suite.driver, log=log, host_lines=lines, args=["--policy", policy])
        try:
            host.start(40)
        except self.lib.Stuck:
            host.discard()
            raise
        return host

    @staticmethod
    def waves(us, block_us):
        return max(round(us / block_us), 1)

    def calibrate(self, us, block_us=BLOCK_US):
        key = us, self.waves(us, block_us)
        if key not in self.rounds:
            best = None
            for _ in range(2):
                argv = [self.load, "calibrate", "--us", str(us * self.slow), "--waves", str(key[1])]
                done = subprocess.run(argv, env=self.native_env(),
                                      capture_output=True, text=True, timeout=180)
                match = re.search(r"rounds (\d+) us ([\d.]+)", done.stdout)
                if not match:
                    raise self.lib.Stuck(f"sched_load calibrate: {done.stdout}{done.stderr}")
                wanted = us * self.slow
                if best is None or abs(float(match[2]) - wanted) < abs(best[1] - wanted):
                    best = int(match[1]), float(match[2])
            self.rounds[key] = best
        return self.rounds[key]

    def kernel(self, us, block_us=BLOCK_US):
        return ["--us", us * self.slow, "--rounds", self.calibrate(us, block_us)[0], "--waves",
                self.waves(us, block_us)]

    def loop(self, us, block_us=BLOCK_US):
        return [self.load, "loop", "--wait", *self.kernel(us, block_us), "--seconds", self.seconds]

    def note(self, measure, kind, case, tenant, value, unit):
        self.tsv.append(f"{measure}\t{kind}\t{case}\t{tenant}\t{value:.5g}\t{unit}\n")

    # ---------------------------------------------------------------- fairness

    @staticmethod
    def slots(lines):
        return [(float(m[1]), int(m[2])) for m in (re.match(r"slot ([\d.]+) (\d+)", line) for line in lines) if m]

    def shares(self, lines, times):
        """Shares by the second and the total, of the time in which all are at work."""
        slots = [self.slots(tenant) for tenant in lines]
        if not all(slots):
            return None
        begin = max(s[0][0] for s in slots) + WARM_S * 1e3
        end = min(s[-1][0] for s in slots)
        windows, at = [], begin
        while at + 1000 <= end + 1:
            windows.append((at, at + 1000))
            at += 500
        windows = windows or [(begin, end)]

        def served(i, first, last):
            return sum(n for ms, n in slots[i] if first < ms <= last) * times[i] * 1e-3

        seconds = [[served(i, *w) for i in range(len(slots))] for w in windows]
        whole = [served(i, begin, end) for i in range(len(slots))]
        if not sum(whole) or end <= begin:
            return None
        return ([[v / max(sum(s), 1e-9) for v in s] for s in seconds],
                [v / sum(whole) for v in whole], sum(whole) / (end - begin))

    def fairness(self, kinds):
        rows = []
        for weights, lengths in self.fair:
            case = ":".join(map(str, weights))
            tenants = [Tenant(self.loop(us), w) for w, us in zip(weights, lengths)]
            for kind in kinds:
                if self.suite.left_s() < 15:
                    break
                lines = self.together(kind, tenants)
                found = lines and self.shares(lines, [self.calibrate(us)[1] for us in lengths])
                if not found:
                    rows.append([case, kind, "failed", "", "", ""])
                    continue
                seconds, whole, total = found
                wanted = [w / sum(weights) for w in weights]
                off = max(abs(s - w) for second in seconds for s, w in zip(second, wanted))
                rows.append([case, kind, " ".join(f"{100 * s:.1f}" for s in whole),
                             " ".join(f"{100 * w:.1f}" for w in wanted), f"{100 * off:.1f}", f"{total:.3f}"])
                for i, share in enumerate(whole):
                    self.note("fairness", kind, case, i, share, "share")
                self.note("fairness", kind, case, "worst", off, "share off in a second")
                self.note("fairness", kind, case, "all", total, "of alone")
        return rows

    # ---------------------------------------------------------------- priority

    @staticmethod
    def latency(lines):
        for line in lines:
            match = re.match(r"latency us p50 ([\d.]+) p99 ([\d.]+) max ([\d.]+)", line)
            if match:
                return [float(match[i]) for i in (1, 2, 3)]
        return None

    def priority(self, kinds):
        rows = []
        for short, long, block_us in self.pairs:
            case = f"{short} us beside {long} us" + (f", blocks {block_us} us" if block_us != BLOCK_US else "")
            pulse = [self.load, "pulse", "--wait", *self.kernel(short), "--seconds", self.seconds,
                     "--gap-us", max(2 * short, 500) * self.slow]
            beside = self.calibrate(long, block_us)[1]
            for kind in ["alone", *kinds]:
                if self.suite.left_s() < 15:
                    break
                tenants = [Tenant(pulse, 1, "high")]
                if kind != "alone":
                    tenants.append(Tenant(self.loop(long, block_us), 1, "low"))
                lines = self.together("Weir priority" if kind == "Weir alone" else kind, tenants)
                times = lines and self.latency(lines[0])
                if not times:
                    rows.append([case, kind, "failed", "", "", ""])
                    continue
                slots = self.slots(lines[1]) if kind != "alone" else []
                rest = sum(n for _, n in slots) * beside * 1e-3 / (slots[-1][0] - slots[0][0] + 100) if slots else 0
                rows.append([case, kind, *(f"{t:.1f}" for t in times), f"{rest:.3f}" if slots else ""])
                for name, value in zip(("p50", "p99", "max"), times):
                    self.note("priority", kind, case, name, value, "us")
                self.note("priority", kind, case, "beside", rest, "of alone")
        return rows

    # ---------------------------------------------------------------- PyTorch

    def torch_pair(self, kind, modes, weights, priorities):
        tenants = [Tenant([self.suite.options.python, os.path.abspath(__file__), mode, TORCH_S], w, p)
                   for mode, w, p in zip(modes, weights, priorities)]
        lines = self.together(kind, tenants, 90)
        try:
            return lines and [json.loads(tenant[-1]) for tenant in lines]
        except (ValueError, IndexError):
            return None

    def torch(self, kinds):
        rows = []

        def say(kind, what, results):
            cells = ["failed"] if not results else [
                f"p50 {r['p50']:.3f} p99 {r['p99']:.3f} ms" if "p50" in r else f"{r['steps_s']:.2f} steps/s"
                for r in results]
            rows.append([what, kind, *cells, *[""] * (2 - len(cells))])
            for i, r in enumerate(results or []):
                for name, value in r.items():
                    self.note("torch", kind, what, i, value, name)

        cases = self.wanted(("inference and training", "two trainings, 3:1"), self.suite.options.cases)
        if "inference and training" in cases:
            say("alone", "inference", self.torch_pair("alone", ["infer"], [1], ["high"]))
        say("alone", "training", self.torch_pair("alone", ["train"], [1], ["low"]))
        for kind in kinds:
            if self.suite.left_s() < 40 or "inference and training" not in cases:
                break
            say(kind, "inference and training",
                self.torch_pair(kind, ["infer", "train"], [1, 1], ["high", "low"]))
        for kind in kinds:
            if self.suite.left_s() < 40 or kind == "MPS priority" or "two trainings, 3:1" not in cases:
                continue
            say(kind.replace("priority", "fair"), "two trainings, 3:1",
                self.torch_pair(kind.replace("priority", "fair"), ["train", "train"], [3, 1],
                                ["normal", "normal"]))
        return rows

    def can_torch(self, name):
        return (name != "torch" and self.suite.options.rehearse) or self.have_torch()

    def have_torch(self):
        code = "import torch, torchvision; print(torch.cuda.is_available())"
        try:
            done = subprocess.run([self.suite.options.python, "-c", code], capture_output=True, text=True,
                                  timeout=180)
        except (OSError, subprocess.TimeoutExpired):
            return False
        return done.stdout.strip() == "True"

    # ---------------------------------------------------------------- all

    def wanted(self, names, patterns=None):
        patterns = self.suite.options.arrangements if patterns is None else patterns
        return [name for name in names if any(fnmatch.fnmatchcase(name, p) for p in patterns)]

    @contextlib.contextmanager
    def mps_for(self, kinds):
        """MPS's daemon is up; gives the arrangements that are possible with it."""
        self.mps = Mps()
        kinds = self.wanted(kinds)
        up = bool(kinds) and not self.suite.options.rehearse and self.mps.start()
        try:
            yield kinds if up else []
        finally:
            if up:
                self.mps.stop()

    def native_and_weir(self, weir):
        """The arrangements without an MPS daemon of ours that are wanted and possible here."""
        kinds = []
        for kind in self.wanted(["time slicing", *weir]):
            if "MPS" not in kind.split(" ") or shutil.which("nvidia-cuda-mps-control"):
                kinds.append(kind)
            else:
                self.notes.append(f"{kind}: there is no nvidia-cuda-mps-control")
        return kinds

    def arrangements(self, weir, mps):
        """All in turn: natively and through Weir first, then with MPS's daemon up."""
        yield from self.native_and_weir(weir)
        with self.mps_for(mps) as kinds:
            yield from kinds

    def keep(self, measure, text):
        """What there is of a measure, so that a run that is cut off leaves it."""
        self.texts[measure] = text
        self.suite.write(f"sched_{measure}.md", text + "\n")
        self.suite.write("sched.tsv", "".join(self.tsv))

    def groups(self, name, measure, weir, mps, heads):
        """A measure that gives rows. @return how many arrangements failed"""
        rows = measure(self.native_and_weir(weir))
        with self.mps_for(mps) as kinds:
            self.keep(name, self.suite.table_of(heads, rows))
            rows += measure(kinds) if kinds else []
        self.keep(name, self.suite.table_of(heads, sorted(rows, key=lambda row: row[0])))
        return sum("failed" in row for row in rows)

    def run(self):
        suite = self.suite
        if not os.path.exists(self.load):
            return "no sched_load", False
        wanted = suite.options.sched
        rows_of = {
            "fairness": (self.fairness, ["Weir fair,corun MPS", "Weir fair MPS", "Weir fair"], ["MPS", "MPS threads"],
                         ["weights", "arrangement", "shares, %", "wanted", "worst second off by", "total of alone"]),
            "priority": (self.priority, ["Weir priority", "Weir priority MPS"], ["MPS", "MPS priority"],
                         ["case", "arrangement", "p50 us", "p99 us", "max us", "the long one, of alone"]),
            "newcomer": (bench_alone.Alone(self).newcomer, ["Weir fair,corun MPS", "Weir fair MPS", "Weir fair"], ["MPS"],
                         ["the first one's kernel", "arrangement", "the newcomer waits, ms", "the first, alone"]),
            "torch": (self.torch, ["Weir priority", "Weir fair", "Weir off"], ["MPS priority", "MPS"],
                      ["case", "arrangement", "first", "second"])}
        graphs = bench_graphs.Graphs(self)
        rows_of["graphs"] = (graphs.graphs, graphs.weir(), ["MPS"],
                             ["case", "arrangement", "p50 us", "p99 us", "max us", "graphs, of alone", "instantiated, us"])
        rows_of["decode"] = (graphs.decode, graphs.weir(), ["MPS"],
                             ["case", "arrangement", "p50 ms", "p99 ms", "max ms", "steps a second of the last"])
        many = bench_services.Services(self)
        rows_of["workers"] = (many.workers, ["Weir isolated off"], ["MPS", "MPS Weir off"],
                              ["arrangement", "ready", "the last after, s"])
        rows_of["services"] = (many.services, ["Weir fair", "Weir off", "Weir isolated off",
                                                "Weir programs off", "Weir programs MPS off", "Weir programs MPS fair,corun", "Weir programs MPS fair",
                                                "Weir programs MPS weights fair"],
                               ["MPS", "MPS Weir off", "MPS Weir fair"],
                               ["arrangement", "inferences a second", "of one service", "p50 ms", "worst p99 ms", "max ms",
                                "GPU memory MiB"])
        rows_of.update(bench_mixes.Mixes(self, many).rows_of())
        pairs = bench_pairs.Pairs(self)
        others = {"flep": pairs.flep, "antt": pairs.antt, "slate": pairs.slate, "waterfill": pairs.waterfill,
                  "tensor": pairs.tensor, "transfers": bench_transfers.Transfers(self).transfers}
        bad = 0
        for name in MEASURES:
            if name not in wanted or (name in TORCH_MEASURES and not self.can_torch(name)):
                continue
            begin = time.monotonic()
            try:
                bad += self.groups(name, *rows_of[name]) if name in rows_of else others[name]()
            except self.lib.Stuck as error:
                bad += 1
                self.notes.append(f"{name}: {error}")
            suite.page(f"Sharing: {name}", self.texts.get(name, "nothing"))
            self.notes.append(f"{name} took {time.monotonic() - begin:.0f} s")
        kernels = ", ".join(f"{us} us in {waves} waves: {took:.1f}" for (us, waves), (_, took) in sorted(self.rounds.items()))
        suite.page("Sharing: notes", f"Calibrated: {kernels}.\n\n```\n" + "\n".join(self.notes) + "\n```")
        suite.write("sched.tsv", "".join(self.tsv))
        return f"{len(self.tsv) - 1} figures, {bad} arrangements failed", bad == 0


if __name__ == "__main__":
    serve()
