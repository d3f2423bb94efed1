"""Measures of the step "sched" for mixes of programs that people have: each arrangement in one run, with its own baseline.

copies      two tenants that copy without end, at weights 10:1, 3:1 and 1:1, each direction, copies of 16, 32 and 64 MiB: what
            each has copied, as a part of both, and GB/s of both together. Without Weir there are no weights: 1:1 only.
mixes       services and training   SERVICES services (bench_services.py) alone, and beside a ResNet-50 training of the same weight
            weights                 the services with weights 1:2:3:4 in turn: parts of what all do, and the total
            inference and training  eager ResNet-18 every 2 ms beside a training, equal in class and weight (MPS with priority and
                                    "priority" put the inference first)
            trainings               two trainings, 3:1; without weights where there is no Weir
llm         two engines             an LLM's decoding (bench_llm.py), alone and two at once, at 2, 8 and 32 requests each, and at weights 3:1
            llm and training        decoding of one request beside a ResNet-50 training
gate        arrival to grant through the gate process when there is room (bench/gate_latency): needs no GPU

--cases chooses among the words above. In "Weir programs MPS" each program has a worker, which are clients of the host's MPS servers;
in "Weir" all share one worker. mixes and llm want PyTorch in --python.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SERVICES = 20
SERVICE_S = 4.0
TRAIN_S = 4.0
COPY_S = 1.5
COPY_WARM_MS = 300
LLM_REQUESTS = (2, 8, 32)
READY_S = 120
COPIES = tuple((way, mib, weights) for way in ("h2d", "d2h") for mib, weights in
               ((64, (10, 1)), (64, (3, 1)), (64, (1, 1)), (32, (10, 1)), (16, (10, 1))))
NATIVE = ["time slicing"]
WEIR = ["Weir programs MPS fair,corun", "Weir programs MPS fair", "Weir fair"]
MPS = ["MPS"]


class Program:
    """A tenant's program: what it runs, its weight, and whether it goes first where there are priorities."""

    def __init__(self, argv, weight=1, high=False):
        self.argv, self.weight, self.high = argv, weight, high


