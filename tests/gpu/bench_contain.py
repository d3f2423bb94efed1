"""The step "contain" of tests/gpu/run: two containers share the GPU 2:1, each with a quota.

The containers are made by tests/gpu/contain, in the first of its ways that this machine allows: namespaces, what
`weir docker-args` mounts, no device file of the GPU. In them: what cuMemGetInfo, nvidia-smi and
torch.cuda.mem_get_info say; sched_load and a loop of matrix products in PyTorch, both containers at once; and
one container going over its quota while the other works. Shares are measured twice, from the programs' own counts
and from the host's accounting. Without PyTorch its rows are skipped; with --rehearse a program of the
Driver API takes its place.

Each row is printed when it is there, and RESULTS/contain.md has them all. The step takes less than a minute.

As a program this file is what runs PyTorch: bench_contain.py, with commands on stdin.
"""
import collections
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import bench_sched

HERE = os.path.dirname(os.path.abspath(__file__))
LIMIT_S, REHEARSED_LIMIT_S = 55, 120  # softgpu is slow where others use the machine, too
TENANTS = {"alice": 200, "bob": 100}
QUOTAS_MIB = {"alice": 24 << 10, "bob": 12 << 10}
REHEARSED_MIB = {"alice": 256, "bob": 128}
CLOSE = 0.05  # of the device's time
KERNEL_US = 500
SHARE_S, REHEARSED_S = 5.0, 4.0
OVER_S = 3.0
WARM_S = 0.6
HEADS = ["in the containers", "alice", "bob", "wanted", ""]


# -------------------------------------------------------------------- in the container

class Counter:
    """Lines as those of sched_load: a slot every 100 ms, of what has been finished in it."""

    def __init__(self):
        self.next, self.slot, self.total = time.monotonic() + 0.1, 0, 0

    def add(self, count):
        while time.monotonic() >= self.next:
            print(f"slot {self.next * 1e3:.1f} {self.slot}", flush=True)
            self.next, self.slot = self.next + 0.1, 0
        self.slot += count
        self.total += count


def work(seconds, batch, step, event, wait):
    """Steps for a while, four batches of them in the queue; event() marks a place, wait(mark) waits for it."""
    step()
    print("ready", flush=True)
    sys.stdin.readline()
    counter, queue, end = Counter(), collections.deque(), time.monotonic() + seconds
    while queue or time.monotonic() < end:
        if len(queue) < 4 and time.monotonic() < end:
            for _ in range(batch):
                step()
            queue.append(event())
        else:
            wait(queue.popleft())
            counter.add(batch)
    print(f"total {counter.total}", flush=True)


class Torch:
    def __init__(self):
        import torch
        self.torch = torch

    def quota(self):
        free, total = self.torch.cuda.mem_get_info()
        return {"free": free, "total": total, "device": self.torch.cuda.get_device_properties(0).total_memory}

    def over(self):
        """Piece after piece until there is no more; then a program goes on with less."""
        torch, held, error = self.torch, [], ""
        try:
            while len(held) < 1000:
                held.append(torch.empty(1 << 30, dtype=torch.uint8, device="cuda"))
        except torch.cuda.OutOfMemoryError as caught:
            error = f"{type(caught).__name__}: {str(caught).splitlines()[0][:60]}"
        got = len(held) << 30
        held.clear()
        torch.cuda.empty_cache()
        return {"error": error, "got": got, "works": torch.ones(1000, device="cuda").sum().item() == 1000}

    def loop(self, seconds):
        torch = self.torch
        a, b, c = (torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16) for _ in range(3))

        def event():
            mark = torch.cuda.Event()
            mark.record()
            return mark

        work(seconds, 4, lambda: torch.mm(a, b, out=c), event, lambda mark: mark.synchronize())
        torch.cuda.synchronize()


def serve(worker):
    """Commands on stdin: quota, over, loop SECONDS. An answer is a line of JSON; loop's is as sched_load's."""
    print("imported", flush=True)
    for line in sys.stdin:
        command, *args = line.split()
        answer = getattr(worker, command)(*map(float, args))
        if answer is not None:
            print(json.dumps(answer), flush=True)


# -------------------------------------------------------------------- beside the containers

def kvm():
    """What /dev/kvm is here: a machine can be made, or why not."""
    try:
        with open("/dev/kvm", "rb+", buffering=0) as device:
            version = fcntl.ioctl(device, 0xAE00)
            machine = fcntl.ioctl(device, 0xAE01, 0)
    except OSError as error:
        return f"no: {error.strerror}"
    os.close(machine)
    return f"yes: KVM_CREATE_VM works, API version {version}"


