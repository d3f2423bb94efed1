#!/usr/bin/env python3
"""One GPU for containers and a virtual machine: two containers and a guest of libvirt as three tenants.

All three run kernels without end, with weights 1:2:3; the weights are changed while they run, by weir tenant and by
virsh. A tenant's share of the device's time is looked at twice: as the host accounts it, and as the programs
count the kernels that they have seen finish, all of one kind. The guest's clock is put beside ours for that.
"""
import contextlib
import json
import os
import re
import time

import containers
import kvm
import lib

URI = "https://weir.dev/libvirt/1.0"
CLOSE = 0.05  # of the device's time
FOLLOWS_S = 1.0
MEASURE_S = (3.0, 6.0, 9.0, 15.0)
# Part of the machine's cores for what is not of the test. With more, in spite of its precedence, kernels of one kind take
# unlike times, so that counts say nothing of the device's time.
OTHERS = 0.05
# Kernels that fill the device and can be stopped, for two that each leave room run at once, and then what a tenant is
# served is not what its kernels get done. As many in the queue as the program can hold: a guest that gets no core for
# a while has work.
LOAD = ("loop", "--waves", "4", "--rounds", "300", "--us", "10000", "--depth", "64", "--slot-ms", "50",
        "--seconds", "150")
CDI = f"/var/run/cdi/weir-e2e-{os.getpid()}.json"
# Engines read one folder for the whole machine: names that no other run has.
ONE, TWO = (f"{name}-{os.getpid()}" for name in ("one", "two"))
THREE = "three"  # in a libvirtd of its own
WEIGHTS = {ONE: 100, TWO: 200, THREE: 300}

lib.CASE_LIMIT_S = max(lib.CASE_LIMIT_S, 240)


class Slots:
    """What a program says of its kernels, on the host's clock."""

    def __init__(self, process, ahead_ms=0.0):
        self.process, self.ahead_ms = process, ahead_ms

    def rows(self):
        found = (re.search(r"slot ([\d.]+) (\d+)", line) for line in list(self.process.lines))
        return [(float(m[1]) - self.ahead_ms, int(m[2])) for m in found if m]

    def finished(self, begin_ms, end_ms):
        return sum(n for ms, n in self.rows() if begin_ms < ms <= end_ms)

    def reach(self, ms):
        """Until it has said everything about the time before."""
        def there():
            rows = self.rows()
            return rows and rows[-1][0] >= ms

        lib.until(there, 10, "the program says more", 0.02)