class Mixes:
    def __init__(self, bench, services):
        self.bench, self.suite, self.lib, self.services = bench, bench.suite, bench.lib, services
        self.rehearse = self.suite.options.rehearse
        self.count = 4 if self.rehearse else SERVICES
        self.requests = LLM_REQUESTS[:1] if self.rehearse else LLM_REQUESTS
        self.alone_memo = {}

    # ---------------------------------------------------------------- programs and arrangements

    def settings(self, kind, programs):
        isolation = "program" if "programs" in kind else "group"
        ranks = kind.endswith(" priority")
        return {f"t{i}": {"isolation": isolation, "weight": p.weight * 100,
                          "priority": ("high" if p.high else "low") if ranks else "normal"}
                for i, p in enumerate(programs)}

    def kinds(self, kinds):
        """Those that this machine has: MPS servers of Weir's own want NVIDIA's program."""
        for kind in kinds:
            if self.suite.left_s() < 20:
                self.bench.notes.append(f"{kind}: not run for time")
            elif "programs MPS" in kind and not shutil.which("nvidia-cuda-mps-control"):
                self.bench.notes.append(f"{kind}: there is no nvidia-cuda-mps-control")
            else:
                yield kind

    def cases(self, *names):
        return self.bench.wanted(names, self.suite.options.cases)

    def attended(self, kind, programs, work):
        """What work(processes, host) gives, once all are ready; None where something failed: a note says why."""
        processes = []
        try:
            with self.services.host_with(kind, self.settings(kind, programs)) as (host, _):
                try:
                    for i, p in enumerate(programs):
                        processes.append(self.services.process(kind, host, i, p.argv, p.high))
                    for p in processes:
                        p.wait_line("^ready$", READY_S)
                    return work(processes, host)
                finally:
                    for p in processes:
                        p.kill()
        except (self.lib.Stuck, BrokenPipeError, ValueError, LookupError, TypeError, StopIteration) as error:
            self.bench.notes.append(f"{kind}: {type(error).__name__}: {str(error)[-600:]}")
            return None

    def once(self, kind, programs, limit_s=60):
        """Each program's output, all having been let loose at once; None where one failed."""
        def work(processes, host):
            self.bench.let_loose(kind, host, processes, limit_s)
            return [list(p.lines) for p in processes]

        return self.attended(kind, programs, work)

    # ---------------------------------------------------------------- copies

    def copied(self, kind, way, mib, weights):
        """(part of the first, GB/s of both), or None."""
        size = mib << (16 if self.rehearse else 20)
        argv = [self.bench.load, "copy", "--wait", "--way", way, "--bytes", size, "--seconds", 0.6 if self.rehearse else COPY_S, "--slot-ms", "20",
                "--depth", "4"]
        lines = self.once(kind, [Program(argv, w) for w in weights])
        slots = lines and [self.bench.slots(tenant) for tenant in lines]
        if not slots or not all(slots):
            return None
        begin = max(s[0][0] for s in slots) + (100 if self.rehearse else COPY_WARM_MS)
        end = min(s[-1][0] for s in slots)
        done = [sum(n for ms, n in s if begin < ms <= end) for s in slots]
        if not sum(done) or end <= begin:
            return None
        return done[0] / sum(done), sum(done) * size / (end - begin) / 1e6

    def copies(self, kinds):
        rows = []
        cases = COPIES[:1] + COPIES[5:6] if self.rehearse else COPIES
        for kind in self.kinds(kinds):
            for way, mib, weights in cases:
                if "Weir" not in kind and weights != (1, 1) and not self.rehearse or self.suite.left_s() < 10:
                    continue
                case = f"{way}, {mib} MiB, {weights[0]}:{weights[1]}"
                found = self.copied(kind, way, mib, weights)
                if not found:
                    rows.append([case, kind, "failed", "", ""])
                    continue
                wanted = weights[0] / sum(weights)
                rows.append([case, kind, f"{100 * found[0]:.1f}", f"{100 * wanted:.1f}", f"{found[1]:.1f}"])
                self.bench.note("copies", kind, case, "first", 100 * found[0], "%")
                self.bench.note("copies", kind, case, "both", found[1], "GB/s")
        return rows

    # ---------------------------------------------------------------- services, trainings, inference

    def service(self):
        if self.rehearse:  # a loop of kernels in place of PyTorch
            return [self.bench.load, "pulse", "--wait", *self.bench.kernel(200), "--seconds", 1, "--gap-us", 0]
        return [self.suite.options.python, os.path.join(HERE, "bench_services.py"), SERVICE_S]

    def training(self, seconds=TRAIN_S):
        if self.rehearse:
            return [self.bench.load, "loop", "--wait", *self.bench.kernel(2000), "--seconds", 1]
        return [self.suite.options.python, os.path.join(HERE, "bench_sched.py"), "train", seconds]

    def inference(self):
        if self.rehearse:
            return [self.bench.load, "pulse", "--wait", *self.bench.kernel(100), "--seconds", 1, "--gap-us", 2000]
        return [self.suite.options.python, os.path.join(HERE, "bench_sched.py"), "infer", TRAIN_S]

    def answer(self, lines):
        """What a program says of itself: rate (a second), and times in ms if it takes any."""
        if self.rehearse:
            total = next(re.match(r"total (\d+) ([\d.]+)", line) for line in lines if line.startswith("total "))
            times = self.bench.latency(lines)
            return {"rate": int(total[1]) / float(total[2]),
                    **({} if not times else dict(zip(("p50", "p99", "max"), (t * 1e-3 for t in times))))}
        said = json.loads(lines[-1])
        rate = said["steps_s"] if "steps_s" in said else said["n"] / said.get("s", TRAIN_S)
        return {"rate": rate, **{k: said[k] for k in ("p50", "p99", "max") if k in said}}

    def answers(self, kind, programs):
        lines = self.once(kind, programs, 90)
        try:
            return lines and [self.answer(tenant) for tenant in lines]
        except (ValueError, IndexError, KeyError, StopIteration) as error:
            self.bench.notes.append(f"{kind}: {error}: {lines[0][-1:]}")
            return None

    def alone(self, what, argv):
        """The rate of a program that has the GPU for itself, natively; once in a run."""
        if what not in self.alone_memo:
            found = self.answers("alone", [Program(argv)])
            self.alone_memo[what] = found[0]["rate"] if found else None
            if found:
                self.bench.note("mixes", "alone", what, "0", found[0]["rate"], "1/s")
        return self.alone_memo[what]

    def of_alone(self, what, argv, rate):
        alone = self.alone(what, argv)
        return f"{rate / alone:.3f}" if alone else ""

    def services_and_training(self, kind):
        rows = []
        for case, more in (("services", []), ("services and training", [Program(self.training())])):
            found = self.answers(kind, [Program(self.service()) for _ in range(self.count)] + more)
            if not found:
                rows.append([case, kind, "failed", "", "", "", ""])
                continue
            many = found[:self.count]
            total, worst = sum(r["rate"] for r in many), max(r["p99"] for r in many)
            part = self.of_alone("training", self.training(), found[-1]["rate"]) if more else ""
            rows.append([case, kind, f"{total:.0f}", f"{worst:.2f}", f"{max(r['max'] for r in many):.1f}", part, ""])
            for name, value, unit in (("all", total, "1/s"), ("worst p99", worst, "ms"), ("training", float(part or 0), "of alone")):
                self.bench.note("mixes", kind, case, name, value, unit)
        return rows

    def weights(self, kind):
        programs = [Program(self.service(), i % 4 + 1 if "Weir" in kind else 1) for i in range(self.count)]
        found = self.answers(kind, programs)
        if not found:
            return [["weights", kind, "failed", "", "", "", ""]]
        rates = [r["rate"] for r in found]
        parts = [100 * sum(rates[i::4]) / sum(rates) for i in range(4)]
        for i, part in enumerate(parts):
            self.bench.note("mixes", kind, "weights", f"weight {i + 1}", part, "%")
        self.bench.note("mixes", kind, "weights", "all", sum(rates), "1/s")
        return [["weights", kind, f"{sum(rates):.0f}", f"{max(r['p99'] for r in found):.2f}", f"{max(r['max'] for r in found):.1f}", "",
                 " ".join(f"{p:.1f}" for p in parts) + (", wanted 10 20 30 40" if "Weir" in kind else "")]]

    def inference_and_training(self, kind):
        found = self.answers(kind, [Program(self.inference(), 1, True), Program(self.training(TRAIN_S + 0.5))])
        if not found:
            return [["inference and training", kind, "failed", "", "", "", ""]]
        part = self.of_alone("training", self.training(), found[1]["rate"])
        for name in ("p50", "p99", "max"):
            self.bench.note("mixes", kind, "inference and training", name, found[0][name], "ms")
        self.bench.note("mixes", kind, "inference and training", "training", float(part or 0), "of alone")
        return [["inference and training", kind, f"{found[0]['rate']:.0f}", f"{found[0]['p99']:.2f}", f"{found[0]['max']:.1f}", part,
                 f"p50 {found[0]['p50']:.2f} ms"]]

    def trainings(self, kind):
        found = self.answers(kind, [Program(self.training(), 3 if "Weir" in kind else 1), Program(self.training())])
        if not found:
            return [["trainings", kind, "failed", "", "", "", ""]]
        rates = [r["rate"] for r in found]
        part = self.of_alone("training", self.training(), sum(rates))
        share = 100 * rates[0] / sum(rates)
        self.bench.note("mixes", kind, "trainings", "both", sum(rates), "1/s")
        self.bench.note("mixes", kind, "trainings", "first", share, "%")
        return [["trainings", kind, f"{sum(rates):.2f}", "", "", part,
                 f"first {share:.1f} %" + (", wanted 75" if "Weir" in kind else "")]]

    def mixes(self, kinds):
        rows = []
        cases = self.cases("services and training", "weights", "inference and training", "trainings")
        for kind in self.kinds(kinds):
            ranks = kind.endswith("priority")
            for case, measure in (("services and training", self.services_and_training), ("weights", self.weights),
                                  ("inference and training", self.inference_and_training), ("trainings", self.trainings)):
                if case in cases and (not ranks or case == "inference and training") and self.suite.left_s() > 20:
                    rows += measure(kind)
        return rows

    # ---------------------------------------------------------------- LLM engines

    def engine(self, requests):
        if self.rehearse:
            return [sys.executable, "-B", os.path.join(HERE, "frameworks", "rehearsal", "engine.py"), self.bench.load,
                    *self.bench.kernel(200)]
        return [self.suite.options.python, os.path.join(HERE, "bench_llm.py"), "--layers", self.suite.options.llm_layers,
                "--requests", *requests]

    def asked(self, processes, requests, seconds):
        """Each engine's answer about so many requests at a time."""
        before = [len(p.lines) for p in processes]
        for p in processes:
            p.say(f"{requests} {seconds}")
        return [json.loads(p.wait_line(f'.*"requests": {requests}[,}}].*', 30 + seconds, n)[0])
                for p, n in zip(processes, before)]

    def two_engines(self, kind, weights, alone):
        seconds = 0.3 if self.rehearse else self.suite.options.llm_seconds
        case = "two engines, " + ":".join(map(str, weights)) if len(weights) > 1 else "an engine"
        steps = self.requests if len(weights) > 1 else (1, *self.requests)

        def work(processes, host):
            for requests in (steps[0], steps[-1]) if host and self.suite.options.trace_s else ():
                with self.bench.recorded(f"{kind} {case} {requests} requests", host):
                    self.asked(processes, requests, self.suite.options.trace_s)
            return [(requests, self.asked(processes, requests, seconds)) for requests in steps]

        rows = []
        for requests, said in self.attended(kind, [Program(self.engine(steps), w) for w in weights], work) or ():
            total = sum(r["tokens_s"] for r in said)
            if len(weights) == 1:
                alone[requests] = total
            share = 100 * said[0]["tokens_s"] / total
            rows.append([f"{case}, {requests} requests", kind, f"{total:.0f}",
                         f"{total / alone[requests]:.3f}" if requests in alone else "",
                         f"{share:.1f}" if len(weights) > 1 else "", f"{max(r['p50'] for r in said):.2f}",
                         f"{max(r['p99'] for r in said):.2f}", ""])
            self.bench.note("llm", kind, case, f"{requests} requests", total, "tokens/s")
            if len(weights) > 1:
                self.bench.note("llm", kind, case, f"{requests} requests, first", share, "%")
        return rows or [[case, kind, "failed", "", "", "", "", ""]]

    def llm_and_training(self, kind, alone):
        seconds = 0.3 if self.rehearse else TRAIN_S
        programs = [Program(self.engine((1,)), 1, True)]
        if kind != "alone":
            programs.append(Program(self.training(seconds + 0.5 + self.suite.options.trace_s)))

        def work(processes, host):
            for p in processes[1:]:
                p.say("go")
            if host and self.suite.options.trace_s:
                with self.bench.recorded(f"{kind} llm and training", host):
                    self.asked(processes[:1], 1, self.suite.options.trace_s)
            said, = self.asked(processes[:1], 1, seconds)
            for p in processes[1:]:
                self.bench.ends(p, 60)
            return said, [self.answer(p.lines)["rate"] for p in processes[1:]]

        found = self.attended(kind, programs, work)
        case = "llm and training" if kind != "alone" else "llm"
        if not found:
            return [[case, kind, "failed", "", "", "", "", ""]]
        said, rates = found
        if not rates:
            alone[1] = said["tokens_s"]
        part = self.of_alone("training", self.training(), rates[0]) if rates else ""
        for name in ("p50", "p99", "max"):
            self.bench.note("llm", kind, case, name, said[name], "ms")
        return [[case, kind, f"{said['tokens_s']:.0f}", f"{said['tokens_s'] / alone[1]:.3f}" if 1 in alone else "", "",
                 f"{said['p50']:.2f}", f"{said['p99']:.2f}", part]]

    def llm(self, kinds):
        rows = []
        cases = self.cases("two engines", "llm and training")
        tokens = self.alone_memo.setdefault("tokens", {})
        if "two engines" in cases and self.requests[0] not in tokens:
            rows += self.two_engines("alone", [1], tokens)
        if "llm and training" in cases and 1 not in tokens:
            rows += self.llm_and_training("alone", tokens)
        for kind in self.kinds(kinds):
            if "two engines" in cases and not kind.endswith("priority"):
                rows += self.two_engines(kind, [1, 1], tokens)
                if "Weir" in kind and not self.rehearse and self.suite.left_s() > 20:
                    rows += self.two_engines(kind, [3, 1], tokens)
            if "llm and training" in cases and self.suite.left_s() > 20:
                rows += self.llm_and_training(kind, tokens)
        return rows

    # ---------------------------------------------------------------- the gate

    def gate(self, kinds):
        """The same with any GPU, and without one."""
        rows = []
        program = os.path.join(os.path.dirname(self.bench.load), "gate_latency")
        for sessions in (2, 20) if "Weir gate" in kinds else ():
            argv = [program, "--sessions", str(sessions), "--seconds", "0.3" if self.rehearse else "2"]
            done = subprocess.run(argv, capture_output=True, text=True, timeout=180)
            found = re.findall(r"spin (\w+) us p50 ([\d.]+) p99 ([\d.]+) max ([\d.]+) n (\d+) room ([\d.]+) % cpu (\d+) %", done.stdout)
            echo = re.search(r"echo sessions \d+ us p50 ([\d.]+) p99 ([\d.]+) max ([\d.]+) n (\d+)", done.stdout)
            if done.returncode != 0 or len(found) != 3 or not echo:
                raise self.lib.Stuck(f"gate_latency: {done.stdout}{done.stderr}")
            rows.append([f"{sessions} sessions", "a process that only answers", *echo.groups(), "", ""])
            for spin, *times in found:
                rows.append([f"{sessions} sessions", f"spin: {spin}", *times])
                for name, value in zip(("p50", "p99", "max"), times):
                    self.bench.note("gate", f"spin {spin}", f"{sessions} sessions", name, float(value), "us")
        return rows

    # ---------------------------------------------------------------- what bench_sched.py runs

    def rows_of(self):
        return {
            "copies": (self.copies, WEIR, MPS, ["case", "arrangement", "part of the first, %", "wanted", "GB/s of both"]),
            "mixes": (self.mixes, [*WEIR, "Weir priority"], [*MPS, "MPS priority"],
                      ["case", "arrangement", "a second", "worst p99 ms", "max ms", "training, of alone", "more"]),
            "llm": (self.llm, WEIR, MPS,
                    ["case", "arrangement", "tokens a second", "of one alone", "first, %", "p50 ms", "p99 ms", "training, of alone"]),
            "gate": (self.gate, ["Weir gate"], [], ["case", "waiting", "p50 us", "p99 us", "max us", "grants", "at once, %", "gate, % of a core"])}
