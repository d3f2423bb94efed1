#!/usr/bin/env python3
"""Containers: unmodified images, real engines, and the ways around limits that people try.

The engines are podman with CDI and dockerd with `weir docker-args`. WEIR_E2E_FULL=1 (ci/test --full)
adds what makes more images: an old release, and a loader that looks where RHEL's does.
"""
import glob
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import unittest

import containers
import lib

FULL = os.environ.get("WEIR_E2E_FULL") == "1"
QUOTA = 128 << 20
MIB = 1 << 20
PROGRAMS = ("drv_vector_add", "drv_memory", "drv_modules", "drv_streams_events", "drv_graph")
CDI_FOLDER = "/var/run/cdi"
HOOK = os.path.join(lib.places.build or "", "container/oci/weir-oci-hook")
# The engines read one folder for the whole machine: names that no other run has.
ALICE, BOB, CAROL = (f"{name}-{os.getpid()}" for name in ("alice", "bob", "carol"))


def in_turn(*programs, then="true"):
    """One container for several programs: an engine takes longer for a container than they do."""
    return ["sh", "-c", " && ".join([*(f"/t/{p}" for p in programs), then])]


# What a container needs to make containers itself.
NESTING = ["--cap-add", "SYS_ADMIN", "--cap-add", "NET_ADMIN", "--security-opt",
           "seccomp=unconfined"]


def remove_files_of_killed_runs():
    """They name the devices "all" and "new", too, and an engine takes none that stands in two files."""
    for path in glob.glob(f"{CDI_FOLDER}/weir-e2e-*.json"):
        pid = re.search(r"-(\d+)\.json$", path)
        if pid and not os.path.exists(f"/proc/{pid[1]}"):
            os.unlink(path)


