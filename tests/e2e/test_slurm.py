#!/usr/bin/env python3
"""Slurm: --weir-weight and --weir-mem give a job a tenant of its own, for as long as the job lasts."""
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

import lib
import slurm
from containers import need

MIB = 1 << 20
ONE, OTHER = 65534, 1  # nobody and daemon: users that every machine has
PROGRAMS = ("drv_memory", "drv_modules", "drv_streams_events", "drv_vector_add")


def setUpModule():
    global cluster
    cluster = slurm.Cluster()
    unittest.addModuleCleanup(cluster.close)
    for user in (ONE, OTHER):
        seen = cluster.run("sinfo", "--version", user=user, env={"LD_LIBRARY_PATH": ""})
        need(seen.returncode == 0, f"user {user} cannot run Slurm's commands")
        for path in (lib.places.program("drv_memory"), f"{cluster.guest_lib}/libcuda.so.1"):
            reach = subprocess.run(["test", "-r", path], user=user, group=user, extra_groups=[])
            need(reach.returncode == 0, f"user {user} cannot read {path}")


class Served(lib.Case):
    def serve(self, *rules, tenants=("default",), env=None):
        """A host, and the plugin with these arguments."""
        host = self.host(tenants, env=env)
        os.chmod(host.folder, 0o755)
        cluster.rules(*rules, run_dir=host.run_dir)
        self.addCleanup(self.finish)
        return host

    def finish(self):
        cluster.cancel_all()
        # "plnd" for a moment, where the backfilling scheduler has just planned a job for an idle node.
        lib.until(lambda: cluster.node_state() == "idle", 20, "the node is idle again: it stays in service")

    def tenants(self, host):
        return sorted(t["name"] for t in host.status()["tenant"] if t["name"].startswith("slurm-"))

    def gone(self, host, limit_s=15):
        lib.until(lambda: not self.tenants(host), limit_s, f"no tenant of a job: {self.tenants(host)}",
                  0.05)
        left = [n for n in os.listdir(host.run_dir) if n.startswith("slurm-")]
        self.assertEqual(left, [], "its socket has gone, too")

    def quiet_end(self, host):
        self.gone(host)
        host.wait_idle()