class Shares(lib.Case):
    @classmethod
    def setUpClass(cls):
        containers.need(os.geteuid() == 0, "engines and libvirtd need root")
        kvm.kernel()
        cls.tar = containers.small_image()
        with contextlib.suppress(PermissionError):  # it has a session of its own already
            os.setsid()  # so that it has a group of its own, where Linux divides cores by session (precedence())

    @staticmethod
    def precedence(pid, nice):
        """softgpu's device is made of the machine's cores, and so is the guest: other work on them is not to change
        what a kernel takes, nor to keep a program from having the next one ready. Nothing that is still to start: it
        would have to do so beside two cores that are busy with what goes first."""
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a spare worker may end at any time
            for thread in os.listdir(f"/proc/{pid}/task"):
                os.setpriority(os.PRIO_PROCESS, int(thread), nice)
        try:
            with open(f"/proc/{pid}/autogroup", "w") as f:  # by which Linux divides before it looks at processes
                f.write(str(nice))
        except OSError:
            pass  # it does not divide so

    def container(self, engine, tenant):
        """sched_load in a container; gives its process."""
        name = f"weir-e2e-{tenant}"
        engine.host = self.served
        tests = ["--volume", f"{os.path.dirname(lib.places.bench)}:/t:ro"]
        argv = [*engine.base, "run", "--rm", "--name", name, *engine.common, *engine.tenant_options(tenant), *tests,
                engine.image(self.tar), "/t/bench/sched_load", *LOAD]
        process = lib.Process(argv, env=engine.env, name=name)
        self.addCleanup(process.kill)
        self.addCleanup(engine.remove, name)
        process.wait_line("^ready$", 60)
        return Slots(process)

    def engines(self):
        """podman, and docker where there is one."""
        podman = containers.Podman()
        self.addCleanup(podman.close)
        try:
            docker = containers.Docker()
        except lib.unittest.SkipTest as why:
            print(f"(two podman containers: {why})", end=" ")
            return podman, podman
        self.addCleanup(docker.close)
        return podman, docker

    def machine(self):
        """A domain with the device of its tenant, as weir attach makes it, started."""
        folder = self.folder()
        domain = kvm.Domain(self.libvirt, THREE, folder, kvm.make_root(folder, ["sched_load"]))
        self.addCleanup(domain.discard)
        done = lib.run_weir("attach", "--connect", self.libvirt.url, "--run-dir", self.served.run_dir, "--weight",
                            str(WEIGHTS[THREE]), THREE, limit_s=60)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return domain.start()

    @staticmethod
    def clock_ahead_ms(domain):
        """How far the guest's clock is before ours: the best of some looks."""
        looks = []
        for _ in range(5):
            begin = time.monotonic()
            _status, text = domain.run("cut -d' ' -f1 /proc/uptime")
            took = time.monotonic() - begin
            looks.append((took, 1e3 * (float(text) + 0.005 - begin - took / 2)))
        return min(looks)[1]

    def start_all(self):
        engines = self.engines()
        self.libvirt = kvm.Libvirt(self.folder())
        self.addCleanup(self.libvirt.close)
        self.served = self.host({t: {"weight": WEIGHTS[t]} for t in (ONE, TWO)}, args=["--policy", "fair"], host_lines=[
            f"cdi = {json.dumps(CDI)}", "", "[libvirt]", f'uri = "{self.libvirt.read_only}"'])
        self.addCleanup(lambda: os.path.exists(CDI) and os.unlink(CDI))
        domain = self.machine()
        ahead_ms = self.clock_ahead_ms(domain)
        programs = {t: self.container(e, t) for t, e in zip((ONE, TWO), engines)}
        domain.process.say(f"/cuda/sched_load {' '.join(LOAD)}")
        domain.process.wait_line("ready", 60)
        programs[THREE] = Slots(domain.process, ahead_ms)
        self.programs = programs
        self.addCleanup(self.precedence, os.getpid(), 0)
        # Each program has a worker of its own, and all of them the gate process.
        self.ours = [os.getpid(), *lib.children_of(self.served.pid), *(s["pid"] for s in self.served.status()["session"])]
        for pid in self.ours:
            self.precedence(pid, -15)
        lib.until(self.all_have_work, 20, "what they began with, each for itself, is done")

    def served_ns(self):
        """Device time that each of them has had so far."""
        rows = {row["name"]: row for row in self.served.status()["tenant"]}
        return {t: rows[t]["service_sm_ns"] for t in WEIGHTS}

    def served_since(self, before):
        return {t: ns - before[t] for t, ns in self.served_ns().items()}

    @staticmethod
    def shares(weights):
        return {t: w / sum(weights.values()) for t, w in weights.items()}

    def all_have_work(self):
        """Is each of them served what it should be, more or less, in half a second?"""
        before = self.served_ns()
        self.wait_until(time.monotonic() + 0.5)
        served = self.served_since(before)
        total = max(sum(served.values()), 1)
        return all(abs(served[t] / total - share) < 2 * CLOSE for t, share in self.shares(WEIGHTS).items())

    def wait_until(self, when):
        lib.until(lambda: time.monotonic() >= when, max(when - time.monotonic(), 0) + 5, "the time is over", 0.01)

    def others_s(self):
        """Time of the machine's cores that went to others, so far: also to other machines on the same cores."""
        with open("/proc/stat") as f:
            user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, f.readline().split()[1:9])
        busy = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
        return busy - sum(lib.cpu_seconds(pid) for pid in self.ours if lib.pid_is_alive(pid))

    def counted(self, begin, end):
        """Kernels of each program in a time, as it saw them finish."""
        for program in self.programs.values():
            program.reach(end * 1e3)
        return {t: p.finished(begin * 1e3, end * 1e3) for t, p in self.programs.items()}

    def assertClose(self, found, wanted, what):
        """Gives the shares as text."""
        total = max(sum(found.values()), 1)
        text = " ".join(f"{100 * n / total:.1f}" for n in found.values())
        for tenant, share in wanted.items():
            self.assertLess(abs(found[tenant] / total - share), CLOSE, f"{what}: {text}, wanted {wanted}")
        return text

    def assertShares(self, weights):
        """From a second after now. What a kernel of softgpu takes depends on who else uses the machine's cores just then:
        one may hold the device for most of a second, which is paid back later, and counts of kernels may take some
        seconds more to come to the same."""
        wanted = self.shares(weights)
        begin = time.monotonic() + FOLLOWS_S
        self.wait_until(begin)
        before, others = self.served_ns(), self.others_s()
        for seconds in MEASURE_S:
            self.wait_until(begin + seconds)
            served = self.served_since(before)
            part = (self.others_s() - others) / (time.monotonic() - begin) / os.cpu_count()
            counts = self.counted(begin, begin + seconds)
            last = seconds == MEASURE_S[-1]
            elsewhere = f"in {seconds} s, with {part:.0%} of the cores elsewhere"
            try:
                accounted = self.assertClose(served, wanted, f"accounted {elsewhere}")
                if last and part > OTHERS:
                    counted = f"not comparable ({elsewhere})"
                else:
                    counted = self.assertClose(counts, wanted, f"counted {elsewhere}")
                break
            except AssertionError:
                if last:
                    raise
        print(f"{':'.join(str(w // 100) for w in weights.values())} accounted {accounted}, counted {counted} "
              f"({seconds} s);", end=" ", flush=True)

    def test_two_containers_and_a_machine(self):
        self.start_all()
        self.assertShares(WEIGHTS)
        done = self.served.weir("tenant", "set", "--run-dir", self.served.run_dir, ONE, "weight=400")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertShares({**WEIGHTS, ONE: 400})
        self.libvirt.virsh("metadata", THREE, URI, "--key", "weir", "--set", "<tenant weight='100'/>", "--live",
                           "--config")
        self.assertShares({**WEIGHTS, ONE: 400, THREE: 100})


if __name__ == "__main__":
    lib.main()