class Containers(lib.Case):
    """Cases of one engine."""

    engine_type = None

    @classmethod
    def setUpClass(cls):
        remove_files_of_killed_runs()
        cls.tar = containers.small_image()
        cls.engine = cls.engine_type()
        cls.addClassCleanup(cls.engine.close)
        cls.image = cls.engine.image(cls.tar)
        cls.mounts = ["--volume", f"{os.path.join(lib.places.build, 'tests')}:/t:ro"]

    def setUp(self):
        super().setUp()
        self.limit(3 * lib.CASE_LIMIT_S)  # a container costs processes

    def serve(self, tenants=None, start=True, lines=()):
        """A host that writes a CDI file of its own."""
        self.cdi = f"{CDI_FOLDER}/weir-e2e-{os.getpid()}.json"
        host = self.host(tenants or {ALICE: {"memory": "128MiB"}, BOB: {"memory": "96MiB"}},
                         host_lines=[f"cdi = {json.dumps(self.cdi)}", *lines], start=False)
        self.addCleanup(lambda: os.path.exists(self.cdi) and os.unlink(self.cdi))
        self.engine.host = host
        return host.start() if start else host

    def passed(self, done, what=""):
        self.assertEqual(done.returncode, 0, f"{what}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def contained(self, *program, options=(), tenant=ALICE, expect=0, image=None):
        """A container runs a program to its end."""
        done = self.engine.run(image or self.image, *program, options=[*self.mounts, *options],
                               tenant=tenant)
        self.assertEqual(done.returncode, expect, f"{program}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def running(self, tenant=ALICE, options=()):
        """A container that waits; gives a function that runs programs in it."""
        container = self.engine.start(self.image, "sleep", "300", tenant=tenant,
                                      options=[*self.mounts, *options])
        self.addCleanup(self.engine.remove, container)

        def execute(*program, options=(), expect=0):
            done = self.engine.command("exec", *options, container, *program)
            self.assertEqual(done.returncode, expect,
                             f"{program}\n{done.stdout}\n{done.stderr}")
            return done.stdout

        return execute

    def check_programs(self):
        host = self.serve()
        out = self.contained(*in_turn(*(f"cuda/{p}" for p in PROGRAMS), then="env"))
        for program in PROGRAMS:
            self.assertRegex(out, rf"PASS {program}")
        self.assertRegex(out, r"(?m)^NVIDIA_VISIBLE_DEVICES=void$")
        self.assertNotRegex(out, r"(?m)^(LD_|WEIR_)")
        host.wait_idle()

    def check_users(self):
        """Any user, a read-only image, no capabilities."""
        self.serve()
        for options in (["--user", "1234:5678"],
                        ["--user", "77", "--read-only", "--cap-drop", "all", "--security-opt",
                         "no-new-privileges"]):
            self.contained(*in_turn("cuda/drv_memory", "cuda/drv_vector_add", "e2e/e2e_registered_around neighbours"),
                           options=options)

    def check_limits(self):
        """What gets past limits that are kept in the program: none of it does."""
        host = self.serve()
        execute = self.running(options=["--env", "CUDA_DEVICE_MEMORY_LIMIT=64m"])
        check = f"/t/e2e/e2e_quota shows {QUOTA}"
        copied = ("unset CUDA_DEVICE_MEMORY_LIMIT; mkdir -p /tmp/mine && "
                  "cp /usr/local/nvidia/lib64/libcuda.so.1 /tmp/mine/ && export LD_LIBRARY_PATH=/tmp/mine && ")
        # No environment, and one that was edited: the request is gone, the quota is not. A copied library.
        ways = (f"/t/e2e/e2e_quota fails {66 * MIB}", f"env --ignore-environment {check}",
                f"unset CUDA_DEVICE_MEMORY_LIMIT; {check}",
                "CUDA_DEVICE_MEMORY_LIMIT=1t CUDA_DISABLE_CONTROL=true LD_PRELOAD= "
                f"WEIR_TENANT={BOB} NVIDIA_VISIBLE_DEVICES=all {check}", copied + check)
        self.all_pass(execute, ways)
        # A library that was changed: the host's URL in it leads nowhere.
        changed = copied + ("sed -i 's,/run/weir/default.sock,/tmp/nowhere/here.sock,g' "
                            "/tmp/mine/libcuda.so.1 && /t/e2e/e2e_minimal")
        self.assertIn("gave 100", execute("sh", "-c", changed, expect=1))
        # A login by ssh has none of the container's environment.
        self.passed_check(execute("sh", "-ec", self.ssh_script(check)), "ssh")
        host.wait_idle()

    def all_pass(self, execute, ways):
        """Each of these commands, in a shell of its own, prints that the quota is what it should be."""
        out = execute("sh", "-ec", "; ".join(f"({way}) && echo done {i}" for i, way in enumerate(ways)))
        for i, (part, way) in enumerate(zip(re.split(r"(?m)^done \d+$", out), ways)):
            self.passed_check(part, way)
        self.assertIn(f"done {len(ways) - 1}\n", out)

    def passed_check(self, out, what=""):
        self.assertRegex(out, r"PASS e2e_quota", what)

    @staticmethod
    def ssh_script(command):
        return f"""
mkdir -p /root/.ssh && chmod 700 /root /root/.ssh && cd /root/.ssh
for name in key host; do dropbearkey -t ed25519 -f $name >/dev/null 2>&1; done
dropbearkey -y -f key | grep ^ssh- > authorized_keys
dropbear -r host -E -s -p 127.0.0.1:22 </dev/null >/root/log 2>&1
dbclient -y -y -i key root@127.0.0.1 'test -z "$CUDA_DEVICE_MEMORY_LIMIT" && {command}' 2>>/root/log ||
{{ cat /root/log; exit 1; }}
"""

    def check_nested(self, options):
        """A container in a container is the same tenant."""
        host = self.serve()
        execute = self.running(options=options)
        inner = ["bwrap", "--bind", "/", "/", "--dev", "/dev", "--unshare-all", "--clearenv",
                 "--uid", "1000"]
        self.passed_check(execute(*inner, "/t/e2e/e2e_quota", "shows", str(QUOTA)))
        # Where it does not pass the socket on, there is no device.
        self.assertIn("gave 100", execute(*inner, "--tmpfs", "/run", "/t/e2e/e2e_minimal",
                                          expect=1))
        host.wait_idle()

    def check_tenant(self):
        """A container reaches its tenant and nothing else of the host."""
        host = self.serve()
        execute = self.running(tenant=BOB)
        changes = ("touch /run/weir/mine", "rm /run/weir/default.sock",
                   "mv /run/weir/default.sock /run/weir/other", "chmod 600 /run/weir/default.sock",
                   "echo > /usr/local/nvidia/lib64/libcuda.so.1")
        script = "; ".join(f"({change}) 2>/dev/null && echo changed" for change in changes)
        self.assertEqual(execute("sh", "-c", f"ls -A /run/weir; {script}; echo done"), "default.sock\ndone\n")
        urls = (f"/run/weir/{ALICE}.sock", "/run/weir/../alice.sock", f"{host.run_dir}/admin.sock",
                f"{host.run_dir}/{ALICE}.sock",
                f"{host.run_dir}/containers/{ALICE}/default.sock")
        script = "; ".join(f"WEIR_HOST=ipc://{url} /t/e2e/e2e_minimal && exit 9" for url in urls)
        self.assertEqual(execute("sh", "-c", f"{script}; true").count("gave 100"), len(urls))
        out = execute("/t/e2e/e2e_quota", "shows", str(96 * MIB),
                      options=["--env", f"WEIR_TENANT={ALICE}"])
        self.passed_check(out)
        self.assertEqual(host.tenant(ALICE)["used_bytes"], 0)
        host.wait_idle()

    def check_requests(self):
        """HAMi's variables lower the quota of a process, and never raise it."""
        host = self.serve()
        options = ["--env", "CUDA_DEVICE_MEMORY_LIMIT_0=64m", "--env", "CUDA_DEVICE_SM_LIMIT=30"]
        execute = self.running(options=[*options, "--interactive"])
        execute("/t/e2e/e2e_nvml", "agree", str(64 * MIB))
        self.all_pass(execute, [f"unset CUDA_DEVICE_MEMORY_LIMIT_0; CUDA_DEVICE_MEMORY_LIMIT={limit} "
                                f"/t/e2e/e2e_quota shows {shown}"
                                for limit, shown in (("64m", 64 * MIB), ("1t", QUOTA), ("much", QUOTA))])
        guest = lib.Process([*self.engine.base, "exec", "--interactive", self.container_id(),
                             "/t/e2e/e2e_quota", "hold", str(MIB)], env=self.engine.env)
        self.addCleanup(guest.kill)
        guest.wait_line("^held$")
        row = host.status()["session"][0]
        self.assertEqual((row["memory_limit_bytes"], row["sm_limit_pct"]), (64 * MIB, 30))
        table = host.weir("status", "--run-dir", host.run_dir).stdout
        self.assertRegex(table, rf"{ALICE}.*e2e_quota.* 64 MiB +30 ")
        execute("true")
        guest.close_stdin()
        self.assertEqual(guest.wait(), 0, guest.tail())
        host.wait_idle()

    def container_id(self):
        return self.engine.must("ps", "--quiet", "--latest")

    def check_compose(self, command, lines, override):
        folder = self.folder()
        files = []
        for name, text in (("compose.yaml", f"""
version: "3.4"
services:
  train:
    image: {self.image}
    command: ["/t/e2e/e2e_quota", "shows", "{QUOTA}"]
    volumes: ["{self.mounts[1]}"]
{lines}"""), ("weir.yaml", override)):
            if text:
                files += ["--file", name]
                with open(os.path.join(folder, name), "w") as f:
                    f.write(text)
        project = f"weir-e2e-{os.getpid()}"
        self.addCleanup(self.engine.command, "network", "rm", f"{project}_default")
        about = {"cwd": folder, "env": self.engine.env, "stdin": subprocess.DEVNULL, "text": True,
                 "capture_output": True, "timeout": 40}
        command = [*command, *files, "--project-name", project]
        self.addCleanup(lambda: subprocess.run([*command, "down"], **about))
        done = subprocess.run([*command, "run", "--rm", "-T", "train"], **about)
        self.passed_check(done.stdout, done.stderr)

    def check_places(self):
        """Where programs and images look for the library."""
        self.serve()
        out = self.contained("sh", "-c", "ls /usr/lib/*-linux-gnu/libcuda.so* /usr/lib64/libcuda* "
                             "$TRITON_LIBCUDA_PATH/*")
        self.assertEqual(sorted(os.path.basename(path) for path in out.split()),
                         ["libcuda.so"] * 3 + ["libcuda.so.1"] * 3 + ["libcupti.so", "libcupti.so.12", "libcupti.so.13", "libnvidia-ml.so.1"])
        self.contained("sh", "-c", "test -e $TRITON_CUPTI_LIB_PATH/libcupti.so && "
                       "/t/e2e/e2e_cupti rows early /t/e2e/e2e_cupti_linked13.so")
        # nvidia/cuda images: a search path, all devices, and a stub that the cache names.
        nvidia = ["--env", "LD_LIBRARY_PATH=/usr/local/nvidia/lib:/usr/local/nvidia/lib64",
                  "--env", "NVIDIA_VISIBLE_DEVICES=all", "--env", "NVIDIA_DRIVER_CAPABILITIES=all"]
        stub = ("mkdir -p /usr/local/cuda/compat && echo no library > "
                "/usr/local/cuda/compat/libcuda.so.1 && /t/e2e/e2e_minimal")
        self.contained("sh", "-c", stub, options=nvidia)


    def serve_shares(self):
        """A host for shares on demand."""
        if not os.path.exists(HOOK):
            self.skipTest("weir-oci-hook is not built (libjansson-dev)")
        return self.serve({"default": {"memory": "160MiB"}, ALICE: {}}, lines=[
            "", "[default]", 'memory = "96MiB"', 'max_memory = "128MiB"', "max_weight = 300", "socket_mode = 0o666"])

    def shares(self):
        return {t["name"]: t for t in self.engine.host.status()["tenant"] if t["source"] == "on demand"}

    def no_shares(self):
        lib.until(lambda: not self.shares(), 10, "the shares are gone")
        self.engine.host.wait_idle()
        self.assertEqual(os.listdir(os.path.join(self.engine.host.run_dir, "shares")), ["none"])

    def quota(self, mib):
        """A command that succeeds if its device has so much memory."""
        return "/t/e2e/e2e_quota", "shows", str(mib * MIB)

    def check_shares(self):
        """A tenant for each container, made with it and gone with it."""
        host = self.serve_shares()
        self.contained(*self.quota(160), tenant="all")  # by its other name
        self.contained(*self.quota(96), tenant="new", options=["--user", "1234:5678", "--read-only", "--cap-drop", "all"])
        self.contained(*self.quota(64), tenant="new", options=["--env", "WEIR_MEMORY=64MiB"])
        self.contained(*self.quota(32), tenant="new", options=["--annotation", "weir.dev/memory=32MiB",
                                                               "--env", "WEIR_MEMORY=32MiB", "--env", "WEIR_PORT=tcp://a:1"])
        self.no_shares()
        container = self.engine.start(self.image, "sleep", "300", tenant="new", options=[
            *self.mounts, "--env", "WEIR_WEIGHT=300", "--env", "WEIR_PRIORITY=low", "--env", "WEIR_SM_LIMIT=50",
            "--env", "WEIR_SESSIONS=2"])
        self.addCleanup(self.engine.remove, container)
        (name, row), = self.shares().items()
        self.assertEqual(name, f"ctr-0-{container[:12]}")
        self.assertEqual((row["weight"], row["priority"], row["sm_limit_pct"]), (300, "low", 50))
        listed = self.engine.command("exec", container, "sh", "-c", "ls -A /run/weir; touch /run/weir/x; id -u").stdout
        self.assertEqual(listed, "default.sock\n0\n", "its own socket, and nothing can be put beside it")
        # Two containers of one user have the weight of one.
        second = self.engine.start(self.image, "sleep", "300", tenant="new",
                                   options=[*self.mounts, "--env", "WEIR_WEIGHT=300"])
        self.addCleanup(self.engine.remove, second)
        self.assertEqual(sorted(row["weight"] for row in self.shares().values()), [150, 150])
        self.engine.remove(second)
        lib.until(lambda: [row["weight"] for row in self.shares().values()] == [300], 5, "the first has all again")
        # However it ends: here without a word to the engine, with a program at work in it.
        guest = lib.Process([*self.engine.base, "exec", "--interactive", container, "/t/e2e/e2e_quota", "hold",
                             str(16 * MIB)], env=self.engine.env)
        self.addCleanup(guest.kill)
        guest.wait_line("^held$")
        os.kill(int(self.engine.must("inspect", "--format", "{{.State.Pid}}", container)), signal.SIGKILL)
        guest.wait()
        self.no_shares()

    def check_refused_shares(self):
        """Who asks for too much is told so where the container was to be made, and has no container."""
        host = self.serve_shares()
        for options, why in ((["--env", "WEIR_MEMORY=1GiB"], r"weir: memory=1GiB is over the limit of 128MiB"),
                             (["--env", "WEIR_WEIGHT=much"], "weir: 'weight' must be an integer"),
                             (["--annotation", "weir.dev/priority=high"], "weir: priority=high is over the limit of normal"),
                             (["--annotation", "weir.dev/size=3"], "weir: 'size' cannot be asked for, only memory, weight"),
                             (["--annotation", "weir.dev/memory=32MiB", "--env", "WEIR_MEMORY=64MiB"],
                              "weir: memory=32MiB and memory=64MiB contradict each other"),
                             (["--env", "WEIR_MEMROY=64MiB"], "weir: the variable WEIR_MEMROY .* did you mean WEIR_MEMORY"),
                             (["--annotation", "wier.dev/memory=32MiB"], "weir: the annotation .* did you mean 'weir.dev/memory'"),
                             (["--device", f"weir.dev/gpu={ALICE}"],
                              f"weir: a container has one device of Weir, and not both weir.dev/gpu=(new|{ALICE}) and"),
                             (["--annotation", "weir.dev/user=no-such-user"], "there is no user 'no-such-user'"),
                             (["--env", "WEIR_MEMORY=6\t4"], "weir: a setting has control characters")):
            done = self.engine.run(self.image, "true", tenant="new", options=options)
            self.assertNotEqual(done.returncode, 0, options)
            self.assertRegex(done.stderr, why)
        self.no_shares()
        # A tenant of the administrator's is what it is: nothing is asked of it, and none stands beside it.
        for options, why in ((["--device", "weir.dev/gpu=default"], f"not both weir.dev/gpu=(default|{ALICE}) and"),
                             (["--env", "WEIR_MEMORY=64MiB"], f"weir: memory=64MiB is asked for, and weir.dev/gpu={ALICE} is"),
                             (["--env", "WEIR_MEMROY=64MiB"], "did you mean WEIR_MEMORY"),
                             (["--annotation", "weir.dev/weight=3"], "weir: weight=3 is asked for")):
            done = self.engine.run(self.image, "true", tenant=ALICE, options=options)
            self.assertNotEqual(done.returncode, 0, options)
            self.assertRegex(done.stderr, why)
        if isinstance(self.engine, containers.Docker):  # podman's device goes over a mount
            by_hand = host.weir("docker-args", "--run-dir", host.run_dir, "default").stdout.split()
            done = self.engine.run(self.image, "true", tenant=ALICE, options=by_hand)
            self.assertRegex(done.stderr, f"not both weir.dev/gpu={ALICE} and a mount of .*/containers/default")
            done = self.engine.run(self.image, "true", options=[*by_hand, *by_hand])
            self.assertIn("Duplicate mount point", done.stderr)
        same = ["--device", "weir.dev/gpu=all"]  # the tenant default by two names
        self.contained(*self.quota(160), tenant="default", options=same)
        # A host that was killed leaves its file: no container is made with nothing behind it.
        host.process.kill()
        done = self.engine.run(self.image, "true", tenant="new")
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, r"weir: no share of the GPU: .*/new.sock: not found")


class HostCases(lib.Case):
    """The host's part, which needs no engine and no root."""

    def setUp(self):
        super().setUp()
        self.cdi = os.path.join(self.folder(), "cdi", "weir.json")

    def serve(self, tenants, lines=(), **options):
        return self.host(tenants, host_lines=[f"cdi = {json.dumps(self.cdi)}", *lines], **options)

    def mode(self, *path):
        return os.stat(os.path.join(*path)).st_mode & 0o777

    def devices(self):
        with open(self.cdi) as f:
            spec = json.load(f)
        return spec["cdiVersion"], [device["name"] for device in spec["devices"] if device["name"] != "new"]

    def test_file_and_folders(self):
        host = self.serve(["A", "b.c"], start=False)
        containers_dir = os.path.join(host.run_dir, "containers")
        os.makedirs(os.path.join(containers_dir, "gone"))
        with open(os.path.join(containers_dir, "gone", "default.sock"), "w"):
            pass
        host.start()
        self.assertEqual(self.devices(), ("0.3.0", ["A", "b.c"]))
        self.assertEqual(self.mode(self.cdi), 0o644)
        self.assertEqual(sorted(os.listdir(containers_dir)), ["A", "b.c"])
        self.assertEqual(self.mode(containers_dir), 0o710)
        self.assertEqual(self.mode(containers_dir, "A"), 0o755)
        self.assertEqual(self.mode(containers_dir, "A", "default.sock"), 0o666)
        env = {"LD_LIBRARY_PATH": lib.places.guest_lib,
               "WEIR_HOST": f"ipc://{containers_dir}/b.c/default.sock"}
        guest = self.guest(host, "e2e_quota", "hold", MIB, arrangement=lib.NATIVE, env=env)
        guest.wait_line("^held$")
        self.assertEqual(host.status()["session"][0]["tenant"], "b.c")
        host.write_config(["A", "7b", "_odd"])
        host.process.signal(signal.SIGHUP)
        lib.until(lambda: self.devices() == ("0.5.0", ["A", "7b"]), 5, "the file follows")
        lib.until(lambda: "tenant=_odd" in host.process.err, 5, "it says which cannot be in it")
        lib.until(lambda: not host.status()["session"], 10, "the removed tenant's session ends")
        self.assertEqual(sorted(os.listdir(containers_dir)), ["7b", "A"])
        guest.close_stdin()
        guest.wait()
        self.assertEqual(host.stop(), 0)
        self.assertFalse(os.path.exists(self.cdi))
        self.assertEqual(sorted(os.listdir(containers_dir)), ["7b", "A"])
        done = host.weir("docker-args", "--run-dir", host.run_dir, "A")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("is weir serve running?", done.stderr)

    def test_tenants_added_and_removed_while_it_runs(self):
        host = self.serve(["A"])
        place = ["--run-dir", host.run_dir]
        self.assertEqual(host.weir("tenant", "add", *place, "C").returncode, 0)
        self.assertEqual(self.devices(), ("0.3.0", ["A", "C"]))
        self.assertEqual(host.weir("docker-args", *place, "C").returncode, 0)
        self.assertEqual(host.weir("tenant", "remove", *place, "C").returncode, 0)
        self.assertEqual(self.devices(), ("0.3.0", ["A"]))
        self.assertEqual(host.weir("docker-args", *place, "C").returncode, 1)
        listed = host.weir("cdi", *place, "--list").stdout.replace("weir.dev/gpu=new\n", "")
        self.assertEqual(listed, "weir.dev/gpu=A\n")

    def test_a_reload_makes_removed_sockets_again(self):
        host = self.serve(["A", "b"])
        steady = self.steady(host, tenant="b")
        names = ["A.sock", "admin.sock", "new.sock", "containers/A/default.sock"]
        paths = [os.path.join(host.run_dir, name) for name in names]
        modes = [self.mode(path) for path in paths]
        os.unlink(paths[0])
        run = ("run", "--run-dir", host.run_dir, "--tenant", "A", "--", lib.places.program("e2e_minimal"))
        done = lib.run_weir(*run)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "A.sock: the socket of tenant 'A' was removed: systemctl reload weir")
        for path in paths[1:]:
            os.unlink(path)
        shutil.rmtree(os.path.join(host.run_dir, "containers", "A"))
        shutil.rmtree(os.path.join(host.run_dir, "shares"))
        os.unlink(self.cdi)
        host.process.signal(signal.SIGHUP)
        lib.until(lambda: os.path.exists(self.cdi) and "reloading" in host.process.err, 5, "all is made again")
        self.assertEqual([self.mode(path) for path in paths], modes)
        self.assertEqual(lib.run_weir(*run).returncode, 0)
        self.assertEqual(lib.run_weir("run", "--new", *run[1:3], *run[5:]).returncode, 0)
        env = {"LD_LIBRARY_PATH": lib.places.guest_lib, "WEIR_HOST": f"ipc://{paths[3]}"}
        self.finished(host, "e2e_minimal", arrangement=lib.NATIVE, env=env)
        self.steady_undisturbed(steady)

    def test_docker_args_of_devices_that_need_cdi(self):
        host = self.serve(["A"])
        for name, why in (("all", "Docker 25, .* weir docker-args default"), ("new", "Docker 25, .* name a tenant")):
            done = host.weir("docker-args", "--run-dir", host.run_dir, name)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertRegex(done.stderr, why)

    def test_modes_follow_the_sockets(self):
        for mode, folder in ((0o600, 0o700), (0o666, 0o711)):
            host = self.serve(["A"], [f"socket_mode = 0o{mode:o}"])
            self.assertEqual(self.mode(host.run_dir, "containers"), folder)
            self.assertEqual(host.stop(), 0)

    def test_no_file_unasked_nor_where_it_cannot_be(self):
        host = self.host(["A"])
        self.assertFalse(os.path.exists(os.path.join(host.run_dir, "containers")))
        done = host.weir("docker-args", "--run-dir", host.run_dir, "A")
        self.assertEqual(done.returncode, 1)
        self.assertIn("no host that serves containers", done.stderr)
        self.assertEqual(host.stop(), 0)
        self.cdi = "/proc/none/weir.json"
        host = self.serve(["A"])
        lib.until(lambda: "no CDI file '/proc/none/weir.json': " in host.process.err, 5, "the host says why")
        self.assertEqual(host.weir("docker-args", "--run-dir", host.run_dir, "A").returncode, 0)

    def test_folders_of_tenants_with_a_user(self):
        """They can be reached by the user and by root, whatever the engine, and move with the user."""
        containers.need(os.geteuid() == 0, "sockets of others are made by root")
        host = self.serve({"ann": {"user": "47110"}, "bob": {"user": "47111"}, "carol": {}}, start=False)
        run = host.run_dir
        old = os.path.join(run, "containers", "ann")  # as a host before this one left it
        os.makedirs(old)
        os.chmod(run, 0o711)
        os.close(os.open(os.path.join(old, "default.sock"), os.O_CREAT))
        host.start()
        os.chmod(host.folder, 0o755)
        with open(self.cdi) as f:
            sources = {d["name"]: d["containerEdits"]["mounts"][0]["hostPath"] for d in json.load(f)["devices"] if d["name"] != "new"}
        self.assertEqual(sources, {"ann": f"{run}/users/47110/ann", "bob": f"{run}/users/47111/bob", "carol": f"{run}/containers/carol"})
        self.assertEqual(os.readlink(os.path.join(run, "containers", "ann")), "../users/47110/ann")
        self.assertEqual(self.mode(run, "users", "47110", "ann", "default.sock"), 0o666)

        def reaches(uid, tenant):
            return subprocess.run(["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", sys.executable, "-c",
                                   "import socket, sys; socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).connect(sys.argv[1])",
                                   f"{sources[tenant]}/default.sock"], capture_output=True).returncode == 0

        self.assertEqual({(uid, t): reaches(uid, t) for uid in (0, 47110, 47111) for t in sources},
                         {(0, "ann"): True, (0, "bob"): True, (0, "carol"): True,
                          (47110, "ann"): True, (47110, "bob"): False, (47110, "carol"): False,
                          (47111, "ann"): False, (47111, "bob"): True, (47111, "carol"): False})
        done = host.weir("docker-args", "--run-dir", run, "ann")
        self.assertIn(f"source={run}/users/47110/ann,target=/run/weir", done.stdout, done.stderr)
        # Another user, and nobody, from the next start on.
        self.assertEqual(host.stop(), 0)
        host.write_config({"ann": {"user": "47111"}, "bob": {}})
        host.start()
        self.assertEqual(sorted(os.listdir(os.path.join(run, "containers"))), ["ann", "bob"])
        self.assertEqual(os.readlink(os.path.join(run, "containers", "ann")), "../users/47111/ann")
        self.assertFalse(os.path.islink(os.path.join(run, "containers", "bob")))
        self.assertEqual({n: os.listdir(os.path.join(run, "users", n)) for n in os.listdir(os.path.join(run, "users"))}, {"47111": ["ann"]})

    def test_wrong_paths_are_refused(self):
        for path in ("weir.json", "/run/cdi/weir", "/.json"):
            done = lib.run_weir("serve", "--check", "--cdi", path)
            self.assertEqual(done.returncode, 2, path)
            self.assertIn("cdi must be", done.stderr)


