"""The step "frameworks" of tests/gpu/run: unmodified frameworks natively and through Weir.

Programs are rows of frameworks/programs.txt. Each runs natively (twice: native's own spread is what is
allowed, see framework_compare.py) and once through Weir, several programs at once. Then, alone: those
marked so, and those that failed with others beside them, whose failure stays one but says more.
The native outputs are kept in RESULTS/native.json, so that a later run may do without (--weir-only).
"""
import concurrent.futures
import fnmatch
import json
import os
import queue
import shutil
import signal
import subprocess
import tempfile
import threading
import time

import framework_compare
import lib

HERE = os.path.dirname(os.path.abspath(__file__))
SKIPPED = 77
RERUNS = 2  # more native runs where two were not enough to allow what Weir gave
TAIL_LINES = 40


class Program:
    def __init__(self, row, folder):
        self.name, needs, flags, command = (cell.strip() for cell in row.split("|"))
        self.needs = [n for n in needs.split(",") if n != "-"]
        words = command.split()
        self.env = {}
        while "=" in words[0]:
            key, value = words.pop(0).split("=", 1)
            self.env[key] = value
        self.argv = [os.path.join(folder, words[0]), *words[1:]]
        flags = dict(f.partition("=")[::2] for f in flags.split(",") if f != "-")
        self.alone = "alone" in flags
        self.gpus = int(flags.get("gpus", 1))
        self.limit_s = float(flags.get("timeout", 120))


class Outcome:
    def __init__(self, code, out, err, seconds):
        self.code, self.out, self.err, self.seconds = code, out, err, seconds

    @property
    def ok(self):
        return self.code == 0 and self.out.rstrip().endswith("ok")

    @property
    def why(self):
        """One line: what ended it."""
        if self.code is None:
            return f"still running after {self.seconds:.0f} s"
        for line in reversed(self.out.splitlines()):
            if line.startswith(("skipped: ", "check failed: ")):
                return line.removeprefix("skipped: ")
        said = [line for line in self.err.splitlines() if line.strip()]
        # The last line of a traceback begins at the margin; what follows it are remarks of the libraries.
        errors = [line for line in said if not line.startswith((" ", "[")) and "Error" in line]
        last = (errors or said or ["no output"])[-1].strip()
        ended = f"signal {-self.code}" if self.code < 0 else f"exit status {self.code}"
        return f"{ended}: {last[:300]}"


def read_programs(folder, patterns):
    with open(os.path.join(folder, "programs.txt")) as f:
        rows = [line for line in f if line.strip() and not line.startswith("#")]
    programs = [Program(row, folder) for row in rows]
    return [p for p in programs if any(fnmatch.fnmatch(p.name, w) for w in patterns)]


