"""The measures flep, antt, slate, waterfill and tensor of the step "sched": the papers' pairs of kernels.

Tenants are forms_load processes (tests/bench/forms) that live from pair to pair and take commands: which kernel
with which input, and whether to loop or to run it every now and then. Every run is checked: its output must be
to the bit what the kernel wrote alone, and that is checked by the host. Speeds and times alone are native.

flep        A_B as in the paper: A's large input in a loop with low priority, B's small one every now and then with
            high priority. From launch to synchronised, against alone; ANTT is the mean of both slowdowns. A_B_C
            has a third tenant, with high priority as well.
antt        the same with others of FLEP's pairs and equal priorities: the paper's second experiment.
slate, waterfill, tensor
            two large inputs in loops. STP is the sum of both speeds, 1.00 being as much as one alone. What
            Weir's policies learn at first runs falls into the time before measuring (SETTLE_S, --learn-s).
            Kernels alone and MPS, which learn nothing, are measured WARM_LATE_S after a loop's beginning: an
            H200 under load for half a second may become slower. In a trace bs took 1.00 of its usual time up to
            0.5 s, then up to 1.15 for half a second: in both tenants, stopped or not.
"""
import re

import stage

FLEP_LONG = ("cfd", "nn", "pf", "pl")
FLEP_SHORT = ("md", "spmv", "mm", "va")  # of antt
FLEP = ("cfd", "nn", "pf", "pl", "md", "spmv", "mm", "va")
TRIPLETS = (("va", "spmv", "mm"), ("nn", "pf", "md"), ("cfd", "va", "pl"), ("pl", "mm", "nn"))
SLATE = ("bs", "gs", "sgemm", "rg", "tr")
# By what limits them: compute (sgemm, mm, rg, pf), memory (va, nn, tr), cache (md, pl, spmv).
WATERFILL = (("sgemm", "md"), ("mm", "pl"), ("rg", "spmv"), ("sgemm", "va"), ("mm", "tr"), ("rg", "nn"),
             ("sgemm", "mm"), ("sgemm", "rg"), ("pf", "mm"))
TENSOR = tuple(("tg", other) for other in ("cfd", "md", "spmv", "pl", "pf", "mm", "sgemm", "bs", "va"))
TOGETHER = ["Weir fair,corun MPS", "Weir fair MPS", "Weir fair,corun", "Weir fair"]

PULSE_S, LOOP_S, ALONE_S = 0.35, 0.5, 0.25
WARM_S, WARM_LATE_S = 0.1, 1.0
SETTLE_S = 0.5  # of each kernel in a new host, whose twins are timed and built once more then


class Kernels(stage.Stage):
    """forms_load processes."""

    def __init__(self, bench, kind, kernels, priorities):
        tenants = [bench.tenant([bench.forms_load, *kernels], priority=p) for p in priorities]
        super().__init__(bench, kind, tenants, len(kernels) + 1)  # its helpers are a module, too
        self.inputs = {}

    def close(self):
        super().close()
        self.inputs = {}

    def run(self, inputs, commands):
        """Lines of tenants 0 .. with these (kernel, size) inputs and commands; None where one failed."""
        def ask():
            self.say({i: f"input {wanted[0]} {wanted[1]}" for i, wanted in enumerate(inputs)
                      if self.inputs.get(i) != wanted})
            self.inputs.update(enumerate(inputs))
            return self.say(dict(enumerate(commands)))

        return self.attempt(inputs, ask)


def rate(lines):
    """Runs a second of a loop."""
    for line in lines:
        match = re.match(r"rate (\d+) ([\d.]+)", line)
        if match and float(match[2]) > 0:
            return int(match[1]) / float(match[2])
    return 0.0


def latency(lines):
    """p50, p99, mean in us, or None."""
    for line in lines:
        match = re.match(r"latency us p50 ([\d.]+) p99 ([\d.]+) max [\d.]+ mean ([\d.]+)", line)
        if match:
            return tuple(float(match[i]) for i in (1, 2, 3))
    return None


def geometric_mean(values):
    product = 1.0
    for value in values:
        product *= value
    return product ** (1 / len(values)) if values else 0.0


