"""The measure transfers of the step "sched": CuMAS's twelve applications in 25 orders.

An application is a task of copies to the device, kernels and copies back, with the paper's bytes (its Table 1) by
SCALE. How long its kernels take the paper shows in a picture only, so those are ours: in all about as long as the
copies to the device, most of it where the paper counts many launches (and in lavaMD, which computes long on little
data). All twelve arrive in an order, GAP_MS apart, behind a copy of one more (FIRST): as in the paper all wait when
the first is chosen. What is measured is the time from that copy's beginning to the end of the last one. Natively,
with MPS and through Weir each is a process with a stream; "plain streams" is one native process with all of them.
"Weir fair" lets short copies go first; "Weir fair MPS" does the same with nothing configured, a worker each under an MPS
server of Weir's; "Weir priority" lets kernels end that fair would take turns with.

Model: three resources that serve one task at a time, with each part's time alone: in order of issue (ISSUED), and in the
best order that a search over all twelve finds. So much can be won. The paper's 14 % are the mean over orders, its
44 % against the worst order of issue; so one more is measured, the worst that the search finds with BUS_GB_S.

Of TRACED arrangements one order more is recorded (weir-trace(1)): RESULTS/transfers-POLICIES.trace, for
`weir trace show` and `weir sim`.
"""
import os
import random
import re
import time

import stage

# MB to the device, MB back, kernels of KERNEL_US.
TASKS = (("b+tree", 402, 40, 1), ("backprop", 1568, 830, 1), ("BlackScholes", 1200, 800, 8), ("gaussian", 19, 19, 14),
         ("hotspot", 1212, 606, 1), ("lavaMD", 43, 18, 12), ("lud", 205, 205, 10), ("nw", 1072, 536, 4),
         ("particlefilter", 1043, 1, 4), ("pathfinder", 2139, 1, 1), ("srad_v2", 1073, 1073, 1),
         ("vectorAdd", 1608, 804, 1))
FIRST = ("first", 528, 0, 0)
SCALE = 1 / 8
KERNEL_US = 500
BUS_GB_S = 55
TWINS_S = 0.7  # idle, so that twins which have been asked for are loaded
ORDERS, WARM = 25, 3  # the first ones are for learning
TRACED = ("Weir fair", "Weir fair MPS")
ISSUED = "model, issue order"  # what gains are measured against: no arrangement serves in order of issue
GAP_MS, HEAD_MS = 0.05, 0.1  # between arrivals, and of the first one's before them
AHEAD_MS = 12  # of the first arrival, to tell everybody: with 3 the last two of an order came 1.5 to 2 ms late


def append(ends, parts):
    """When each resource is free again, with one more task behind those that are there."""
    sent = ends[0] + parts[0]
    done = max(ends[1], sent) + parts[1]
    return sent, done, max(ends[2], done) + parts[2]


def span_of(order, parts):
    ends = (0, 0, 0)
    for task in (len(TASKS), *order):
        ends = append(ends, parts[task])
    return ends[2]


def extreme(parts, pick):
    """The best or worst order: that of a set is one of them behind that of the others (CuMAS, equation 4).

    @return (when it ends, the order)
    """
    found = {0: (append((0, 0, 0), parts[-1]), ())}
    for tasks in range(1, 1 << len(TASKS)):
        found[tasks] = pick(((append(found[tasks & ~(1 << k)][0], parts[k]), (*found[tasks & ~(1 << k)][1], k))
                             for k in range(len(TASKS)) if tasks >> k & 1), key=lambda both: both[0][::-1])
    ends, order = found[(1 << len(TASKS)) - 1]
    return ends[2], order


def worst_order():
    """By what the parts should take."""
    ms = SCALE / BUS_GB_S
    return extreme([(to * ms, n * KERNEL_US / 1e3, back * ms) for _, to, back, n in (*TASKS, FIRST)], max)[1]


