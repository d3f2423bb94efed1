"""Harness of the end-to-end tests: hosts, guests, network namespaces, and what must be left behind.

A test file defines unittest cases and ends with lib.main(). Everything that a case starts is stopped
by its cleanups, in reverse order; a case that is stuck is interrupted by an alarm and then cleaned up
too. Nothing waits for a fixed time: until() polls a condition up to a limit. Limits are in seconds of a
machine that has a processor for everybody: with four programs to a processor, lived_s() tells a second
after four.

Whatever of Weir is installed or runs on the machine makes no difference: hosts have run directories, caches and
a user of workers of their own, and root's tests do not see /run/weir, /etc/weir nor other CDI files (namespaces.py).

The same files run from a build tree (ctest) and from a bundle (tests/gpu/run). Environment:

    WEIR_E2E_BUILD    the build tree
    WEIR_E2E_BUNDLE   or the folder that ci/bundle made
    WEIR_E2E_DRIVER   what hosts are started with (default softgpu)
    WEIR_E2E_WORKER_USER  the user of hosts' workers, where a case names none (default: the tests' own); only as root
    WEIR_E2E_LIMIT_S  seconds for one case (default 50)
    WEIR_E2E_KEEP     keep the temporary folders
    WEIR_E2E_SEED     of the schedules that kernels with twins are put through (default 1)
"""
import atexit
import functools
import json
import os
import random
import re
import resource
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from namespaces import Namespaces, hide_other_hosts
from processes import (Process, children_of, cpu_seconds, die_with_parent, fds_of, looking_into, main_thread_stands,
                       memfd_maps_of, pid_is_alive, threads_of, threads_since)
from waiting import Stuck, ended_ns, lived_s, monotonic_ns, until

DRIVER = os.environ.get("WEIR_E2E_DRIVER", "softgpu")
FORMS_SEED = int(os.environ.get("WEIR_E2E_SEED", "1"))
CASE_LIMIT_S = float(os.environ.get("WEIR_E2E_LIMIT_S", "50"))
SKIPPED = 77
# By name, because Weir's own default is weir-worker where an installation has made that user.
WORKER_USER = os.environ.get("WEIR_E2E_WORKER_USER", "root") if os.geteuid() == 0 else ""

CUDA_SUCCESS = 0
CUDA_ERROR_INVALID_VALUE = 1
CUDA_ERROR_OUT_OF_MEMORY = 2
CUDA_ERROR_NO_DEVICE = 100


class Places:
    """Where the binaries under test lie."""

    def __init__(self):
        build = os.environ.get("WEIR_E2E_BUILD")
        bundle = os.environ.get("WEIR_E2E_BUNDLE")
        self.source = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        if bundle:
            bundle = os.path.abspath(bundle)
            self.build = None
            self.weir = os.path.join(bundle, "weir")
            self.guest_lib = os.path.join(bundle, "guest")
            self.softgpu = os.path.join(bundle, "libweir-softgpu.so")
            self.cuda = os.path.join(bundle, "cuda")
            self.programs = os.path.join(bundle, "e2e")
            self.bench = os.path.join(bundle, "bench")
            # e2e_hostile speaks zmq itself and has no library folder of its own.
            os.environ.setdefault("WEIR_LIBZMQ", os.path.join(bundle, "lib", "libzmq.so.5"))
        elif build:
            build = os.path.abspath(build)
            self.build = build
            self.weir = os.path.join(build, "tools/weir")
            self.guest_lib = os.path.join(build, "guest_lib/lib")
            self.softgpu = os.path.join(build, "softgpu/libweir-softgpu.so")
            self.cuda = os.path.join(build, "tests/cuda")
            self.programs = os.path.join(build, "tests/e2e")
            self.bench = os.path.join(build, "tests/bench")
        else:
            raise SystemExit("set WEIR_E2E_BUILD or WEIR_E2E_BUNDLE (see tests/e2e/lib.py)")
        for path in (self.weir, os.path.join(self.guest_lib, "libcuda.so.1"), self.softgpu):
            if not os.path.exists(path):
                raise SystemExit(f"not built: {path}")

    def program(self, name):
        for folder in (self.programs, self.cuda, self.bench, os.path.join(self.bench, "forms")):
            path = os.path.join(folder, name)
            if os.access(path, os.X_OK) and os.path.isfile(path):
                return path
        raise unittest.SkipTest(f"program {name} is not built")

    def everybody_gets_there(self):
        """May users other than ours, as whom workers run, load softgpu? Not in a clone below root's home."""
        folder = os.path.dirname(self.softgpu)
        while folder != "/" and os.stat(folder).st_mode & 0o1:
            folder = os.path.dirname(folder)
        return folder == "/"

    def cuda_programs(self, prefix="drv_"):
        if not os.path.isdir(self.cuda):
            return []
        return sorted(n for n in os.listdir(self.cuda)
                      if n.startswith(prefix) and os.path.isfile(os.path.join(self.cuda, n))
                      and os.access(os.path.join(self.cuda, n), os.X_OK))