def end_group(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def execute(argv, env, limit_s):
    """Run in a process group of its own, of which nothing is left afterwards."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        start = time.monotonic()
        process = subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                   start_new_session=True)
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            end_group(process)
            process.wait()
        seconds = time.monotonic() - start

        def text(file):
            file.seek(0)
            return file.read().decode("utf-8", "replace")

        return Outcome(code, text(out), text(err), seconds)


class Frameworks:
    def __init__(self, suite):
        self.suite = suite
        self.options = suite.options
        self.kind = {"shm": lib.SHM, "zmq": lib.ZMQ, "tcp": lib.TCP}[self.options.transport]
        self.folder = os.path.join(HERE, "frameworks", "rehearsal" if self.options.rehearse else "")
        self.programs = read_programs(self.folder, self.options.programs)
        self.out = os.path.join(suite.out, "frameworks")
        self.cache = self.options.cache or tempfile.mkdtemp(prefix="weir-caches-")
        os.makedirs(self.out, exist_ok=True)
        self.native_path = os.path.join(suite.out, "native.json")
        self.natives = {}
        if self.options.weir_only:
            with open(self.options.native_file or self.native_path) as f:
                self.natives = {n: [Outcome(*run) for run in runs] for n, runs in json.load(f).items()}
        self.rows = {}
        self.details = []
        self.host = None
        self.lock = threading.Lock()
        self.tenants = [f"tenant{n}" for n in range(self.options.jobs)]
        self.free_tenants = queue.Queue()
        for name in self.tenants:
            self.free_tenants.put(name)
        self.absent = self.absent_modules()
        self.gpus = self.count_gpus()

    # ---------------------------------------------------------------- what there is

    def absent_modules(self):
        wanted = sorted({n for p in self.programs for n in p.needs})
        script = ("import importlib.util, sys\n"
                  "print(*[m for m in sys.argv[1:] if not importlib.util.find_spec(m)])")
        done = subprocess.run([self.options.python, "-c", script, *wanted], capture_output=True, text=True,
                              timeout=180, env=lib.clean_environment(), check=True)
        return set(done.stdout.split())

    def count_gpus(self):
        if self.options.rehearse:
            return 1
        return sum(1 for n in os.listdir("/dev") if n.startswith("nvidia") and n[6:].isdigit())

    def obstacle(self, program):
        missing = [n for n in program.needs if n in self.absent]
        if missing:
            return f"no module {', '.join(missing)}"
        if program.gpus > self.gpus:
            return "one GPU" if self.gpus == 1 else f"{self.gpus} GPUs"
        return None

    # ---------------------------------------------------------------- one run

    def environment(self, program, arrangement):
        place = os.path.join(self.cache, arrangement if self.options.cold else "both")
        env = {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "2",
               "TRITON_CACHE_DIR": os.path.join(place, "triton"),
               "TORCHINDUCTOR_CACHE_DIR": os.path.join(place, "inductor"),
               "TORCHINDUCTOR_COMPILE_THREADS": "4", "CUPY_CACHE_DIR": os.path.join(place, "cupy"),
               "CUDA_CACHE_PATH": os.path.join(place, "cuda")}
        # Where a program hangs or crashes, its Python stacks are in what it leaves behind.
        env.update(program.env, PYTHONFAULTHANDLER="1",
                   SUITE_STACKS_AFTER_S=f"{program.limit_s * self.options.patience * 0.9:.0f}")
        return env

    def run_native(self, program):
        argv, env = lib.guest_argv(None, self.suite.native, None, self.options.python, program.argv)
        env.update(self.environment(program, "native"))
        return self.limited(argv, env, program)

    def run_weir(self, program):
        host = self.running_host()
        tenant = self.free_tenants.get()
        try:
            argv, env = lib.guest_argv(host, self.kind, tenant, self.options.python, program.argv)
            env.update(self.environment(program, "weir"))
            return self.limited(argv, env, program)
        finally:
            self.free_tenants.put(tenant)

    def limited(self, argv, env, program):
        left = self.suite.left_s()
        if left < 3:
            raise TimeoutError("out of time")
        return execute(argv, env, min(program.limit_s * self.options.patience, left))

    def running_host(self):
        """The host, started again when it has ended: that is a failure of its own, but not of the rest."""
        with self.lock:
            if self.host and not self.host.process.alive():
                self.details.append(("the host ended", "\n".join(self.host.process.errors[-TAIL_LINES:])))
                self.suite.failed = True
                self.host.discard()
                self.host = None
            if not self.host:
                settings = dict(s.split("=", 1) for s in self.options.tenant)
                settings = {k: int(v) if v.isdigit() else v for k, v in settings.items()}
                remote = None
                if self.kind == lib.TCP:
                    remote = lib.Remote(tempfile.mkdtemp(prefix="weir-keys-", dir=self.cache), self.tenants,
                                        self.suite.namespaces())
                self.host = self.suite.host(tenants={t: settings for t in self.tenants}, remote=remote)
            return self.host

    # ---------------------------------------------------------------- one program

    def native_runs(self, program):
        if self.options.weir_only:
            return self.natives.get(program.name, [])
        runs = []
        while len(runs) < self.options.native_runs and all(r.ok for r in runs):
            runs.append(self.run_native(program))
        if not runs[-1].ok and runs[-1].code != SKIPPED:
            self.keep(program, "native", runs[-1])
        with self.lock:
            self.natives[program.name] = runs
        return runs

    def judge(self, program, natives, weir):
        """(outcome, text) of a Weir run that has ended."""
        if weir.code == SKIPPED:
            return "skipped", f"through Weir: {weir.why}"
        if not weir.ok:
            return "FAIL", weir.why
        texts = [run.out for run in natives]
        wrong = framework_compare.difference(texts, weir.out)
        while wrong and not self.options.weir_only and len(texts) < self.options.native_runs + RERUNS:
            again = self.run_native(program)
            if not again.ok:
                break
            texts.append(again.out)
            natives.append(again)
            wrong = framework_compare.difference(texts, weir.out)
        if wrong:
            return "FAIL", wrong
        equal, lines = framework_compare.deterministic(texts)
        return "ok", f"{equal} of {lines} results bit-equal" + ("" if equal == lines else ", the rest in native's spread")

    def one(self, program):
        """(outcome, text, seconds natively, seconds through Weir)."""
        why = self.obstacle(program)
        if why:
            return "skipped", why, None, None
        try:
            natives = self.native_runs(program)
            if not natives:
                return "skipped", "no native result is stored", None, None
            native_s = natives[-1].seconds
            if natives[-1].code == SKIPPED:
                return "skipped", natives[-1].why, native_s, None
            if not natives[-1].ok:
                return "skipped", f"fails natively too: {natives[-1].why}", native_s, None
            if self.options.native_only:
                equal, lines = framework_compare.deterministic([r.out for r in natives])
                return "ok", f"natively; {equal} of {lines} results deterministic", native_s, None
            weir = self.run_weir(program)
            outcome, text = self.judge(program, natives, weir)
        except TimeoutError as late:
            return "skipped", str(late), None, None
        if outcome == "FAIL":
            self.keep(program, self.kind.replace(" ", "-"), weir)
        return outcome, text, native_s, weir.seconds

    def keep(self, program, arrangement, run):
        tail = "\n".join(run.err.splitlines()[-200:])
        for kind, text in (("err", tail), ("out", run.out)):
            with open(os.path.join(self.out, f"{program.name}.{arrangement}.{kind}"), "w") as f:
                f.write(text)
        host = "\n".join(self.host.process.errors[-8:]) if self.host and arrangement != "native" else ""
        with self.lock:
            self.details.append((f"{program.name}, {arrangement}: {run.why}",
                                 "\n".join(run.err.splitlines()[-TAIL_LINES:]) + (f"\n--- host\n{host}" if host else "")))

    def note(self, program, row):
        outcome, text, native_s, weir_s = row
        times = ", ".join(f"{name} {s:.1f} s" for name, s in (("native", native_s), ("Weir", weir_s)) if s is not None)
        with self.lock:
            self.rows[program.name] = row
            print(f"  {program.name:20} {outcome}: {text}" + (f" ({times})" if times else ""), flush=True)

    def attempt(self, program):
        try:
            row = self.one(program)
        except Exception as error:  # the runner's own trouble with one program
            row = "FAIL", f"{type(error).__name__}: {error}".splitlines()[0], None, None
        self.note(program, row)

    # ---------------------------------------------------------------- all of them

    def run(self):
        try:
            if not self.options.native_only:
                self.running_host()
            together = [p for p in self.programs if not p.alone]
            with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as pool:
                list(pool.map(self.attempt, together))
            if self.options.jobs > 1 and not self.options.native_only:
                self.alone_again([p for p in together if self.rows[p.name][0] == "FAIL"])
            for program in self.programs:
                if program.alone:
                    self.attempt(program)
        finally:
            self.finish()
        counts = {o: sum(r[0] == o for r in self.rows.values()) for o in ("ok", "FAIL", "skipped")}
        return (f"{counts['ok']} ok, {counts['FAIL']} failed, {counts['skipped']} skipped over "
                f"{'native' if self.options.native_only else self.kind}", counts["FAIL"] == 0)

    def alone_again(self, failed):
        """What failed with others beside it stays failed, but is told apart when it passes alone."""
        for program in failed:
            natives = self.natives.get(program.name)
            hung = "still running" in self.rows[program.name][1]  # once more would take as long again
            if not natives or hung or self.suite.left_s() < 10:
                continue
            try:
                weir = self.run_weir(program)
                outcome, text = self.judge(program, natives, weir)
            except TimeoutError:
                return
            before = self.rows[program.name]
            said = "alone it is ok" if outcome == "ok" else "alone too" if text == before[1] else f"alone: {text}"
            self.note(program, ("FAIL", f"{before[1]}; {said}", before[2], weir.seconds))

    def finish(self):
        if self.host:
            self.host.discard()
        if not self.options.cache:
            shutil.rmtree(self.cache, ignore_errors=True)
        if not self.options.weir_only:
            known = {}
            if os.path.exists(self.native_path):  # of an earlier run of other programs
                with open(self.native_path) as f:
                    known = json.load(f)
            known.update({n: [[r.code, r.out, r.err[-2000:], round(r.seconds, 2)] for r in runs]
                          for n, runs in self.natives.items()})
            self.suite.write("native.json", json.dumps(known))
        show = [[name, outcome, *("" if s is None else f"{s:.1f}" for s in (native, weir)), text]
                for name, (outcome, text, native, weir) in self.rows.items()]
        heads = ["program", "outcome", "native s", "Weir s", ""]
        self.suite.write("frameworks.tsv", "\n".join("\t".join(row) for row in [heads, *show]) + "\n")
        self.suite.page(f"Unmodified frameworks, native and through Weir ({self.kind})",
                        self.suite.table_of(heads, show) + "\n\n" + "\n".join(
                            f"### {title}\n\n```\n{text}\n```\n" for title, text in self.details))