class PodmanCases(Containers):
    engine_type = containers.Podman

    def test_programs(self):
        self.check_programs()

    def test_users(self):
        self.check_users()
        for options in (["--uidmap", "0:100000:5000", "--user", "1000", "--read-only"],
                        ["--uidmap", "0:100000:5000"]):
            self.contained("/t/cuda/drv_vector_add", options=options)

    def test_limits_hold(self):
        self.check_limits()

    def test_limits_hold_in_a_container_in_a_container(self):
        self.check_nested(NESTING)

    def test_tenant_is_the_socket(self):
        self.check_tenant()

    def test_requests_below_the_grant(self):
        self.check_requests()

    def test_places(self):
        self.check_places()

    def test_shares_on_demand(self):
        self.check_shares()
        for options in (["--uidmap", "0:100000:5000", "--user", "1000"], ["--annotation", "weir.dev/user=65534"]):
            self.contained(*self.quota(96), tenant="new", options=options)
        self.engine.host.process.wait_log(r"share made tenant=ctr-65534-\w+ uid=65534 ")

    def test_shares_refused(self):
        self.check_refused_shares()

    def test_shares_of_an_ordinary_user(self):
        """podman without root: the share is the user's."""
        containers.need(lib.places.everybody_gets_there(), "ordinary users cannot get to the programs")
        host = self.serve_shares()
        rootless = containers.RootlessPodman()
        self.addCleanup(rootless.close)
        image = rootless.image(self.tar)
        os.chmod(host.folder, 0o755)
        for options in (["--env", "WEIR_MEMORY=64MiB"], ["--env", "WEIR_MEMORY=64MiB", "--user", "1234"]):
            done = rootless.run(image, *self.quota(64), options=[*self.mounts, *options], tenant="new")
            self.passed(done)
        made = lambda: re.findall(r"share made tenant=ctr-\d+-\w+ uid=(\d+)", host.process.err)
        lib.until(lambda: len(made()) == 2, 5, "the log tells of both shares")
        self.assertEqual(made(), [str(rootless.uid)] * 2)
        done = rootless.run(image, "true", options=["--env", "WEIR_MEMORY=64GiB"], tenant="new")
        self.assertRegex(done.stderr, "weir: memory=64GiB is over the limit of 128MiB")
        done = rootless.run(image, "true", options=["--annotation", "weir.dev/user=0"], tenant="new")
        self.assertRegex(done.stderr, "weir: only root makes shares of other users")
        self.no_shares()

    def test_tenants_of_an_ordinary_user(self):
        """podman without root: a user's tenant is that user's in containers, too, and no other is."""
        containers.need(lib.places.everybody_gets_there(), "ordinary users cannot get to the programs")
        rootless = containers.RootlessPodman()
        self.addCleanup(rootless.close)
        host = self.serve({"ann": {"user": rootless.name, "memory": "64MiB"}, "bob": {"user": "65534"}, ALICE: {}})
        image = rootless.image(self.tar)
        os.chmod(host.folder, 0o755)
        for options in ([], ["--user", "1234", "--read-only", "--cap-drop", "all"], ["--userns", "keep-id"]):
            self.passed(rootless.run(image, *self.quota(64), options=[*self.mounts, *options], tenant="ann"), options)
        for tenant in ("bob", ALICE):
            done = rootless.run(image, *self.quota(64), options=self.mounts, tenant=tenant)
            self.assertNotEqual(done.returncode, 0, tenant)
            self.assertRegex(done.stderr, "ermission denied", tenant)
        # Root's engine may use all of them, as any user in the container.
        self.contained(*self.quota(64), options=["--user", "1234"], tenant="ann")
        # A container that runs meets the next host at the same place.
        container = rootless.start(image, "sleep", "300", options=self.mounts, tenant="ann")
        self.addCleanup(rootless.remove, container)
        self.assertEqual(host.stop(), 0)
        host.start()
        self.passed(rootless.command("exec", container, *self.quota(64)))

    @unittest.skipUnless(FULL, "only with WEIR_E2E_FULL=1")
    def test_compose(self):
        """The device in a compose file."""
        compose = containers.need_program("podman-compose")
        self.serve()
        wrapper = os.path.join(self.folder(), "podman")
        with open(wrapper, "w") as f:
            f.write(f'#!/bin/sh\nexec {shlex.join(self.engine.base)} "$@"\n')
        os.chmod(wrapper, 0o755)
        ulimits = shlex.join(self.engine.common[2:])
        self.check_compose([compose, "--podman-path", wrapper, "--podman-run-args", ulimits],
                           f'    devices: ["weir.dev/gpu={ALICE}"]\n', None)

    @unittest.skipUnless(FULL, "only with WEIR_E2E_FULL=1")
    def test_old_release(self):
        """Programs that an old release built, on its libc (bullseye: glibc 2.31)."""
        self.limit(600)  # it makes an image
        tar = containers.debian_image("bullseye", "gcc,libc6-dev")
        image = self.engine.image(tar)
        self.serve()
        compile_all = "; ".join(
            f"gcc -std=gnu11 -O1 -DWEIR_CUDA_HEADER='\"/g/proto/cuda_abi.h\"' -I/s/tests/cuda "
            f"-Wa,-I,/s/tests/cuda/ptx /s/tests/cuda/{p}.c -o /tmp/{p} -ldl -lpthread -lm && "
            f"/tmp/{p}" for p in PROGRAMS)
        options = ["--volume", f"{lib.places.source}:/s:ro",
                   "--volume", f"{lib.places.build}/gen:/g:ro"]
        out = self.contained("sh", "-ec", f"ldd --version; {compile_all}", options=options,
                             image=image)
        self.assertRegex(out, r"GLIBC 2\.31")
        for program in PROGRAMS:
            self.assertRegex(out, rf"PASS {program}")

    @unittest.skipUnless(FULL, "only with WEIR_E2E_FULL=1")
    def test_loader_of_lib64(self):
        """A loader that knows nothing of Debian's folders, as that of RHEL and its kin."""
        self.limit(600)
        image = self.engine.image(containers.lib64_image())
        self.serve()
        path = self.contained("/lib64/ld-linux-x86-64.so.2", "--help", image=image)
        self.assertRegex(path, r"/usr/lib64 \(system search path\)")
        self.assertNotIn("linux-gnu (system", path)
        out = self.contained(*in_turn(*(f"cuda/{p}" for p in PROGRAMS)), image=image)
        for program in PROGRAMS:
            self.assertRegex(out, rf"PASS {program}")

    def devices(self):
        with open(self.cdi) as f:
            return [device["name"] for device in json.load(f)["devices"] if device["name"] != "new"]

    def test_cdi_follows_the_tenants(self):
        host = self.serve()
        self.assertEqual(self.devices(), [ALICE, BOB])
        alice, bob = self.running(), self.running(tenant=BOB)
        made = host.weir("cdi", "--run-dir", host.run_dir)
        with open(self.cdi) as f:
            self.assertEqual(made.stdout, f.read(), made.stderr)
        host.write_config({ALICE: {"memory": "128MiB"}, CAROL: {"memory": "64MiB"}})
        host.process.signal(signal.SIGHUP)
        lib.until(lambda: self.devices() == [ALICE, CAROL], 5, "the file follows")
        self.contained("/t/e2e/e2e_quota", "shows", str(64 * MIB), tenant=CAROL)
        # Who was removed has no device any more, also in a container that runs on.
        refused = bob("sh", "-c", "/t/e2e/e2e_minimal 2>&1", expect=1)
        self.assertIn("gave 100", refused)
        self.assertIn("weir: e2e_minimal gets no GPU from ipc:///run/weir/default.sock: not found", refused)
        done = self.engine.run(self.image, "true", tenant=BOB)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, r"unresolvable CDI device")
        self.assertEqual(sorted(os.listdir(os.path.join(host.run_dir, "containers"))),
                         sorted([ALICE, CAROL]))
        # A container outlives the host, and finds the next one.
        self.assertEqual(host.stop(), 0)
        self.assertFalse(os.path.exists(self.cdi))
        self.assertIn("gave 100", alice("/t/e2e/e2e_minimal", expect=1))
        host.start()
        self.passed_check(alice("/t/e2e/e2e_quota", "shows", str(QUOTA)))

    def test_a_file_left_behind_is_harmless(self):
        host = self.serve()
        host.process.kill()
        self.assertEqual(self.devices(), [ALICE, BOB])
        self.assertIn("gave 100", self.contained("/t/e2e/e2e_minimal", expect=1))
        self.assertEqual(os.listdir(CDI_FOLDER).count(os.path.basename(self.cdi) + ".new"), 0)
        host.start()
        self.contained("/t/e2e/e2e_minimal")