places = Places()


class Remote:
    """What tcp needs: an address, the server's key pair and one for each tenant."""

    def __init__(self, folder, tenants, namespaces=None):
        self.folder = folder
        self.namespaces = namespaces
        address = namespaces.host_address if namespaces else "127.0.0.1"
        self.url = f"tcp://{address}:{free_port()}"
        self.listen = self.url[len("tcp://"):]
        for name in ("server", *tenants):
            keygen(os.path.join(folder, name))
        self.server_secret = os.path.join(folder, "server.secret")
        self.server_public = os.path.join(folder, "server.public")

    def public(self, tenant):
        with open(os.path.join(self.folder, tenant + ".public")) as f:
            return f.read().strip()

    def secret_path(self, tenant):
        return os.path.join(self.folder, tenant + ".secret")


def keygen(path):
    subprocess.run([places.weir, "keygen", path], check=True, capture_output=True, timeout=180)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Host:
    """`weir serve` in a temporary run directory; start() returns when it says that it is ready."""

    def __init__(self, tenants=("alice", "bob"), remote=None, driver=None, host_lines=(), args=(),
                 run_dir=None, log="info", env=None, descriptors=None, prefix=(), isolation=None, worker_user=WORKER_USER):
        self.folder = make_folder("weir-e2e-")
        self.run_dir = run_dir or os.path.join(self.folder, "run")
        self.config = os.path.join(self.folder, "weir.toml")
        self.driver = driver or DRIVER
        self.remote = remote
        self.args = list(args)
        self.env = dict(env or {})
        self.log = log
        self.descriptors = descriptors  # that each of its processes may have; None: as this one
        self.prefix = list(prefix)  # what the command line begins with
        self.process = None
        self.host_lines = list(host_lines)
        self.isolation = isolation
        self.program = places.weir
        self.worker_user = worker_user  # where host_lines name none; "": Weir's default
        self.write_config(tenants)

    def write_config(self, tenants):
        """tenants: names, or {name: {key: value}} with values as TOML has them; None: not that key.

        Those of isolation "group" that name no group are in one.
        """
        if not isinstance(tenants, dict):
            tenants = {name: {} for name in tenants}
        if self.isolation and not (self.isolation == "group" and self.remote):  # none of a group comes by TCP
            tenants = {name: {"isolation": self.isolation, **settings} for name, settings in tenants.items()}
        tenants = {name: {"group": "together", **settings} if settings.get("isolation") == "group" else settings
                   for name, settings in tenants.items()}
        self.tenants = tenants
        lines = ["[host]", *self.host_lines]
        if not any(line.startswith("linger_s") for line in self.host_lines):
            lines.insert(1, "linger_s = 0")  # a host that ends takes its workers along, whatever has ended it
        if self.worker_user and not any(line.startswith("worker_user") for line in self.host_lines):
            lines.insert(1, f'worker_user = "{self.worker_user}"')
        if self.driver != "softgpu" and not any(line.startswith("exclusive") for line in self.host_lines):
            lines.insert(1, "exclusive = false")  # many tests have two hosts, or start one while another ends
        if self.remote:
            lines += [f'listen_tcp = "{self.remote.listen}"',
                      f'server_key = "{self.remote.server_secret}"']
        for name, settings in tenants.items():
            lines += ["", "[[tenant]]", f'name = "{name}"']
            if self.remote:
                lines.append(f'key = "{self.remote.public(name)}"')
            lines += [f"{key} = {json.dumps(value)}" for key, value in settings.items() if value is not None]
        with open(self.config, "w") as f:
            f.write("\n".join(lines) + "\n")

    def start(self, limit_s=20):
        notify_path = os.path.join(self.folder, "notify")
        if os.path.exists(notify_path):
            os.unlink(notify_path)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.bind(notify_path)
            notify.settimeout(0.05)
            argv = [self.program, "serve", "--config", self.config, "--run-dir", self.run_dir,
                    "--driver", self.driver, "--log", self.log, *self.args]
            if self.remote and self.remote.namespaces:
                argv = ["ip", "netns", "exec", self.remote.namespaces.host, *argv]
            if self.descriptors:
                argv = ["prlimit", f"--nofile={self.descriptors}", *argv]
            argv = [*self.prefix, *argv]
            env = dict(clean_environment(), XDG_CACHE_HOME=cache_home(), **self.env, NOTIFY_SOCKET=notify_path)
            self.process = Process(argv, env=env, name="weir serve")

            def ready():
                if not self.process.alive():
                    raise Stuck(f"the host ended ({self.process.wait()})\n{self.process.tail()}")
                try:
                    return b"READY=1" in notify.recv(4096)
                except TimeoutError:
                    return False

            try:
                until(ready, limit_s, "the host is ready")
            except Stuck as error:
                raise Stuck(f"{error}\n{self.process.tail()}") from None
        return self

    @property
    def pid(self):
        return self.process.pid

    def socket(self, tenant):
        return os.path.join(self.run_dir, f"{tenant}.sock")

    def weir(self, *args, **kwargs):
        return run_weir(*args, **kwargs)

    def status(self):
        """Rows of `weir status --json` by kind."""
        result = run_weir("status", "--run-dir", self.run_dir, "--json")
        if result.returncode != 0:
            raise Stuck(f"weir status: {result.stderr}{self.process.tail()}")
        rows = {"host": [], "worker": [], "tenant": [], "session": []}
        for line in result.stdout.splitlines():
            row = json.loads(line)
            rows.setdefault(row.pop("row"), []).append(row)
        return rows

    def worker(self):
        """The first that is there for somebody; else a spare or one that is kept."""
        rows = self.status()["worker"]
        ranks = {"": 0, "busy": 0, "spare": 1, "kept": 1}  # one that starts or stops: only where there is no other
        return min(rows, key=lambda w: ranks.get(w["state"], 2))

    def worker_pid(self):
        return until(lambda: self.worker()["pid"], 10, "a worker lives")

    def tenant(self, name):
        return next(t for t in self.status()["tenant"] if t["name"] == name)

    def leftovers(self, sessions=0):
        """What is held although only this many sessions should live; "" when all is well."""
        status = self.status()
        found = []
        if len(status["session"]) != sessions:
            found.append(f"sessions: {status['session']}")
        if sessions == 0:
            found += [f"worker {key}: {w[key]}" for w in status["worker"]
                      for key in ("objects", "chunks", "chunk_bytes") if w[key]]
            found += [f"tenant {t['name']} {key}: {t[key]}" for t in status["tenant"]
                      for key in ("sessions", "used_bytes", "pinned_bytes") if t[key]]
            found += [f"kept_fds: {h['kept_fds']}" for h in status["host"] if h["kept_fds"]]
        return "; ".join(found)

    def wait_idle(self, limit_s=10):
        """Until no session lives; then nothing may be held."""
        last = [""]

        def idle():
            last[0] = self.leftovers()
            return not last[0]

        try:
            until(idle, limit_s, "the host is idle", pause_s=0.05)
        except Stuck:
            raise Stuck(f"still held {limit_s:g} s after the last guest: {last[0]}\n"
                        f"{self.process.tail()}") from None

    def footprint(self):
        """Descriptors and shared mappings of supervisor and worker, to compare before and after."""
        worker = self.worker_pid()
        fds = fds_of(worker).values()
        if self.driver != "softgpu":  # NVIDIA's driver opens and keeps what it likes
            fds = [fd for fd in fds if "memfd:" in fd or "socket:" in fd]
        return {"supervisor fds": len(fds_of(self.supervisor_pid())), "worker fds": len(fds),
                "worker memfd maps": memfd_maps_of(worker)}

    def resting_footprint(self):
        """Once it changes no more: what was a guest's is closed a moment after its session is gone."""
        looks = [None]

        def rests():
            looks.append(self.footprint())
            return looks[-1] == looks[-2]

        until(rests, 10, "descriptors and mappings stay as they are", 0.3)
        return looks[-1]

    def keeper_pid(self):
        """Of the process that holds the others of this host; None: it has ended."""
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{entry}/cmdline") as f:
                    if f.read().split("\0")[1:3] == ["keep", self.run_dir]:
                        return int(entry)
            except OSError:
                pass
        return None

    def processes(self):
        """The keeper and all that it has started, also before the supervisor that runs now."""
        keeper = self.keeper_pid()
        return [keeper, *children_of(keeper)] if keeper else []

    def supervisor_pid(self):
        return self.status()["host"][0]["pid"]

    def stop(self, number=signal.SIGTERM, limit_s=12):
        """Orderly; gives the exit status and checks that nothing is left."""
        if not self.process or not self.process.alive():
            return None
        pids = [self.pid, *children_of(self.pid), *self.processes()]
        self.process.signal(number)
        code = self.process.wait(limit_s)
        until(lambda: not any(pid_is_alive(p) for p in pids), 5, "all processes of the host are gone")
        if os.path.isdir(self.run_dir):
            left = [n for n in os.listdir(self.run_dir) if n not in ("containers", "users")]
            for stays in ("containers", "users"):
                for folder, _, files in os.walk(os.path.join(self.run_dir, stays)):
                    left += [os.path.join(folder, name) for name in files]
            assert not left, f"left in the run directory: {left}"
        # What bears this host's name or one of its processes': others run at the same time, and
        # the letters of another's name may hold digits.
        ours = re.compile("|".join([re.escape(os.path.basename(self.folder)),
                                    f"^{re.escape(os.path.basename(self.vm_memory))}$",
                                    *(rf"\b{pid}\b" for pid in pids)]))
        shm = [n for n in os.listdir("/dev/shm") if "weir" in n and ours.search(n)]
        assert not shm, f"left in /dev/shm: {shm}"
        return code

    def discard(self):
        if self.process:
            pids = self.processes()
            self.process.kill()
            if pids and any(line.startswith("linger_s") for line in self.host_lines):
                os.kill(pids[0], signal.SIGKILL)  # else it ends with its supervisor
            for pid in pids:
                until(lambda p=pid: not pid_is_alive(p), 5, "the worker ends with its supervisor")
        if not os.environ.get("WEIR_E2E_KEEP"):
            shutil.rmtree(self.folder, ignore_errors=True)
            shutil.rmtree(self.vm_memory, ignore_errors=True)

    @property
    def vm_memory(self):
        """The folder of the files that machines have as NVDIMMs: one for each run directory."""
        if self.run_dir == "/run/weir":
            return "/dev/shm/weir"
        return "/dev/shm/weir" + re.sub("[-_]", r"_\g<0>", self.run_dir).replace("/", "-")


