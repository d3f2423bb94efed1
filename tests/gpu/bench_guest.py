"""The step "guest" of tests/gpu/run: two virtual machines share the GPU 2:1, each with a quota.

As bench_contain.py, with a machine for a container: QEMU and a stock kernel from the bundle (guest_vm.py), under KVM if a
guest starts there, else under TCG, a processor in software: what takes time there says nothing of KVM. The channel is
ivshmem, with the host as its server. The machines' root is this machine's own, read-only by 9p below a tmpfs, so its
python3 with PyTorch runs in them; the GPU's driver is hidden, and no device file of it is there.

The rows: what /dev/kvm does with each model of a processor, how long a machine takes to start, the channel, its round
trip and copies beside those of a program on this machine, then all of bench_contain.py. Each is printed when it is
there, and RESULTS/guest.md has them all. The step takes less than 150 s (--guest-seconds), most of it for PyTorch.
"""
import glob
import os
import re
import shlex
import shutil
import tempfile
import threading
import time

import bench_contain
import guest_vm

LIMIT_S, REHEARSED_LIMIT_S = 145, 280
PROBE_S, BOOT_S, REHEARSED_BOOT_S = 8, 45, 120
# Some hosts of guests offer more than they let QEMU set, so from all of the processor to the least of it.
MODELS = ("host", "host,arch-capabilities=off", "max,arch-capabilities=off", "qemu64")
IN_SOFTWARE = ("tcg,thread=multi", "max")
MEMORY_MIB, CPUS = 12 << 10, 4
REHEARSED_MEMORY_MIB, REHEARSED_CPUS = 1536, 2
PORTS = 3  # programs that are talked to, in each machine
MEASURES = ("launch_enqueue", "launch_sync", "copy_4B", "pinned_h2d_64M")
ROOT = "/root"  # in the initramfs; the machine's own below it
MOUNTS = (
    "mkdir -p /lower /upper " + ROOT,
    "mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=1048576,cache=loose root /lower",
    "mount -t tmpfs tmpfs /upper && mkdir /upper/files /upper/work",
    f"mount -t overlay -o lowerdir=/lower,upperdir=/upper/files,workdir=/upper/work root {ROOT}",
    f"mount -t proc proc {ROOT}/proc && mount -t sysfs sys {ROOT}/sys && mount -t devtmpfs dev {ROOT}/dev",
    f"mkdir -p {ROOT}/dev/shm && mount -t tmpfs shm {ROOT}/dev/shm && mount -t tmpfs run {ROOT}/run",
)
HIDDEN = "/usr/local/nvidia"
OWN = ("/dev/", "/run/", "/proc/", "/sys/")


def argv_of(vm, accelerator, model, memory_mib, cpus, words="quiet"):
    return [vm.qemu, "-L", vm.firmware, "-machine", "pc", "-accel", accelerator, "-cpu", model, "-m", str(memory_mib),
            "-smp", str(cpus), "-nodefaults", "-display", "none", "-serial", "stdio", "-no-reboot",
            "-kernel", vm.kernel, "-initrd", vm.initramfs, "-append", f"console=ttyS0 panic=-1 {words}"]


def virtualization():
    """Who runs guests: the kernel's modules, and what the processor has for it."""
    with open("/proc/cpuinfo") as f:
        flags = set(f.read().split()) & {"vmx", "svm"}
    modules = sorted(map(os.path.basename, glob.glob("/sys/module/kvm_*")))
    return f"{', '.join(modules) or 'no module kvm_*'}; the processor has {'/'.join(flags) or 'neither vmx nor svm'}"


def last_words(process, limit=170):
    """What a machine said last, or QEMU."""
    text = " / ".join([*process.lines[-3:], *process.errors[-2:]])
    text = re.sub(r"\x1b[\[\]?0-9;]*[a-zA-Z]|[^ -~]", "", text).replace("|", "/")
    return text[-limit:] or "nothing was said"