class Slurm(Served):
    # ------------------------------------------------------------ what a job has

    def test_programs_run_unchanged(self):
        host = self.serve("max_weight=1000")
        programs = [lib.places.program(name) for name in PROGRAMS]
        lines = [*programs[:2], *(f"srun --overlap {p}" for p in programs[2:]),
                 "echo path $LD_LIBRARY_PATH", "srun --overlap sh -c 'echo path $LD_LIBRARY_PATH'", "echo proton $TRITON_CUPTI_LIB_PATH",
                 "echo device $CUDA_VISIBLE_DEVICES"]
        job = cluster.submit("#SBATCH --weir-weight=300\n#SBATCH --weir-mem=256M\n" + "\n".join(lines),
                             "--gres=shard:25", user=ONE, env={"LD_LIBRARY_PATH": "/my/own"})
        self.assertEqual(job.wait(), "COMPLETED", job.out)
        for name in PROGRAMS:
            self.assertIn(f"PASS {name}", job.out)
        self.assertEqual(re.findall("path (.*)", job.out), [f"{cluster.guest_lib}:/my/own"] * 2)
        self.assertIn(f"proton {cluster.guest_lib}\n", job.out)
        self.assertIn("device 0\n", job.out)  # Slurm's, which Weir's library reads as NVIDIA's does
        self.quiet_end(host)

    def test_two_jobs_with_shares_of_their_own(self):
        host = self.serve("max_weight=1000", "max_priority=high")
        quota = lib.places.program("e2e_quota")
        ask = (f"{quota} check $WANT\n{quota} fails 300000000\necho ready\n"
               f"sleep 60 & wait")
        jobs = {ONE: cluster.submit(ask, "--weir-weight=300", "--weir-mem=256M", user=ONE,
                                    env={"WANT": str(256 * MIB)}),
                OTHER: cluster.submit(ask, "--weir-weight=50", "--weir-mem=128M",
                                      "--weir-priority=high", user=OTHER,
                                      env={"WANT": str(128 * MIB)})}
        for job in jobs.values():
            job.says("ready\n")
            self.assertIn("PASS e2e_quota", job.out)
            self.assertIn("refused -> 2", job.out)  # CUDA_ERROR_OUT_OF_MEMORY
        rows = {user: host.tenant(job.tenant) for user, job in jobs.items()}
        self.assertEqual([(r["weight"], r["quota_bytes"], r["priority"]) for r in rows.values()],
                         [(300, 256 * MIB, "normal"), (50, 128 * MIB, "high")])
        listed = lib.run_weir("tenant", "list", "--run-dir", host.run_dir).stdout
        self.assertRegex(listed, rf"{jobs[ONE].tenant} +300 normal .* 256 MiB")
        for user, job in jobs.items():
            info = os.stat(host.socket(job.tenant))
            self.assertEqual((info.st_uid, info.st_mode & 0o777), (user, 0o600))
        # A job cannot be another user's tenant, nor any that the host has for others.
        for name in (jobs[OTHER].tenant, "default"):
            spy = cluster.run("srun", "--weir-weight=1", "sh", "-c",
                              f"WEIR_HOST=ipc://{host.socket(name)} {lib.places.program('e2e_minimal')}",
                              user=ONE)
            self.assertNotEqual(spy.returncode, 0)
            self.assertRegex(spy.stdout + spy.stderr, "cu.Init.* gave 100")  # ERROR_NO_DEVICE
        # .. nor ask the host for more.
        for words in (("set", jobs[ONE].tenant, "weight=1000"), ("add", "mine"),
                      ("remove", jobs[OTHER].tenant)):
            denied = subprocess.run([lib.places.weir, "tenant", *words, "--run-dir", host.run_dir],
                                    user=ONE, group=ONE, extra_groups=[], capture_output=True, text=True)
            self.assertEqual(denied.returncode, 1, denied.stdout)
        for job in jobs.values():
            cluster.run("scancel", str(job.id))
        self.quiet_end(host)

    def test_what_a_job_has_used_is_in_its_admincomment(self):
        """After each step; of a job that ends by itself, and only where the administrator wants it."""
        loop = f"{lib.places.program('sched_load')} loop --blocks 16 --rounds 300 --us 1000 --seconds 1"
        used = r"AdminComment=weir: weight=300 memory=268435456 sm_seconds=([0-9.]+) wait_seconds=[0-9.]+ to_device=\d+ from_device=\d+"
        self.serve("max_weight=1000", "account=admincomment")
        job = cluster.submit(f"{loop}\nsrun --overlap {loop}", "--weir-weight=300", "--weir-mem=256M", "--gres=shard:25", user=ONE)
        self.assertEqual(job.wait(), "COMPLETED", job.out)
        self.assertRegex(job.record(), used)
        self.assertGreater(float(re.search(used, job.record())[1]), 0)  # how much depends on who else computes
        self.finish()
        self.serve("max_weight=1000")
        job = cluster.submit(loop, "--weir-weight=300", user=ONE)
        self.assertEqual(job.wait(), "COMPLETED", job.out)
        self.assertNotIn("AdminComment", job.record())

    def test_a_job_without_options_is_left_alone(self):
        host = self.serve()
        done = cluster.run("srun", "--gres=shard:3", "sh", "-c", "echo [$WEIR_HOST$LD_LIBRARY_PATH]",
                           user=ONE)
        self.assertEqual((done.returncode, done.stdout), (0, "[]\n"), done.stderr)
        self.assertEqual(self.tenants(host), [])
        cluster.rules("max_wieght=3")  # not even by rules that are wrong
        self.assertEqual(cluster.run("srun", "true", user=ONE).returncode, 0)

    def test_steps_share_the_jobs_tenant(self):
        host = self.serve("max_weight=1000")
        minimal = lib.places.program("e2e_minimal")
        job = cluster.submit(f"srun --overlap {minimal}\nsrun --overlap --weir-weight=500 {minimal}\n"
                             f"echo refused $?\nsrun --overlap --weir-mem=64M {minimal}; echo refused $?\n"
                             f"srun --overlap --weir-weight=7 {minimal}; echo same $?\n",
                             "--weir-weight=7", user=ONE)
        self.assertEqual(job.wait(), "COMPLETED", job.out)
        self.assertEqual(job.out.count("a step cannot change what the job has"), 2, job.out)
        self.assertEqual(re.findall(r"(?:refused|same) (\d+)", job.out), ["1", "1", "0"])
        self.quiet_end(host)

    def test_salloc_and_its_first_step(self):
        host = self.serve()
        minimal = lib.places.program("e2e_minimal")
        done = cluster.run("salloc", "--weir-weight=9", "--weir-mem=64M", "srun", minimal, user=ONE)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("PASS e2e_minimal", done.stdout)
        done = cluster.run("salloc", "srun", "--weir-mem=64M", minimal, user=ONE)
        self.assertIn("PASS e2e_minimal", done.stdout, done.stderr)
        done = cluster.run("srun", "--weir-mem=900T", minimal, user=ONE)  # no rule forbids it
        self.assertNotEqual(done.returncode, 0, done.stdout)
        self.assertIn("memory=900TiB is more than the GPU has, ", done.stderr)
        self.quiet_end(host)

    # ------------------------------------------------------------ limits

    def test_bad_values_are_refused_before_there_is_a_job(self):
        host = self.serve("max_weight=300", "max_mem=1G")
        before = cluster.run("squeue", "-h", "-t", "all", "-o", "%A").stdout
        for option, complaint in (("--weir-weight=0", "--weir-weight must be a number between 1 and 10000: '0'"),
                                  ("--weir-weight=lots", "--weir-weight must be a number"),
                                  ("--weir-weight=301", "--weir-weight=301 is over this cluster's limit of 300"),
                                  ("--weir-mem=much", "--weir-mem must be a size such as 8G"),
                                  ("--weir-mem=2G", "--weir-mem=2G is over this cluster's limit of 1G"),
                                  ("--weir-priority=high", "--weir-priority=high is over this cluster's limit of normal"),
                                  ("--weir-priority=urgent", "--weir-priority must be low, normal or high")):
            for command in (("srun", option, "true"), ("salloc", option, "true"),
                            ("sbatch", option, "--wrap", "true")):
                with self.subTest(command=command):
                    done = cluster.run(*command, user=ONE)
                    self.assertNotEqual(done.returncode, 0)
                    self.assertIn(f"{command[0]}: error: weir: {complaint}", done.stderr)
        cluster.rules("max_wieght=3", run_dir=host.run_dir)
        done = cluster.run("srun", "--weir-weight=3", "true", user=ONE)
        self.assertIn("weir: plugstack.conf: there is no argument 'max_wieght=3'", done.stderr)
        self.assertEqual(cluster.run("squeue", "-h", "-t", "all", "-o", "%A").stdout, before, "no job was made")
        self.assertEqual(self.tenants(host), [])

    def test_limits_hold_on_the_node(self):
        """A user's own slurm.conf names no limits; the node's does."""
        host = self.serve("max_weight=300", "max_mem=64M")
        own = tempfile.mkdtemp(dir=cluster.folder)
        os.chmod(own, 0o755)
        with open(cluster.conf) as f:
            text = f.read().replace("PlugStackConfig=" + cluster.folder, "PlugStackConfig=" + own)
        with open(os.path.join(own, "slurm.conf"), "w") as f:
            f.write(text)
        shutil.copy(os.path.join(cluster.folder, "gres.conf"), own)
        cluster.rules("max_weight=10000", "max_priority=high", folder=own)
        for option, complaint in (("--weir-weight=9999", "--weir-weight=9999 is over"),
                                  ("--weir-mem=1G", "--weir-mem=1G is over"),
                                  ("--weir-priority=high", "--weir-priority=high is over")):
            job = cluster.submit("echo it ran", option, user=ONE, env={"SLURM_CONF": f"{own}/slurm.conf"})
            self.assertEqual(job.wait(), "FAILED")
            self.assertIn(f"weir: {complaint}", job.out)
            self.assertNotIn("it ran", job.out)
            self.assertEqual(self.tenants(host), [])

    def test_shards_stand_for_memory(self):
        host = self.serve("mem_per_shard=2M")
        quota = lib.places.program("e2e_quota")
        first = cluster.submit(f"{quota} shows {60 * 2 * MIB}\necho ready\nsleep 60 & wait",
                               "--gres=shard:60", user=ONE)
        first.says("ready\n")
        self.assertIn("PASS e2e_quota", first.out)
        self.assertEqual(host.tenant(first.tenant)["quota_bytes"], 120 * MIB)
        second = cluster.submit(f"srun --gres=shard:1 {quota} shows {64 * MIB}", "--gres=shard:40",
                                "--weir-mem=64M", user=OTHER)  # a step has what the job has
        self.assertEqual(second.wait(), "COMPLETED", second.out)
        third = cluster.submit("true", "--gres=shard:60", user=OTHER)
        end = time.monotonic() + 2.5  # Slurm looks each second; the reason that it gives differs by release
        while time.monotonic() < end:
            self.assertEqual(third.state(), "PENDING", "it waits for shards")
        cluster.run("scancel", str(first.id))
        self.assertEqual(third.wait(), "COMPLETED")
        for options, complaint in ((("--gres=shard:10", "--weir-mem=64M"),
                                    "--weir-mem=64M is over the limit of 20M of the job's 10 shards"),
                                   (("--weir-mem=2M",), "the job has none: --gres=shard:N")):
            done = cluster.run("srun", *options, "true", user=ONE, env={"SLURM_SHARDS_ON_NODE": "99"})
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(complaint, done.stderr)
        self.quiet_end(host)

    # ------------------------------------------------------------ however a job ends

    def steady_job(self, *options):
        """A job with a program at work on the GPU that does not end by itself."""
        steady = lib.places.program("e2e_steady")
        job = cluster.submit(f"sleep 1000 | {steady}", "--weir-weight=5", *options, user=ONE)
        job.says("round 0\n")
        return job

    def test_scancel(self):
        host = self.serve()
        job = self.steady_job()
        self.assertEqual(self.tenants(host), [job.tenant])
        cluster.run("scancel", str(job.id))
        self.quiet_end(host)
        job = self.steady_job()
        cluster.run("scancel", "--signal=KILL", "--full", str(job.id))
        self.quiet_end(host)

    def test_slurmstepd_is_killed(self):
        """Slurm sees that when the node next says what runs there, and ends the job."""
        if not os.environ.get("WEIR_E2E_FULL"):
            self.skipTest("Slurm takes ten seconds to miss it: ci/test --full")
        host = self.serve()
        job = self.steady_job("--no-requeue")
        pids = cluster.stepd_pids()
        self.assertEqual(len(pids), 1)
        programs = lib.children_of(pids[0])
        os.kill(pids[0], signal.SIGKILL)

        def ended():
            cluster.run("scontrol", "reconfigure")  # the node registers, as it does now and then
            return job.state() != "RUNNING"

        lib.until(ended, 25, "Slurm misses the job's process", 0.5)
        self.assertEqual(job.wait(), "NODE_FAIL")
        self.quiet_end(host)
        for pid in programs:  # its programs may live on, without the GPU
            cluster.end(pid)

    def test_slurmd_is_killed(self):
        host = self.serve()
        job = self.steady_job()
        cluster.kill("slurmd")
        cluster.start_slurmd()
        self.assertEqual(self.tenants(host), [job.tenant], "it lives on")
        minimal = lib.places.program("e2e_minimal")
        step = cluster.run("srun", "--overlap", f"--jobid={job.id}", "--weir-weight=5", minimal, user=ONE)
        self.assertIn("PASS e2e_minimal", step.stdout, step.stderr)
        cluster.kill("slurmd")
        cluster.run("scancel", str(job.id))
        for pid in cluster.stepd_pids():  # the job's end, unseen
            for child in lib.children_of(pid):
                cluster.end(child)
            cluster.end(pid)
        self.assertEqual(self.tenants(host), [job.tenant])
        cluster.start_slurmd()
        self.quiet_end(host)

    def test_the_host_is_restarted(self):
        host = self.serve()
        minimal = lib.places.program("e2e_minimal")
        job = cluster.submit(f"{minimal}\necho first $?\nread go < {cluster.jobs}/go\n"
                             f"srun --overlap {minimal}\necho second $?\n{minimal}\necho third $?\n",
                             "--weir-weight=5", user=ONE)
        os.mkfifo(f"{cluster.jobs}/go", 0o644)
        self.addCleanup(os.unlink, f"{cluster.jobs}/go")
        job.says("first 0")
        self.assertEqual(host.stop(), 0)
        host.start()
        self.assertEqual(self.tenants(host), [])
        with open(f"{cluster.jobs}/go", "w") as go:
            go.write("go\n")
        self.assertEqual(job.wait(), "COMPLETED", job.out)
        self.assertIn("second 0", job.out)  # a step makes the job's tenant again
        self.assertIn("third 0", job.out)   # .. which the batch script then has, too
        self.quiet_end(host)

    def test_no_host(self):
        host = self.serve()
        self.assertEqual(host.stop(), 0)
        done = cluster.run("srun", "--weir-weight=5", "echo", "it ran", user=ONE)
        self.assertNotEqual(done.returncode, 0)
        self.assertNotIn("it ran", done.stdout)
        self.assertIn("the host of this node's GPU does not answer", done.stderr)
        self.assertEqual(cluster.run("srun", "true", user=ONE).returncode, 0)