@functools.cache
def cache_home():
    """What hosts keep from one to the next: in this test's processes, not in later runs."""
    folder = make_folder("weir-cache-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def make_folder(prefix):
    """A temporary folder through which workers get to what is theirs, whoever they run as."""
    folder = tempfile.mkdtemp(prefix=prefix)
    os.chmod(folder, 0o711)
    return folder


def clean_environment():
    env = {k: v for k, v in os.environ.items()
           if not k.startswith(("WEIR_", "CUDA_", "LD_LIBRARY_PATH", "NOTIFY_"))}
    if "WEIR_LIBZMQ" in os.environ:
        env["WEIR_LIBZMQ"] = os.environ["WEIR_LIBZMQ"]
    return env


def run_weir(*args, env=None, limit_s=180, input=None):
    return subprocess.run([places.weir, *args], env=env or clean_environment(), timeout=limit_s,
                          capture_output=True, text=True, input=input)


_gpus = None


def gpus():
    """How many GPUs the NVIDIA driver shows; asked in a process of its own."""
    global _gpus
    if _gpus is None:
        ask = ("import ctypes as c; n = c.c_int(); d = c.CDLL('libcuda.so.1'); d.cuInit(0); "
               "d.cuDeviceGetCount(c.byref(n)); print(n.value)")
        answer = subprocess.run([sys.executable, "-c", ask], env=clean_environment(), text=True,
                                capture_output=True, timeout=180)
        _gpus = int(answer.stdout) if answer.returncode == 0 else 0
    return _gpus


def forms_lines(folder, mode="explore", **settings):
    """Lines of weir.toml that give kernels twins; by default with a schedule at random, by seed."""
    settings = {"mode": mode, "twins": "all", "seed": FORMS_SEED,
                "cache_dir": os.path.join(folder, "cache"), **settings}
    return ["", "[forms]", *(f"{key} = {json.dumps(value)}" for key, value in settings.items())]


# How a program meets a driver.
SOFTGPU, NATIVE = "softgpu", "native"
SHM, ZMQ, TCP = "shm", "zmq ipc", "zmq tcp"


def guest_argv(host, arrangement, tenant, program, args):
    """argv and environment of a program in an arrangement."""
    env = clean_environment()
    argv = [program, *args]
    if arrangement == NATIVE:
        return argv, env
    if arrangement == SOFTGPU:
        env["LD_LIBRARY_PATH"] = softgpu_folder()
        return argv, env
    command = [places.weir, "run"]
    if arrangement == TCP:
        remote = host.remote
        command += ["--host", remote.url, "--key", remote.secret_path(tenant),
                    "--server-key", remote.server_public]
        if remote.namespaces:
            command = ["ip", "netns", "exec", remote.namespaces.guest, *command]
    else:
        command += ["--run-dir", host.run_dir, "--tenant", tenant]
        command += ["--transport", "zmq" if arrangement == ZMQ else "shm"]
    return [*command, "--", *argv], env


def arrangements(host, kinds, tenant="alice"):
    """{kind: command prefix as cuda_table.py takes it}."""
    prefixes = {}
    for kind in kinds:
        argv, env = guest_argv(host, kind, tenant, "", [])
        words = [f"{k}={v}" for k, v in env.items() if os.environ.get(k) != v]
        prefixes[kind] = " ".join(shlex.quote(w) for w in [*words, *argv[:-1]])
    return prefixes


def table_argv(folder, prefixes, only=("*",), faulting=False, out=None, jobs=1, limit_s=240):
    """The command that runs cuda_table.py; `out` is a path without extension for the results."""
    argv = [sys.executable, "-B", os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                               "cuda_table.py"), folder]
    for name, prefix in prefixes.items():
        argv += ["--arrangement", f"{name}={prefix}"]
    for pattern in only:
        argv += ["--only", pattern]
    argv += ["--faulting"] if faulting else []
    argv += ["--jobs", str(jobs), "--timeout", str(limit_s)]
    if out:
        os.makedirs(os.path.dirname(out), exist_ok=True)
        argv += ["--tsv", out + ".tsv", "--markdown", out + ".md", "--outputs", out + ".out"]
    return argv


