"""The measure newcomer of the step "sched": a tenant that is alone, and another that comes.

The first launches one kernel behind the other, as many as its queue holds. For AFTER_S it is alone: its kernels'
time in its slots, of the time between the first and the last of them, is what it gets done ("alone"; 1.00 is as
much as the kernels' calibrated times say). Then another launches a short kernel and waits for it, once. How long that
takes is how long a newcomer waits for what is in flight already. One case begins with a kernel that nothing is known of:
the newcomer comes at once.
"""
import time

KERNELS_US = (1000, 6000, 20000, 50000)
AT_ONCE = 20000
AFTER_S, AT_ONCE_S = 3.0, 0.03
SHORT_US = 100
WARM_MS = 1300  # for a second both count as having work: the newcomer has launched something before
SLOT_MS = 2
WAIT_S = 60


class Alone:
    def __init__(self, bench):
        self.bench = bench
        rehearse = bench.suite.options.rehearse
        self.cases = [(us, AFTER_S) for us in KERNELS_US] + [(AT_ONCE, AT_ONCE_S)]
        if rehearse:
            self.cases = [(KERNELS_US[0], 2.5)]

    def alone(self, lines, begin_ms, end_ms, us):
        """What was done between the first and the last of the slots in which a kernel ended; None: too few did."""
        slots = [(ms, n) for ms, n in self.bench.slots(lines) if n and begin_ms < ms <= end_ms]
        if len(slots) < 3:
            return None
        return sum(n for _, n in slots[1:]) * us * 1e-3 / (slots[-1][0] - slots[0][0])

    def one(self, kind, us, after_s):
        """(the newcomer's wait in us, what the other got done alone); None: it failed."""
        bench = self.bench
        tenants = [bench.tenant([bench.load, "loop", "--wait", *bench.kernel(us), "--seconds", after_s + WAIT_S,
                                 "--depth", 64, "--slot-ms", SLOT_MS]),
                   bench.tenant([bench.load, "pulse", "--wait", *bench.kernel(SHORT_US), "--seconds", 0.001,
                                 "--gap-us", 0])]

        def work(_host, processes):
            first, newcomer = processes
            begin_ms = time.monotonic() * 1e3
            first.say("go")
            time.sleep(after_s)
            end_ms = time.monotonic() * 1e3
            newcomer.say("go")
            bench.ends(newcomer, WAIT_S)
            return (bench.latency(newcomer.lines)[0],
                    self.alone(list(first.lines), begin_ms + WARM_MS, end_ms, bench.calibrate(us)[1]))

        return bench.attended(kind, tenants, work, WAIT_S)

    def newcomer(self, kinds):
        bench, rows = self.bench, []
        for us, after_s in self.cases:
            case = f"{us} us" + (", at once" if after_s == AT_ONCE_S else "")
            for kind in kinds:
                if bench.suite.left_s() < 15:
                    break
                found = self.one(kind, us, after_s)
                if not found:
                    rows.append([case, kind, "failed", ""])
                    continue
                wait_us, alone = found
                rows.append([case, kind, f"{wait_us * 1e-3:.2f}", "" if alone is None else f"{alone:.3f}"])
                bench.note("newcomer", kind, case, "waits", wait_us, "us")
                if alone is not None:
                    bench.note("newcomer", kind, case, "alone", alone, "of calibrated")
        return rows