class Gpus(Served):
    """A node with two GPUs."""

    @classmethod
    def setUpClass(cls):
        global cluster
        one, cluster = cluster, slurm.Cluster(gpus=2)

        def back():
            global cluster
            cluster.close()
            cluster = one

        cls.addClassCleanup(back)

    def test_a_job_has_the_gpus_that_slurm_chose(self):
        host = self.serve("max_weight=1000", env={"WEIR_SOFTGPU_DEVICES": "2"})
        devices = f"{lib.places.program('e2e_devices')} list"
        listed = self.finished(host, "e2e_devices", "list", tenant="default").out
        uuids = re.findall(r"(?m)^device \S+ (\S+)", listed)
        self.assertEqual(len(set(uuids)), 2)
        # Whatever the job's environment says, also to its own steps: the tenant has that device alone.
        lie = {"SLURM_JOB_GPUS": "0,1", "SLURM_STEP_GPUS": "0,1", "CUDA_VISIBLE_DEVICES": "0,1"}
        text = (f"{devices}; env CUDA_VISIBLE_DEVICES=0,1 {devices}; env -u CUDA_VISIBLE_DEVICES {devices}\n"
                f"SLURM_JOB_GPUS=0,1 srun --overlap {devices}\necho ready; sleep 60 & wait")
        jobs = [cluster.submit(text, "--gres=gpu:1", "--weir-weight=300", user=ONE, env=lie) for _ in range(2)]
        seen = set()
        for job in jobs:
            job.says("ready\n")
            own = re.findall(r"(?m)^device \S+ (\S+)", job.out)
            self.assertEqual(own, own[:1] * 4, job.out)
            seen.add(own[0])
            place = str(uuids.index(own[0]))
            shown = host.weir("tenant", "show", "--run-dir", host.run_dir, job.tenant).stdout
            self.assertRegex(shown, rf"(?m)^devices +{place} ")
        self.assertEqual(seen, set(uuids), "one each")
        self.assertEqual(sorted(os.listdir(f"{host.run_dir}/slurm")), sorted(str(job.id) for job in jobs))
        for job in jobs:
            cluster.run("scancel", str(job.id))
        self.quiet_end(host)
        lib.until(lambda: not os.path.exists(f"{host.run_dir}/slurm"), 5, "nothing is noted any more")
        # All of them: with everybody else's programs in one worker. A step has those that Slurm gave it.
        job = cluster.submit(f"{devices}\nsrun --overlap --gres=gpu:1 {devices}", "--gres=gpu:2", "--weir-weight=3",
                             user=ONE)
        self.assertEqual(job.wait(), "COMPLETED", job.out)
        self.assertEqual([re.findall(r"(?m)^device \S+ (\S+)", job.out)[i] for i in range(3)], [*uuids, uuids[0]])
        # Shards lie on one of them; a job without any has all, and so has one where the administrator says so.
        for options, rule, n in (("--gres=shard:5", "gpus=slurm", 1), ("--weir-weight=3", "gpus=slurm", 2),
                                 ("--gres=gpu:1", "gpus=all", 2)):
            cluster.rules("max_weight=1000", rule, run_dir=host.run_dir)
            done = cluster.run("srun", options, "--weir-weight=5", "env", "-u", "CUDA_VISIBLE_DEVICES",
                               *devices.split(), user=ONE)
            self.assertEqual(len(re.findall("(?m)^device ", done.stdout)), n, f"{options} {done.stdout}{done.stderr}")
        self.quiet_end(host)


if __name__ == "__main__":
    lib.main()
