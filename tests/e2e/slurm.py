"""A Slurm cluster of one node for the end-to-end tests: munged, slurmctld and slurmd in a temporary folder."""
import os
import shutil
import signal
import socket
import stat
import subprocess
import tempfile

import lib
from containers import need, need_program

NODE = "weirnode"
CPUS = 8


class Cluster:
    """One node with a GPU that is cut into shards. The plugin's arguments can change between jobs."""

    def __init__(self, shards=100, gpus=1):
        need(lib.places.build, "Slurm is tested from a build tree")
        need(os.geteuid() == 0, "slurmd and munged need root here")
        self.plugin = os.path.join(lib.places.build, "slurm/weir_spank.so")
        need(os.path.exists(self.plugin), "weir_spank.so is not built (libslurm-dev)")
        self.programs = {name: need_program(name) for name in
                         ("munged", "slurmctld", "slurmd", "sbatch", "srun", "salloc", "scancel",
                          "squeue", "scontrol", "sinfo")}
        self.folder = tempfile.mkdtemp(prefix="weir-e2e-slurm-")
        os.chmod(self.folder, 0o755)
        self.jobs = os.path.join(self.folder, "jobs")  # where users' jobs write
        os.mkdir(self.jobs)
        os.chmod(self.jobs, 0o1777)
        self.conf = os.path.join(self.folder, "slurm.conf")
        self.daemons = {}
        try:
            self.install_plugin()
            self.write_conf(shards, gpus)
            self.rules()
            self.start_munged()
            self.start("slurmctld", "-D", "-f", self.conf)
            self.start_slurmd()
        except Exception:
            self.close()
            raise

    def install_plugin(self):
        """As an installation has it: the guest's libraries lie beside it."""
        os.mkdir(os.path.join(self.folder, "weir"))
        shutil.copy(self.plugin, os.path.join(self.folder, "weir"))
        os.symlink(lib.places.guest_lib, os.path.join(self.folder, "weir/guest"))
        self.guest_lib = os.path.join(self.folder, "weir/guest")

    def write_conf(self, shards, gpus):
        f = self.folder
        ports = [lib.free_port(), lib.free_port()]
        for name in ("state", "spool", "run", "dev"):
            os.mkdir(os.path.join(f, name))
        # slurmd looks at the file's type and number, and nobody opens it: no NVIDIA driver is needed.
        for i in range(gpus):
            os.mknod(f"{f}/dev/nvidia{i}", stat.S_IFCHR | 0o600, os.makedev(195, i))
        host = socket.gethostname().split(".")[0]
        lines = f"""ClusterName=weir
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={f}/munge/socket
StateSaveLocation={f}/state
SlurmdSpoolDir={f}/spool
SlurmctldPidFile={f}/run/slurmctld.pid
SlurmdPidFile={f}/run/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=1,bf_interval=1
SlurmdParameters=config_overrides
BatchStartTimeout=1
MessageTimeout=60
SlurmdTimeout=60
KillWait=1
UnkillableStepTimeout=10
MpiDefault=none
ReturnToService=2
GresTypes=gpu,shard
PlugStackConfig={f}/plugstack.conf
NodeName={NODE} NodeHostname={host} NodeAddr=127.0.0.1 CPUs={CPUS} RealMemory=1000 Gres=gpu:{gpus},shard:{shards}
PartitionName=all Nodes={NODE} Default=YES
"""
        with open(self.conf, "w") as out:
            out.write(lines)
        with open(os.path.join(f, "gres.conf"), "w") as out:
            out.write(f"NodeName={NODE} Name=gpu File={f}/dev/nvidia[0-{gpus - 1}] Flags=nvidia_gpu_env\n"
                      f"NodeName={NODE} Name=shard Count={shards}\n")

    def rules(self, *arguments, run_dir="/nonexistent", folder=None):
        """Write plugstack.conf: commands and steps that start from now on read it."""
        path = os.path.join(folder or self.folder, "plugstack.conf")
        with open(path + ".new", "w") as out:
            words = [f"run_dir={run_dir}", *arguments]
            out.write(f"required {self.folder}/weir/weir_spank.so {' '.join(words)}\n")
        os.rename(path + ".new", path)

    # ---------------------------------------------------------------- daemons

    def environment(self):
        return dict(lib.clean_environment(), SLURM_CONF=self.conf)

    def start(self, name, *arguments):
        self.daemons[name] = lib.Process([self.programs[name], *arguments], name=name,
                                         env=self.environment(), cwd=self.folder, new_group=True)

    def start_munged(self):
        where = os.path.join(self.folder, "munge")
        os.mkdir(where)
        os.chmod(where, 0o711)
        with open(os.path.join(where, "key"), "wb") as key:
            os.chmod(key.name, 0o600)
            key.write(os.urandom(128))
        self.start("munged", "-F", f"--key-file={where}/key", f"--socket={where}/socket",
                   f"--pid-file={where}/pid", f"--log-file={where}/log", f"--seed-file={where}/seed")
        self.wait_for("munged", lambda: os.path.exists(f"{where}/socket"), "munged listens")

    def start_slurmd(self):
        """It says to slurmctld which jobs it has."""
        self.start("slurmd", "-D", "-f", self.conf, "-N", NODE)
        self.wait_for("slurmd", lambda: any("slurmd started" in line for line in
                                            self.daemons["slurmd"].errors), "slurmd has started")
        self.wait_for("slurmctld", lambda: self.node_state() in ("idle", "mix", "alloc"),
                      "the node is up")

    def wait_for(self, daemon, condition, what):
        def look():
            if not self.daemons[daemon].alive():
                raise lib.Stuck(f"{daemon} ended\n{self.daemons[daemon].tail()}")
            return condition()

        try:
            lib.until(look, 20, what, pause_s=0.05)
        except lib.Stuck as error:
            raise lib.Stuck(f"{error}\n" + "\n".join(d.tail() for d in self.daemons.values())) from None

    def kill(self, daemon):
        self.daemons[daemon].kill()

    def stepd_pids(self):
        """slurmstepd processes of this cluster."""
        found = []
        for entry in os.listdir("/proc"):
            try:
                if entry.isdigit() and "/slurmstepd" in os.readlink(f"/proc/{entry}/exe"):
                    with open(f"/proc/{entry}/environ", "rb") as f:
                        if self.conf.encode() in f.read():
                            found.append(int(entry))
            except OSError:
                pass
        return found

    def close(self):
        for name in ("slurmctld", "slurmd", "munged"):
            if name in self.daemons:
                self.daemons[name].kill()
        for pid in self.stepd_pids():
            for child in lib.children_of(pid):
                self.end(child)
            self.end(pid)
        if not os.environ.get("WEIR_E2E_KEEP"):
            shutil.rmtree(self.folder, True)

    @staticmethod
    def end(pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    # ---------------------------------------------------------------- commands

    def argv(self, command, *arguments):
        return [self.programs[command], *arguments]

    def run(self, command, *arguments, user=0, env=None, limit_s=180, **kwargs):
        """A command as a user, to its end. On a busy machine Slurm's own patience with a node may end: then again."""
        for _ in range(3):
            done = subprocess.run(self.argv(command, *arguments), user=user, group=user,
                                  extra_groups=[], cwd=self.jobs, capture_output=True, text=True,
                                  env=dict(self.environment(), **(env or {})), timeout=limit_s, **kwargs)
            if "are still not ready" not in (done.stderr or ""):
                break
        return done

    def node_state(self):
        return self.run("sinfo", "-h", "-n", NODE, "-o", "%t").stdout.strip()

    def script(self, text):
        """A script that users can run."""
        with tempfile.NamedTemporaryFile("w", dir=self.jobs, suffix=".sh", delete=False) as f:
            f.write("#!/bin/sh\n" + text)
        os.chmod(f.name, 0o755)
        return f.name

    def submit(self, text, *options, user, env=None):
        """sbatch a script; gives the job."""
        done = self.run("sbatch", "--parsable", "--output", f"{self.jobs}/%j.out", "--export=ALL",
                        *options, self.script(text), user=user, env=env)
        if done.returncode != 0:
            raise lib.Stuck(f"sbatch: {done.stderr}")
        return Job(self, int(done.stdout.split(";")[0]))

    def cancel_all(self):
        ids = self.run("squeue", "-h", "-o", "%A").stdout.split()
        if ids:
            self.run("scancel", *ids)
            lib.until(lambda: not self.run("squeue", "-h").stdout, 20, "no jobs are left", 0.1)


class Job:
    def __init__(self, cluster, number):
        self.cluster = cluster
        self.id = number
        self.tenant = f"slurm-{number}"

    @property
    def out(self):
        try:
            with open(f"{self.cluster.jobs}/{self.id}.out") as f:
                return f.read()
        except FileNotFoundError:
            return ""

    def state(self):
        return self.cluster.run("squeue", "-h", "-t", "all", "-j", str(self.id), "-o", "%T").stdout.strip()

    def record(self):
        return self.cluster.run("scontrol", "show", "job", str(self.id)).stdout

    def says(self, text, limit_s=20):
        try:
            lib.until(lambda: text in self.out, limit_s, f"the job says '{text}'", 0.02)
        except lib.Stuck as error:
            raise lib.Stuck(f"{error}\n{self.state()}\n{self.out}") from None

    def wait(self, limit_s=30):
        """Its state at the end."""
        ended = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "")
        try:
            lib.until(lambda: self.state() in ended, limit_s, "the job ends", 0.1)
        except lib.Stuck as error:
            raise lib.Stuck(f"{error}\n{self.state()}\n{self.out}") from None
        return self.state()