_softgpu_folder = None


def softgpu_folder():
    """A folder in which softgpu is libcuda.so.1."""
    global _softgpu_folder
    if not _softgpu_folder:
        _softgpu_folder = make_folder("weir-e2e-softgpu-")
        os.symlink(places.softgpu, os.path.join(_softgpu_folder, "libcuda.so.1"))
        beside = os.path.join(os.path.dirname(places.softgpu), "lib")
        if os.path.isdir(beside):  # a bundle's other libraries: $ORIGIN is the link's folder
            os.symlink(beside, os.path.join(_softgpu_folder, "lib"))
        import atexit
        atexit.register(shutil.rmtree, _softgpu_folder, True)
    return _softgpu_folder


def start_guest(host, program, *args, tenant="alice", arrangement=SHM, env=None):
    """A guest that runs beside the test."""
    path = program if os.path.isabs(program) else places.program(program)
    argv, full_env = guest_argv(host, arrangement, tenant, path, [str(a) for a in args])
    full_env.setdefault("WEIR_LOG", "error")
    full_env.update(env or {})
    return Process(argv, env=full_env, name=os.path.basename(path))


def worker_ends(host, tenant):
    """How often the host's log says that a worker of the tenant, or a shared one, is gone."""
    return len(re.findall(rf"supervisor: worker (?:died|of a program (?:died|ended) .*tenant={tenant}\b)", host.process.err))