class Transfers:
    def __init__(self, bench):
        self.bench, self.suite = bench, bench.suite
        self.rehearse = self.suite.options.rehearse
        chance = random.Random(2016)
        self.orders = [chance.sample(range(len(TASKS)), len(TASKS)) for _ in range(ORDERS + WARM)]
        if self.rehearse:  # softgpu: less of everything
            self.orders = self.orders[:WARM + 2]
        self.worst = worst_order()
        self.cells = {}  # of each arrangement, ms: of the orders, and of the worst
        self.worsts = {}

    def task(self, row, kernels=True, back=True):
        scale = SCALE / 100 if self.rehearse else SCALE
        kernels = 0 if not kernels else min(row[3], 1) if self.rehearse else row[3]
        to_bytes, from_bytes = (int(mb * scale * 1e6) // 4 * 4 + 4 for mb in row[1:3])
        return f"{to_bytes}:{kernels}:{from_bytes if back else 4}"

    def argv(self, rows, **parts):
        return [self.bench.load, "tasks", *self.bench.kernel(KERNEL_US), *(self.task(row, **parts) for row in rows)]

    @staticmethod
    def span(answers):
        """From the first begin to the last end, ms."""
        times = [tuple(map(float, re.match(r"done ([\d.]+) ([\d.]+)", lines[-1]).groups()))
                 for lines in answers.values()]
        return max(t[1] for t in times) - min(t[0] for t in times)

    def arrive(self, tenants, order):
        """All of them, each a process."""
        start = time.monotonic() * 1e3 + AHEAD_MS
        starts = {len(TASKS): start, **{task: start + HEAD_MS + GAP_MS * place for place, task in enumerate(order)}}
        return self.span(tenants.say({task: f"{at:.3f} 0" for task, at in starts.items()}))

    def arrangement(self, kind, tenants, run):
        """All orders, and the worst. What failed ends it."""
        def measure(order):
            if self.suite.left_s() < 10:
                self.bench.notes.append(f"transfers, {kind}: out of time")
                return None
            return tenants.attempt(order, lambda: run(tenants, order))

        times, begin = [], time.monotonic()
        for i, order in enumerate(self.orders):
            if i == WARM and kind.startswith("Weir"):
                time.sleep(TWINS_S)
            times.append(measure(order))
            if times[-1] is None:
                times.pop()
                break
        self.cells[kind] = times = times[WARM:]
        worst = measure(self.worst) if len(times) == len(self.orders) - WARM else None
        for i, took in enumerate(times):
            self.bench.note("transfers", kind, f"order {i}", "all", took, "ms")
        if worst is not None:
            self.bench.note("transfers", kind, "worst order", "all", worst, "ms, worst order")
            self.worsts[kind] = worst
        self.bench.notes.append(f"transfers, {kind}: {time.monotonic() - begin:.1f} s")
        self.bench.keep("transfers", self.table())

    def record(self, kind, tenants):
        """One more order, as the scheduler saw it."""
        path = os.path.join(self.suite.out, f"transfers-{re.sub('[^a-z0-9]+', '-', kind[5:])}.trace")
        with self.bench.traced(tenants.host, path):
            took = tenants.attempt("traced", lambda: self.arrive(tenants, self.orders[-1]))
        if took is not None:
            self.bench.notes.append(f"transfers, {kind}: {path}: {took:.2f} ms in the order of the last measured one")

    def model(self):
        """Each part's time alone; spans of orders from them."""
        took = []
        for parts in ({"kernels": False, "back": False}, {"kernels": False}, {}):
            with stage.Stage(self.bench, "parts", [self.bench.tenant(self.argv((*TASKS, FIRST), **parts))]) as tenants:
                took.append([min(self.span(tenants.say({0: f"0 {task}"})) for _ in range(3))
                             for task in range(len(TASKS) + 1)])
        parts = [(to, max(all_ - copies, 0), max(copies - to, 0)) for to, copies, all_ in zip(*took)]
        self.bench.notes.append("transfers, parts alone in ms: " + ", ".join(
            f"{row[0]} {' '.join(f'{ms:.2f}' for ms in part)}" for row, part in zip((*TASKS, FIRST), parts)))
        self.cells[ISSUED] = [span_of(order, parts) for order in self.orders[WARM:]]
        self.worsts[ISSUED] = span_of(self.worst, parts)
        self.cells["model, best order"] = [extreme(parts, min)[0]] * len(self.orders[WARM:])

    def streams(self):
        """One native process: in streams, and one task after the other."""
        def together(tenants, order):
            return self.span(tenants.say({0: " ".join(map(str, (0, len(TASKS), *order)))}))

        def alone(tenants, order):
            return sum(self.span(tenants.say({0: f"0 {task}"})) for task in (len(TASKS), *order))

        with stage.Stage(self.bench, "plain streams", [self.bench.tenant(self.argv((*TASKS, FIRST)))]) as tenants:
            for kind in self.bench.wanted(["plain streams", "one by one"]):
                self.arrangement(kind, tenants, together if kind == "plain streams" else alone)

    def against(self, base, times):
        """How much less than another arrangement, order by order: mean, best and worst."""
        gains = [100 * (1 - b / a) for a, b in zip(self.cells.get(base) or [], times)]
        return f"{sum(gains) / len(gains):+.1f} ({max(gains):+.1f} .. {min(gains):+.1f}) %" if gains else ""

    def against_worst(self, times):
        """How much less its shortest order took than the worst order of issue."""
        issue = [*(self.cells.get(ISSUED) or []), *([self.worsts[ISSUED]] if ISSUED in self.worsts else [])]
        return f"{100 * (1 - min(times) / max(issue)):+.1f} %" if issue else ""

    def table(self):
        rows = []
        for kind, times in self.cells.items():
            if not times:
                rows.append([kind, "failed", *[""] * 7])
                continue
            worst = f"{self.worsts[kind]:.2f}" if kind in self.worsts else ""
            rows.append([kind, len(times), f"{sum(times) / len(times):.2f}", f"{min(times):.2f}", f"{max(times):.2f}",
                         worst, self.against(ISSUED, times), self.against_worst(times),
                         self.against("plain streams", times)])
        heads = ["arrangement", "orders", "ms, mean", "least", "most", "worst order",
                 "less than issue order: mean (best .. worst)", "its least, less than the worst issue order",
                 "less than plain streams"]
        return self.suite.table_of(heads, rows)

    def processes(self, kind):
        """Each task a process."""
        tenants = [self.bench.tenant(self.argv([row])) for row in (*TASKS, FIRST)]
        with stage.Stage(self.bench, kind, tenants, 1) as up:
            self.arrangement(kind, up, self.arrive)
            if kind in TRACED and up.host:
                self.record(kind, up)

    def transfers(self):
        if self.bench.wanted(["model"]):
            self.model()
        self.streams()
        for kind in self.bench.arrangements(["Weir fair", "Weir fair MPS"], ["MPS"]):
            self.processes(kind)
        for kind in self.bench.wanted(["Weir priority"]):
            self.processes(kind)
        return sum(not times for times in self.cells.values())