class Bench(bench_sched.Bench):
    """Of two tenants that each have a place of their own: here a container, in bench_guest.py a machine."""
    FILE, HEADS, LIMITS_S = "contain.md", HEADS, (LIMIT_S, REHEARSED_LIMIT_S)

    def __init__(self, suite):
        super().__init__(suite)
        rehearse = suite.options.rehearse
        self.end = time.monotonic() + min(self.LIMITS_S[rehearse], suite.left_s())
        self.quotas = REHEARSED_MIB if rehearse else QUOTAS_MIB
        self.seconds = REHEARSED_S if rehearse else SHARE_S
        self.name = "in PyTorch's place" if rehearse else "PyTorch"
        self.products = "small kernels" if rehearse else "bf16 products of 4096"
        self.rows, self.bad, self.processes = [], 0, []
        self.told = ["| " + " | ".join(self.HEADS) + " |", "|---" * len(self.HEADS) + "|"]
        print("\n".join(self.told), flush=True)

    def left_s(self):
        return max(self.end - time.monotonic(), 1)

    def row(self, what, alice, bob, wanted="", good=None):
        """A row of the table, said at once and kept."""
        verdict = "" if good is None else "ok" if good else "**FAIL**"
        self.bad += good is False
        self.told.append("| " + " | ".join([what, str(alice), str(bob), wanted, verdict]) + " |")
        print(self.told[-1], flush=True)
        self.suite.write(self.FILE, "\n".join(self.told) + "\n")

    # ---------------------------------------------------------------- containers

    def contain(self, *words):
        return [sys.executable, "-B", os.path.join(HERE, "contain"), "--weir", self.lib.places.weir, "--run-dir",
                self.host.run_dir, *map(str, words)]

    def start(self, tenant, *argv):
        process = self.lib.Process(self.contain("--by", self.way, tenant, "--", *argv),
                                   env=self.lib.clean_environment(), name=tenant)
        self.processes.append(process)
        return process

    def run_in(self, tenant, *argv, limit_s=20):
        """(exit status, output) of a program in a container, to its end."""
        done = subprocess.run(self.contain("--by", self.way, tenant, "--", *argv), env=self.lib.clean_environment(),
                              stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=min(limit_s, self.left_s()))
        return done.returncode, (done.stdout + done.stderr).strip()

    def choose_way(self):
        done = subprocess.run(self.contain("--ways", "alice"), env=self.lib.clean_environment(), text=True,
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=self.left_s())
        lines = [line.partition(": ")[::2] for line in done.stdout.splitlines()]
        for name, text in lines:
            self.row(f"a container by {name}", text[:90], "")
        works = [name for name, text in lines if text == "works"]
        if not works:
            why = "; ".join(" ".join(line) for line in lines) or done.stderr.strip()
            raise self.lib.unittest.SkipTest(f"no container can be made here: {why}")
        self.way = works[0]

    # ---------------------------------------------------------------- what is shown

    def both(self, what, look, wanted, close=0):
        """A figure of each tenant, in MiB, against its quota."""
        values = {t: look(t) for t in TENANTS}
        good = all(isinstance(v, (int, float)) and abs(v - self.quotas[t]) <= close for t, v in values.items())
        self.row(what, *values.values(), wanted, good)

    def shown(self):
        quotas = "{alice} MiB, {bob} MiB".format(**self.quotas)
        shows = self.lib.places.program("e2e_quota")
        values = [self.run_in(t, shows, "shows", self.quotas[t] << 20) for t in TENANTS]
        self.row("cuMemGetInfo shows the quota, half of it can be had, more is refused",
                 *(said.splitlines()[-1] if said else code for code, said in values), quotas,
                 all(code == 0 for code, _ in values))
        if not shutil.which("nvidia-smi"):
            self.row("nvidia-smi", "skipped: there is none", "")
            return
        query = ("nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits")

        def total(tenant):
            _code, said = self.run_in(tenant, *query)
            return int(said) if said.isdigit() else said[-60:]

        self.both("nvidia-smi: memory.total, MiB", total, quotas)

    # ---------------------------------------------------------------- shares

    def accounted(self):
        rows = {r["name"]: r["service_sm_ns"] for r in self.host.status()["tenant"]}
        return [rows[t] for t in TENANTS]

    @staticmethod
    def said_since(process):
        """Its lines since the last command, with times of this machine."""
        return process.lines[process.since:]

    def pair(self, what, processes):
        """Both have said "ready": let them loose, look at the accounting while both are at work."""
        for p in processes:
            p.say("go")
        time.sleep(WARM_S)
        before = self.accounted()
        time.sleep(self.seconds - WARM_S - 0.4)
        spent = [after - b for after, b in zip(self.accounted(), before)]
        for p in processes:
            p.wait_line("^total ", self.left_s(), after=p.since)
        found = self.shares([self.said_since(p) for p in processes], [1, 1])
        wanted = [w / sum(TENANTS.values()) for w in TENANTS.values()]

        def say(source, shares):
            good = bool(shares) and all(abs(s - w) < CLOSE for s, w in zip(shares, wanted))
            if shares and self.suite.options.rehearse:
                good = None  # softgpu's time is that of cores that others use: tests/e2e/test_shares.py judges it
            self.row(f"{what}: share, %, {source}", *([f"{100 * s:.1f}" for s in shares] or ["none", ""]),
                     " ".join(f"{100 * w:.1f}" for w in wanted), good)

        say("by the programs' counts", found[1] if found else [])
        say("by the host's accounting", [s / sum(spent) for s in spent] if sum(spent) else [])

    def loads(self):
        rounds, us = self.calibrate(KERNEL_US)
        argv = [self.load, "loop", "--wait", *self.kernel(KERNEL_US), "--seconds", str(self.seconds)]
        processes = [self.start(t, *argv) for t in TENANTS]
        for p in processes:
            p.wait_line("^ready$", self.left_s())
            p.since = 0
        self.pair(f"sched_load, kernels of {us:.0f} us", processes)

    # ---------------------------------------------------------------- PyTorch

    def start_workers(self):
        """They import while other rows are measured; the GPU is not touched before the first command."""
        script = os.path.abspath(__file__)
        if self.suite.options.rehearse:
            script = os.path.join(HERE, "frameworks/rehearsal/contain_worker.py")
        argv = (self.suite.options.python, "-B", script)
        self.workers = [self.start(t, *argv) for t in TENANTS]

    def have_workers(self):
        try:
            for p in self.workers:
                p.wait_line("^imported$", self.left_s())
        except self.lib.Stuck as error:
            if "No module named" not in str(error):
                raise
            self.row(self.name, f"skipped: {self.suite.options.python} has none", "")
            return False
        return True

    @staticmethod
    def ask(process, command):
        process.since = len(process.lines)
        process.say(command)

    def answer(self, process):
        return json.loads(process.wait_line(r"^\{.*\}$", self.left_s(), after=process.since)[0])

    def ready(self, process, seconds):
        self.ask(process, f"loop {seconds}")
        process.wait_line("^ready$", self.left_s(), after=process.since)

    def torch(self):
        alice, bob = self.workers
        for p in self.workers:
            self.ask(p, "quota")
        answers = dict(zip(TENANTS, map(self.answer, self.workers)))
        quotas = "{alice} MiB, {bob} MiB".format(**self.quotas)
        for what, key in (("mem_get_info: total", "total"), ("properties: total_memory", "device")):
            self.both(f"{self.name}, {what}, MiB", lambda t, k=key: answers[t][k] >> 20, quotas)
        for p in self.workers:
            self.ready(p, self.seconds)
        self.pair(f"{self.name}, {self.products}", self.workers)
        self.ready(bob, OVER_S)
        bob.say("go")
        bob.wait_line("^slot ", self.left_s(), after=bob.since)
        self.ask(alice, "over")
        said = self.answer(alice)
        then = len(bob.lines)
        bob.wait_line("^total ", self.left_s(), after=bob.since)
        on = sum(n for _, n in self.slots(bob.lines[then:]))
        self.row(f"{self.name}: alice takes more than her quota, bob works",
                 f"{said['error']}; had {said['got'] >> 20} MiB", f"{on} after that", "OutOfMemoryError",
                 said["error"].startswith("OutOfMemoryError") and on > 0)
        self.row(f"{self.name}: and afterwards alice", "works" if said["works"] else "does not", "", "works",
                 said["works"])

    # ---------------------------------------------------------------- all

    def close(self):
        for p in self.processes:
            p.close_stdin()
            p.signal(signal.SIGTERM)
        for p in self.processes:
            p.kill()

    def settings(self):
        return {t: {"weight": w, "memory": f"{self.quotas[t]}MiB"} for t, w in TENANTS.items()}

    def run(self):
        self.row("/dev/kvm, not in the containers", kvm(), "")
        with tempfile.TemporaryDirectory(prefix="weir-contain-") as folder:
            self.host = self.suite.host(tenants=self.settings(), args=["--policy", "fair", "--cdi", f"{folder}/weir.json"])
            try:
                self.choose_way()
                self.start_workers()
                self.shown()
                self.loads()
                if self.have_workers():
                    self.torch()
            finally:
                self.close()
                self.host.stop()
                self.host.discard()
                self.suite.page("Two containers, weights 2:1, quotas", "\n".join(self.told))
        return f"{len(self.told) - 2} rows, {self.bad} wrong, containers by {self.way}", not self.bad


if __name__ == "__main__":
    serve(Torch())