class Case(unittest.TestCase):
    """A test case with an alarm, and things that clean themselves up."""

    maxDiff = None

    def setUp(self):
        self.hosts = []

        self.limit(CASE_LIMIT_S)
        self.addCleanup(signal.setitimer, signal.ITIMER_REAL, 0)

    def limit(self, limit_s):
        """From now on; in place of the limit before."""
        end = lived_s() + limit_s

        def look(_number, _frame):
            if lived_s() >= end:
                signal.setitimer(signal.ITIMER_REAL, 0)
                raise Stuck(f"the case ran for more than {limit_s:g} s")

        signal.signal(signal.SIGALRM, look)
        signal.setitimer(signal.ITIMER_REAL, 1, 1)

    def folder(self):
        path = make_folder("weir-e2e-")
        self.addCleanup(shutil.rmtree, path, True)
        return path

    isolation = None  # of tenants that name none, in all hosts of the class; None: Weir's default

    def host(self, *args, start=True, **kwargs):
        host = Host(*args, isolation=self.isolation, **kwargs)
        self.addCleanup(host.discard)
        self.hosts.append(host)
        return host.start() if start else host

    def remote(self, tenants=("alice", "bob"), namespaces=False):
        spaces = None
        if namespaces:
            spaces = Namespaces()
            self.addCleanup(spaces.close)
        return Remote(self.folder(), tenants, spaces)

    def guest(self, host, program, *args, **kwargs):
        guest = start_guest(host, program, *args, **kwargs)
        self.addCleanup(guest.kill)
        return guest

    def finished(self, host, program, *args, limit_s=30, expect=0, **kwargs):
        """Run a guest to its end and expect an exit status."""
        guest = self.guest(host, program, *args, **kwargs)
        self.ends(host, guest, expect, limit_s, " ".join(map(str, args)))
        return guest

    def ends(self, host, guest, expect=0, limit_s=30, said=""):
        """A guest comes to its end with this exit status."""
        code = guest.wait(limit_s)
        host_tail = "\n".join(host.process.errors[-15:]) if host and host.process else ""
        self.assertEqual(code, expect, f"{guest.name} {said}\n{guest.tail()}\n--- host\n{host_tail}")

    def faulted(self, host, kind="address", program="e2e_fault", tenant="alice", **kwargs):
        """A program whose kernel faults, to its end: it asks once more when its worker is gone."""
        before = worker_ends(host, tenant)
        guest = self.guest(host, program, kind, tenant=tenant, **kwargs)
        guest.wait_line("^ready$")
        try:
            until(lambda: worker_ends(host, tenant) > before, 10, "the host's log says that the worker is gone")
        except Stuck as error:
            raise Stuck(f"{error}\n{host.process.tail()}") from None
        guest.close_stdin()
        self.ends(host, guest, said=kind)
        return guest

    def steady(self, host, tenant="bob", arrangement=SHM):
        """A second tenant at work; steady_undisturbed() says whether it noticed anything."""
        guest = self.guest(host, "e2e_steady", tenant=tenant, arrangement=arrangement)
        guest.wait_line(r"^round 0$")
        return guest

    def busy(self, host, tenant, seconds=600):
        """A guest that launches kernels without end, on a host that schedules."""
        if not host.tenant(tenant)["scheduled"]:
            self.skipTest("nothing is scheduled here")
        guest = self.guest(host, "sched_load", "loop", "--blocks", "16", "--rounds", "300", "--us",
                           "1000", "--seconds", seconds, "--depth", "4", tenant=tenant)
        guest.wait_line("^ready$")
        return guest

    def rounds(self, steady):
        for line in reversed(list(steady.lines)):
            match = re.match(r"round (\d+)$", line)
            if match:
                return int(match[1])
        return -1

    def steady_goes_on(self, steady, limit_s=10):
        """It completes another round from now on."""
        now = self.rounds(steady)

        def more():
            if not steady.alive():
                raise Stuck(f"the other tenant's program ended\n{steady.tail()}")
            return self.rounds(steady) > now + 1

        try:
            until(more, limit_s, "the other tenant gets on")
        except Stuck as error:
            raise Stuck(f"{error}\n{steady.tail()}") from None

    def steady_undisturbed(self, steady, limit_s=20):
        """It gets on, and ends well with every result right."""
        self.steady_goes_on(steady)
        steady.close_stdin()
        self.assertEqual(steady.wait(limit_s), 0, steady.tail())
        self.assertRegex(steady.lines[-1], r"^PASS e2e_steady")


