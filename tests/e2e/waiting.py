"""Waiting in the end-to-end tests, and the clock of their limits, which a busy machine slows."""
import bisect
import os
import select
import threading
import time


class Stuck(Exception):
    """A condition did not come true, or a case ran past its limit."""


def monotonic_ns():
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


class Lived(threading.Thread):
    """What time a program lives on a machine that others use, too: while n of them want each processor, a second
    has n. Who sleeps when it should work is late by this clock as by any other.
    """

    STEP_S = 0.02

    def __init__(self):
        super().__init__(daemon=True)
        self.processors = len(os.sched_getaffinity(0))
        self.at_ns = [monotonic_ns()]
        self.lived_ns = [0.0]
        self.start()

    def crowd(self):
        with open("/proc/loadavg") as f:  # its fourth word: how many want to run, and how many there are
            return max(1.0, int(f.read().split()[3].split("/")[0]) / self.processors)

    def run(self):
        while True:
            time.sleep(self.STEP_S)
            crowd, now_ns = self.crowd(), monotonic_ns()
            lived_ns = self.lived_ns[-1] + (now_ns - self.at_ns[-1]) / crowd
            self.lived_ns.append(lived_ns)  # first: read by the other's length
            self.at_ns.append(now_ns)

    def at(self, when_ns):
        i = min(max(bisect.bisect(self.at_ns, when_ns), 1), len(self.at_ns) - 1)
        if when_ns > self.at_ns[-1] or i == 0:
            return self.lived_ns[len(self.at_ns) - 1]
        part = (when_ns - self.at_ns[i - 1]) / (self.at_ns[i] - self.at_ns[i - 1])
        return self.lived_ns[i - 1] + part * (self.lived_ns[i] - self.lived_ns[i - 1])


_lived = Lived()


def lived_s(when_ns=None):
    """Now, or then, by the clock of limits."""
    return _lived.at(monotonic_ns() if when_ns is None else when_ns) / 1e9


def until(condition, limit_s, what, pause_s=0.005):
    """Wait until condition() gives something true, and give that."""
    end = lived_s() + limit_s
    while True:
        late = lived_s() >= end  # before it is looked at: who was stopped in between looks once more
        value = condition()
        if value:
            return value
        if late:
            raise Stuck(f"not within {limit_s:g} s: {what}")
        time.sleep(pause_s)


def ended_ns(*pids):
    """A function that waits for the end of these processes, and tells when the last one had ended."""
    fds = [os.pidfd_open(pid) for pid in pids]

    def wait():
        for fd in fds:
            until(lambda fd=fd: select.select([fd], [], [], 0.5)[0], 5, "a process ends")
            os.close(fd)
        return monotonic_ns()

    return wait