class Pairs:
    def __init__(self, bench):
        self.bench, self.suite = bench, bench.suite
        rehearse = self.suite.options.rehearse  # softgpu: the first cases with inputs that it can do
        self.large, self.small = ("quick", "trivial") if rehearse else ("large", "small")
        self.slow = 1.5 if rehearse else 1
        self.first = 1 if rehearse else None
        self.alone = {}
        self.alone_late = {}  # runs a second of large inputs, as throughput() measures them

    def cases(self, all_of_them):
        wanted = set(self.bench.wanted(map("_".join, all_of_them), self.suite.options.cases))
        return [case for case in all_of_them if "_".join(case) in wanted]

    # ---------------------------------------------------------------- commands

    def loop(self, warm):
        return f"loop {(LOOP_S + warm) * self.slow:.3f} {warm * self.slow:.3f}"

    def pulse(self, solo_us, warm=WARM_S, seconds=PULSE_S):
        return f"pulse {(seconds + warm) * self.slow:.3f} {warm * self.slow:.3f} {max(2 * solo_us, 500):.0f}"

    def settle(self, tenants, inputs, commands):
        """Run what is not measured, in Weir's hosts: each of the large inputs beside something."""
        if tenants.kind.startswith("Weir"):
            for pair in inputs:
                tenants.run(pair, commands)

    def measure_alone(self, wanted, into, warm=WARM_S):
        """Fill `into` for (kernel, size): runs a second of a large input, latency of a small one."""
        wanted = [w for w in dict.fromkeys(wanted) if w not in into]
        if not wanted:
            return
        with Kernels(self.bench, "time slicing", sorted({k for k, _ in wanted}), ["normal"]) as tenants:
            for kernel, size in wanted:
                command = self.loop(warm) if size == self.large else self.pulse(100, 0.05, ALONE_S)
                lines = tenants.run([(kernel, size)], [command])
                found = lines and (rate(lines[0]) if size == self.large else latency(lines[0]))
                if not found:
                    raise self.bench.lib.Stuck(f"{kernel} alone: {self.bench.notes[-1:]}")
                into[kernel, size] = found

    # ---------------------------------------------------------------- flep, antt

    def turnaround(self, tenants, measure, kind, case, cells):
        long, *short = case
        commands = [self.pulse(self.alone[k, self.small][0]) for k in short]
        # Tenants 0 and 2 have short kernels, tenant 1 long ones.
        inputs = [(short[0], self.small), (long, self.large), *[(k, self.small) for k in short[1:]]]
        commands.insert(1, f"loop {(PULSE_S + WARM_S) * self.slow:.3f} {WARM_S * self.slow:.3f}")
        lines = tenants.run(inputs, commands)
        times = lines and [latency(lines[i]) for i in (0, 2) if i in lines]
        name = "_".join(case)
        if not times or not all(times):
            cells[name, kind] = None
            return
        slow = [t[2] / self.alone[k, self.small][2] for t, k in zip(times, short)]
        rest = rate(lines[1]) / self.alone[long, self.large]
        antt = (sum(slow) + 1 / rest) / (len(slow) + 1) if rest else float("inf")
        cells[name, kind] = (times, rest, antt)
        for t, k in zip(times, short):
            solo = self.alone[k, self.small]
            for what, value in (("p50", t[0]), ("p99", t[1]), ("p50 alone", solo[0])):
                self.bench.note(measure, kind, name, k, value, f"{what} us")
        self.bench.note(measure, kind, name, long, rest, "of alone")
        self.bench.note(measure, kind, name, "all", antt, "ANTT")

    def turnaround_tables(self, cells, kinds):
        cases = list(dict.fromkeys(name for name, _ in cells))
        rows, sums = [], []
        for name in cases:
            solo = [self.alone[k, self.small][0] for k in name.split("_")[1:]]
            row = [name, " ".join(f"{s:.0f}" for s in solo)]
            for kind in kinds:
                found = cells.get((name, kind))
                row.append("" if (name, kind) not in cells else "failed" if found is None else
                           " ".join(f"{t[0]:.0f}/{t[1]:.0f}" for t in found[0])
                           + f"; {found[1]:.2f}; {found[2]:.2f}")
            rows.append(row)
        for kind in kinds:
            seen = [(t, self.alone[k, self.small][0]) for (name, of), found in cells.items() if of == kind and found
                    for t, k in zip(found[0], name.split("_")[1:])]
            done = [found for (_, of), found in cells.items() if of == kind and found]
            if seen:
                sums.append([kind, f"{geometric_mean([t[0] / s for t, s in seen]):.2f}",
                             f"{max(t[0] / s for t, s in seen):.2f}",
                             f"{sum(t[0] <= 1.1 * s + 20 for t, s in seen)} of {len(seen)}",
                             f"{sum(t[1] <= 1.3 * s + 50 for t, s in seen)} of {len(seen)}",
                             f"{sum(d[2] for d in done) / len(done):.2f}",
                             f"{sum(d[1] for d in done) / len(done):.2f}"])
        table = self.suite.table_of
        return (table(["case", "short alone, us", *kinds], rows)
                + "\n\nThe short ones: p50/p99 us; the long one's speed; ANTT.\n\n"
                + table(["arrangement", "p50 of alone, mean", "worst", "p50 within 1.10 x + 20 us",
                         "p99 within 1.3 x + 50 us", "ANTT, mean", "the long one's speed, mean"], sums))

    def beside_long(self, measure, pairs, priorities, weir, mps):
        cases = self.cases([*pairs[:self.first], *TRIPLETS[:self.first]])
        self.measure_alone([(c[0], self.large) for c in cases] + [(k, self.small) for c in cases for k in c[1:]],
                           self.alone)
        kernels = sorted({k for c in cases for k in c})
        cells, kinds = {}, []
        for kind in self.bench.arrangements(weir, mps) if cases else ():
            kinds.append(kind)
            with Kernels(self.bench, kind, kernels, priorities) as tenants:
                self.settle(tenants, [((cases[0][1], self.small), (k, self.large)) for k in
                                      dict.fromkeys(c[0] for c in cases)],
                            [self.pulse(100, 0, SETTLE_S), f"loop {SETTLE_S * self.slow} 0"])
                for case in cases:
                    if self.suite.left_s() < 10:
                        break
                    self.turnaround(tenants, measure, kind, case, cells)
            self.bench.keep(measure, self.turnaround_tables(cells, kinds))
        return sum(found is None for found in cells.values())

    def flep(self):
        return self.beside_long("flep", [(a, b) for a in FLEP_LONG for b in FLEP if a != b], ["high", "low", "high"],
                                ["Weir priority"], ["MPS", "MPS priority"])

    def antt(self):
        return self.beside_long("antt", [(a, b) for b in FLEP_SHORT for a in FLEP if a != b], ["normal"] * 3,
                                ["Weir fair,corun MPS", "Weir fair MPS", "Weir fair", "Weir priority"], ["MPS"])

    # ---------------------------------------------------------------- throughput

    def pair(self, tenants, measure, kind, pair, cells):
        with self.bench.recorded(f"{kind} {'_'.join(pair)}", tenants.host):
            warm = self.suite.options.learn_s if kind.startswith("Weir") else WARM_LATE_S
            lines = tenants.run([(k, self.large) for k in pair], [self.loop(warm)] * 2)
        name = "_".join(pair)
        speeds = lines and [rate(lines[i]) / self.alone_late[k, self.large] for i, k in enumerate(pair)]
        cells[name, kind] = speeds
        for i, speed in enumerate(speeds or []):
            self.bench.note(measure, kind, name, f"{i} {pair[i]}", speed, "of alone")
        if speeds:
            self.bench.note(measure, kind, name, "all", sum(speeds), "STP")

    def throughput_tables(self, cells, kinds):
        rows, sums = [], []
        for name in dict.fromkeys(name for name, _ in cells):
            row = [name]
            for kind in kinds:
                speeds = cells.get((name, kind))
                row.append("" if (name, kind) not in cells else "failed" if not speeds else
                           f"{sum(speeds):.3f} ({speeds[0]:.2f} {speeds[1]:.2f})")
            rows.append(row)
        for kind in kinds:
            gains = [sum(speeds) / sum(cells[name, "MPS"]) for (name, of), speeds in cells.items()
                     if of == kind and speeds and sum(cells.get((name, "MPS")) or [0])]
            stp = [sum(speeds) for (_, of), speeds in cells.items() if of == kind and speeds]
            if stp:
                sums.append([kind, f"{sum(stp) / len(stp):.3f}",
                             *([f"{100 * (v - 1):+.1f} %" for v in
                                (geometric_mean(gains), max(gains), min(gains))] if gains else [""] * 3)])
        table = self.suite.table_of
        return (table(["pair", *kinds], rows) + "\n\nSTP (each one's speed, of alone).\n\n"
                + table(["arrangement", "STP, mean", "against MPS, mean", "best", "worst"], sums))

    def throughput(self, measure, pairs, weir):
        pairs = self.cases(pairs[:self.first])
        self.measure_alone([(k, self.large) for pair in pairs for k in pair], self.alone_late, WARM_LATE_S)
        kernels = sorted({k for pair in pairs for k in pair})
        cells, kinds = {}, []
        for kind in self.bench.arrangements(weir, ["MPS", "MPS threads"]) if pairs else ():
            kinds.append(kind)
            with Kernels(self.bench, kind, kernels, ["normal", "normal"]) as tenants:
                self.settle(tenants, [((k, self.large), (k, self.large)) for k in kernels],
                            [f"loop {SETTLE_S * self.slow} 0"] * 2)
                for pair in pairs:
                    if self.suite.left_s() < 10:
                        break
                    self.pair(tenants, measure, kind, pair, cells)
            self.bench.keep(measure, self.throughput_tables(cells, kinds))
        return sum(not speeds for speeds in cells.values())

    def slate(self):
        pairs = [(a, b) for i, a in enumerate(SLATE) for b in SLATE[i:]]
        return self.throughput("slate", pairs, TOGETHER)

    def waterfill(self):
        return self.throughput("waterfill", WATERFILL, TOGETHER)

    def tensor(self):
        return self.throughput("tensor", TENSOR, TOGETHER)