class Result(unittest.TextTestResult):
    """Text, with the time of each case; and the outcomes for whoever runs the file."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.outcomes = {}  # name: [outcome, seconds, why]
        self._start = time.monotonic()

    def note(self, test, outcome, why=""):
        case = getattr(test, "test_case", test)
        name = getattr(case, "_testMethodName", str(case))  # setUpClass has no case
        if self.outcomes.get(name, [""])[0] != "failed":  # a subtest's failure is the case's
            self.outcomes[name] = [outcome, round(time.monotonic() - self._start, 2), str(why)]

    def startTest(self, test):
        self._start = time.monotonic()
        super().startTest(test)

    def addSuccess(self, test):
        self.note(test, "ok")
        unittest.TestResult.addSuccess(self, test)
        self.stream.writeln(f"ok ({time.monotonic() - self._start:.1f} s)")

    def addFailure(self, test, err):
        self.note(test, "failed", err[1])
        super().addFailure(test, err)
        self.tell_of_hosts(test)

    def addError(self, test, err):
        self.note(test, "failed", err[1])
        super().addError(test, err)
        self.tell_of_hosts(test)

    def tell_of_hosts(self, test):
        """What they last said; and where they are, with WEIR_E2E_STACKS naming a program like eu-stack."""
        for host in getattr(test, "hosts", []):
            if not host.process:
                continue
            self.stream.writeln("--- host\n" + "\n".join(list(host.process.errors)[-60:]))
            tool = os.environ.get("WEIR_E2E_STACKS")
            if tool and host.process.alive():
                for pid in (host.pid, *children_of(host.pid)):
                    done = subprocess.run([tool, "-p", str(pid)], capture_output=True, text=True, timeout=180)
                    self.stream.writeln(f"--- stacks of {pid}\n{done.stdout}{done.stderr}")

    def addSubTest(self, test, subtest, err):
        if err:
            self.note(subtest, "failed", err[1])
        super().addSubTest(test, subtest, err)

    def addSkip(self, test, reason):
        self.note(test, "skipped", reason)
        super().addSkip(test, reason)


def main():
    """Run the cases of the calling file; 77 when all of them were skipped."""
    if os.environ.get("WEIR_E2E_WORKER_USER") and not (WORKER_USER and places.everybody_gets_there()):
        print("only root can have workers of another user, and that user must get to the build tree")
        sys.exit(SKIPPED)
    for name in os.environ.keys() - clean_environment().keys():
        if not name.startswith("WEIR_E2E_"):
            del os.environ[name]  # what somebody has set for programs or hosts of theirs
    hide_other_hosts()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    random.seed(int(os.environ.get("WEIR_E2E_SEED", "1")))
    runner = unittest.TextTestRunner(sys.stdout, verbosity=2, resultclass=Result)
    program = unittest.main(exit=False, testRunner=runner)
    result = program.result
    if os.environ.get("WEIR_E2E_RESULTS"):
        with open(os.environ["WEIR_E2E_RESULTS"], "w") as f:
            json.dump(result.outcomes, f)
    if not result.wasSuccessful():
        sys.exit(1)
    some = any(outcome == "ok" for outcome, *_ in result.outcomes.values())
    sys.exit(SKIPPED if result.skipped and not some else 0)