class Program:
    """A program in a machine, over a virtio-serial port: with the face of a lib.Process."""

    def __init__(self, lib, name, connection):
        self.lib, self.name, self.connection = lib, name, connection
        self.lines, self.since, self.offset_ms = [], 0, None
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        try:
            with self.connection.makefile("rb") as stream:
                for line in stream:
                    self._take(line.decode("utf-8", "replace").rstrip("\r\n"), time.monotonic() * 1e3)
        except OSError:
            pass

    def _take(self, line, now_ms):
        slot = re.match(r"slot ([\d.]+) ", line)
        if slot:  # a line cannot come before it was written, so the least difference is that of the clocks
            ahead = now_ms - float(slot[1])
            self.offset_ms = ahead if self.offset_ms is None else min(ahead, self.offset_ms)
        self.lines.append(line)

    def said_since(self):
        """Lines since the last command, with the times of their slots in this machine's clock."""
        def here(match):
            return f"slot {float(match[1]) + self.offset_ms:.1f} "
        return [re.sub(r"^slot ([\d.]+) ", here, line) for line in self.lines[self.since:]]

    def say(self, text):
        self.connection.sendall(text.encode() + b"\n")

    def wait_line(self, pattern, limit_s=20, after=0):
        regex = re.compile(pattern)

        def look():
            for line in self.lines[after:]:
                match = regex.search(line)
                if match:
                    return match
                if line.startswith("@@EXIT "):
                    raise self.lib.Stuck(f"{self.name} ended without '{pattern}'")
            return None

        try:
            return self.lib.until(look, limit_s, f"{self.name} says '{pattern}'")
        except self.lib.Stuck as error:
            raise self.lib.Stuck("\n".join([str(error), *self.lines[-15:]])) from None

    def close(self):
        self.connection.close()