class DockerCases(Containers):
    engine_type = containers.Docker

    def test_programs(self):
        self.check_programs()

    def test_users(self):
        self.check_users()

    @unittest.skipUnless(FULL, "only with WEIR_E2E_FULL=1")
    def test_limits_hold(self):
        self.check_limits()

    @unittest.skipUnless(FULL, "only with WEIR_E2E_FULL=1")
    def test_limits_hold_in_a_container_in_a_container(self):
        self.check_nested(NESTING)

    @unittest.skipUnless(FULL, "only with WEIR_E2E_FULL=1")
    def test_tenant_is_the_socket(self):
        self.check_tenant()

    @unittest.skipUnless(FULL, "only with WEIR_E2E_FULL=1")
    def test_requests_below_the_grant(self):
        self.check_requests()

    @unittest.skipUnless(FULL, "only with WEIR_E2E_FULL=1")
    def test_compose(self):
        """A compose file and the one that adds the tenant, for engines without CDI."""
        compose = containers.need_program("docker-compose")
        host = self.serve()
        made = host.weir("docker-args", "--run-dir", host.run_dir, "--compose", "train", ALICE)
        self.assertEqual(made.returncode, 0, made.stderr)
        self.check_compose([compose], "    network_mode: none\n", made.stdout)

    def test_docker_args_says_what_is_wrong(self):
        host = self.serve()
        for words, code, text in (([], 2, "TENANT is missing"), (["a", "b"], 2, "unexpected 'b'"),
                                  (["nobody"], 1, "no such tenant"),
                                  (["../x"], 1, "cannot be a container's tenant")):
            done = host.weir("docker-args", "--run-dir", host.run_dir, *words)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(text, done.stderr)
            self.assertEqual(done.stdout, "")


@unittest.skipUnless(FULL, "only with WEIR_E2E_FULL=1")
class DockerCdiCases(Containers):
    """Docker 25 and later."""

    engine_type = containers.DockerWithCdi

    def test_programs(self):
        self.check_programs()

    def test_users(self):
        self.check_users()

    def test_tenant_is_the_socket(self):
        self.check_tenant()

    def test_shares_on_demand(self):
        self.check_shares()

    def test_shares_refused(self):
        self.check_refused_shares()


if __name__ == "__main__":
    lib.main()