class Guest:
    """A machine of a tenant."""

    def __init__(self, bench, tenant, accelerator, model):
        self.bench, self.lib, self.tenant = bench, bench.lib, tenant
        self.folder = tempfile.mkdtemp(prefix="weir-guest-")
        self.programs = []
        memory, cpus = bench.size
        argv = argv_of(bench.vm, accelerator, model, memory, cpus)
        argv += bench.kvm.ivshmem_device(bench.host, tenant)
        argv += ["-fsdev", "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap",
                 "-device", "virtio-9p-pci,fsdev=root,mount_tag=root", "-device", "virtio-serial-pci"]
        for i in range(1, PORTS + 1):
            argv += ["-chardev", f"socket,id=port{i},path={self.folder}/{i},server=on,wait=off",
                     "-device", f"virtserialport,chardev=port{i},nr={i},name=program.{i}"]
        self.started = time.monotonic()
        self.process = bench.qemu(argv, f"{tenant}'s machine")
        self.console = bench.kvm.Console(self.process)

    def up(self, limit_s):
        """Seconds to the console."""
        self.console.wait_up(limit_s)
        return time.monotonic() - self.started

    def must(self, line, limit_s=20):
        status, said = self.console.run(line, min(limit_s, self.bench.left_s()))
        if status != 0:
            raise self.lib.Stuck(f"in {self.tenant}'s machine: {line}: {said[-300:]}")

    def mount(self):
        for line in MOUNTS:
            self.must(line)
        smi = shutil.which("nvidia-smi")
        if smi:  # before the folder that may have it is hidden
            self.must(f"mkdir -p {ROOT}/run/bin && cp {ROOT}{os.path.realpath(smi)} {ROOT}/run/bin/nvidia-smi")
        if os.path.isdir(HIDDEN):
            self.must(f"mount -t tmpfs none {ROOT}{os.path.realpath(HIDDEN)}")
        self.must(f"cd {ROOT}; ! ls dev/nvidia* 2>/dev/null")

    def words(self, argv):
        """The command line of a program in the machine."""
        env = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "LANG") or k.startswith("PYTHON")}
        env["PATH"] = f"/run/bin:{env.get('PATH', '/bin:/usr/bin')}"
        env["LD_LIBRARY_PATH"] = ":".join(filter(None, [self.lib.places.guest_lib, os.environ.get("LD_LIBRARY_PATH")]))
        env["WEIR_LOG"] = "error"
        words = ["chroot", ROOT, "/usr/bin/env", "-i", *(f"{k}={v}" for k, v in env.items()), *map(str, argv)]
        return " ".join(map(shlex.quote, words))

    def run(self, argv, limit_s):
        """(exit status, output) of a program, to its end; one that takes too long is killed, so the console answers."""
        return self.console.run(f"timeout -s KILL {limit_s:.0f} {self.words(argv)} </dev/null 2>&1", limit_s + 5)

    def start(self, argv):
        """A Program that runs beside others."""
        number = len(self.programs) + 1
        connection = self.lib.socket.socket(self.lib.socket.AF_UNIX)
        connection.connect(f"{self.folder}/{number}")
        program = Program(self.lib, f"{os.path.basename(argv[0])} of {self.tenant}", connection)
        self.programs.append(program)
        self.must(f"( exec 3<>$(echo /dev/vport*p{number}); {self.words(argv)} <&3 >&3 2>&1; "
                  "echo \"@@EXIT $?\" >&3 ) &")
        return program

    def close(self):
        self.process.kill()
        for program in self.programs:
            program.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class Bench(bench_contain.Bench):
    FILE, HEADS, LIMITS_S = "guest.md", ["in the machines", *bench_contain.HEADS[1:]], (LIMIT_S, REHEARSED_LIMIT_S)

    def __init__(self, suite):
        self.vm = guest_vm.Carried(os.path.join(suite.options.bundle, "vm"))
        import kvm
        self.kvm = kvm
        if suite.options.guest_seconds:
            self.LIMITS_S = (suite.options.guest_seconds,) * 2
        if not self.vm.is_there():
            raise kvm.unittest.SkipTest("no vm/ in the bundle: make it with WEIR_BUNDLE_GUEST=1 ci/bundle")
        if os.path.realpath(self.vm.folder).startswith(OWN):
            raise kvm.unittest.SkipTest(f"the bundle lies in one of {OWN}, which the machines have of their own")
        super().__init__(suite)
        rehearse = suite.options.rehearse
        self.size = (REHEARSED_MEMORY_MIB, REHEARSED_CPUS) if rehearse else (MEMORY_MIB, CPUS)
        self.guests, self.accelerator, self.workers = {}, None, []

    def qemu(self, argv, name):
        return self.lib.Process(argv, env=dict(self.lib.clean_environment(), QEMU_MODULE_DIR=self.vm.modules), name=name)

    # ---------------------------------------------------------------- KVM or not

    def start_probes(self):
        """A machine without a device for each model of a processor, at once."""
        return {m: self.qemu(argv_of(self.vm, "kvm", m, 512, 1, "earlyprintk=ttyS0"), f"KVM, {m}") for m in MODELS}

    def choose(self, probes, end):
        """The first model whose machine came up, when those before it have ended or their time has."""
        def look():
            for model, process in probes.items():
                if any("@@UP" in line for line in process.lines):
                    return model
                if process.alive() and time.monotonic() < end:
                    return None
            return "none"

        chosen = self.lib.until(look, PROBE_S + 5, "a machine starts or does not")
        for model, process in probes.items():
            if chosen == model:
                self.row(f"a machine under KVM, -cpu {model}", "starts", "")
                break
            became = f"is not there after {PROBE_S} s" if process.alive() else "QEMU ended"
            process.kill()
            self.row(f"a machine under KVM, -cpu {model}", became, last_words(process))
        self.accelerator = IN_SOFTWARE if chosen == "none" else ("kvm", chosen)

    def boot(self):
        accelerator, model = self.accelerator
        name = accelerator.split(",")[0].upper()
        limit_s = REHEARSED_BOOT_S if self.suite.options.rehearse else BOOT_S
        try:
            self.guests = {t: Guest(self, t, accelerator, model) for t in bench_contain.TENANTS}
            times = [f"{g.up(min(limit_s, self.left_s())):.1f}" for g in self.guests.values()]
            for guest in self.guests.values():
                guest.mount()
        except self.lib.Stuck as error:
            self.row(f"the machines start, by {name}", str(error).splitlines()[0][:170].replace("|", "/"),
                     " // ".join(last_words(g.process) for g in self.guests.values()), "", False)
            self.end_guests()
            if self.accelerator == IN_SOFTWARE:
                raise
            self.accelerator = IN_SOFTWARE
            return self.boot()
        memory, cpus = self.size
        return self.row(f"to the console, s, by {name} -cpu {model}, {cpus} CPUs, {memory} MiB", *times)

    @property
    def in_software(self):
        return self.accelerator == IN_SOFTWARE

    # ---------------------------------------------------------------- as bench_contain wants it

    def run_in(self, tenant, *argv, limit_s=20):
        return self.guests[tenant].run(argv, min(limit_s * (3 if self.in_software else 1), self.left_s()))

    def start(self, tenant, *argv):
        return self.guests[tenant].start(argv)

    @staticmethod
    def said_since(process):
        return process.said_since()

    def end_guests(self):
        for guest in self.guests.values():
            guest.close()
        self.guests = {}

    # ---------------------------------------------------------------- the channel

    def channel(self):
        taken = []
        for tenant in bench_contain.TENANTS:
            _status, said = self.run_in(tenant, self.lib.places.weir, "doctor")
            self.suite.write(f"guest_doctor_{tenant}.txt", said + "\n")
            match = re.search(r"taken: +(by .*)", said)
            taken.append(match[1] if match else said[-150:].replace("\n", " / "))
        self.row("weir doctor: the channel", *taken, "by ivshmem", all(t.startswith("by ivshmem") for t in taken))

    def costs(self, said):
        rows = [line.split("\t") for line in said.splitlines()]
        return {row[0]: (row[1], row[2]) for row in rows if len(row) == 5}

    def measure_here(self):
        _code, said, _seconds = self.suite.run(self.host, self.lib.SHM, self.lib.places.program("driver_bench"), *MEASURES)
        return self.costs(said)

    def measure(self, here):
        """One after the other, each alone."""
        program = self.lib.places.program("driver_bench")
        costs, said = {}, ""
        for tenant in bench_contain.TENANTS:
            _status, said = self.run_in(tenant, program, *MEASURES, limit_s=25)
            costs[tenant] = self.costs(said)
        for name in dict.fromkeys([*here, *(n for c in costs.values() for n in c)]):
            if name in ("init_and_context", "module_and_first_launch") and name not in here:
                continue
            cells = [c[name][1] if name in c else "none" for c in costs.values()]
            unit, value = here.get(name, ("", "none"))
            self.row(f"driver_bench: {name}, p50, {unit}; by shm, without a machine: {value}", *cells, "",
                     None if "none" not in cells else False)
        if not here or not all(costs.values()):
            self.row("driver_bench said", said[-150:].replace("\n", " / "), "", "", False)

    # ---------------------------------------------------------------- all

    def attempt(self, what, act, *args):
        """act(); what goes wrong is a row, and the next thing is tried."""
        try:
            return act(*args)
        except (self.lib.Stuck, OSError, ValueError) as error:
            text = str(error).replace("|", "/").replace("\n", " / ")
            self.row(what, f"{type(error).__name__}: {text[:200]} .. {text[-150:]}", "", "", False)
            return None

    def torch_rows(self):
        start = time.monotonic()
        if not self.have_workers():
            return
        self.row(f"{self.name} is there, waited for it, s", f"{time.monotonic() - start:.1f}", "")
        self.torch()

    def measures(self, here):
        self.attempt("weir doctor", self.channel)
        if not self.in_software:  # a quiet machine; in software, importing takes most of the time there is
            self.attempt("driver_bench", self.measure, here)
        self.attempt(f"{self.name} starts", self.start_workers)
        self.attempt("quotas", self.shown)
        if self.in_software:
            self.attempt("driver_bench", self.measure, here)
        self.attempt("sched_load", self.loads)
        self.attempt(self.name, self.torch_rows)

    def run(self):
        self.row("/dev/kvm", bench_contain.kvm(), virtualization())
        self.host = self.suite.host(tenants=self.settings(), args=["--policy", "fair"])
        probes = {}
        try:
            probes, end = self.start_probes(), time.monotonic() + PROBE_S
            here = self.attempt("driver_bench by shm", self.measure_here) or {}
            self.choose(probes, end)
            for process in probes.values():
                process.kill()
            self.boot()
            self.measures(here)
        finally:
            for process in probes.values():
                process.kill()
            self.end_guests()
            self.host.stop()
            self.host.discard()
            self.suite.page("Two virtual machines, weights 2:1, quotas", "\n".join(self.told))
        return (f"{len(self.told) - 2} rows, {self.bad} wrong, machines by {self.accelerator[0].split(',')[0].upper()}",
                not self.bad)
