#!/usr/bin/env python3
"""Shares on demand: weir run makes a tenant for a program, which ends with it; what may be asked, by whom, and what it weighs."""
import os
import re
import signal
import socket
import stat
import subprocess
import time

import lib

MIB = 1 << 20
USER = 12345  # nobody's
CLOSE = 0.075
# Kernels that fill the device and can be stopped: those that leave room run beside each other, and are then served more
# than their part of the time.
LOAD = ("loop", "--waves", "4", "--rounds", "300", "--us", "1000", "--depth", "16", "--seconds", "600")


class Demand(lib.Case):
    def serve(self, *lines, tenants=("alice",), **options):
        return self.host(tenants, host_lines=["", "[default]", *lines], **options)

    def run_argv(self, host, program, *args, share=("--new",)):
        return [lib.places.weir, "run", "--run-dir", host.run_dir, *share, "--",
                *(lib.places.program(program) if i == 0 else str(a) for i, a in enumerate([program, *args]))]

    def start(self, host, program, *args, share=("--new",)):
        guest = lib.Process(self.run_argv(host, program, *args, share=share), env=lib.clean_environment(), name=program)
        self.addCleanup(guest.kill)
        return guest

    def shares(self, host):
        return {t["name"]: t for t in host.status()["tenant"] if t["source"] == "on demand"}

    def gone(self, host):
        """Until no share is left, nor anything of one."""
        lib.until(lambda: not self.shares(host), 10, "the share is gone")
        host.wait_idle()
        self.assertEqual(os.listdir(os.path.join(host.run_dir, "shares")), ["none"])

    def refused(self, host, *share, why, status=1):
        done = lib.run_weir("run", "--run-dir", host.run_dir, *share, "--", "true")
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertRegex(done.stderr, why)

    def test_a_user_whose_requests_are_refused_does_not_fill_the_log(self):
        host = self.serve()
        for _ in range(300):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asker:
                asker.connect(os.path.join(host.run_dir, "new.sock"))
                asker.send(b"nonsense")
                self.assertIn(b"no such request", asker.recv(4096))
        self.assertEqual(len([line for line in host.process.errors if "no share" in line]), 200)
        self.assertIn(f"(user {os.geteuid()})", "".join(line for line in host.process.errors if "are left out" in line))

    def test_a_share_lives_as_long_as_its_program(self):
        host = self.serve('memory = "128MiB"', "max_weight = 300")
        guest = self.start(host, "e2e_quota", "hold", 16 * MIB,
                           share=("--memory", "64MiB", "--weight", "300", "--sm-limit", "50", "--sessions", "2"))
        guest.wait_line("^held$")
        (name, row), = self.shares(host).items()
        self.assertEqual((row["weight"], row["quota_bytes"], row["sm_limit_pct"], row["sessions"]),
                         (300, 64 * MIB, 50, 1))
        self.assertEqual(host.status()["session"][0]["pid"], guest.pid, "the program is the process that asked")
        shown = host.weir("tenant", "list", "--run-dir", host.run_dir).stdout
        self.assertRegex(shown, rf"(?m)^{name} +300 normal +50% .* on demand$")
        guest.close_stdin()
        self.assertEqual(guest.wait(), 0)
        self.gone(host)
        # What [default] has, the program's status, and an argument that looks like an option.
        done = lib.run_weir("run", "--new", "--run-dir", host.run_dir, "--", lib.places.program("e2e_quota"), "shows",
                            str(128 * MIB))
        self.assertEqual(done.returncode, 0, done.stdout)
        for command, status in ((["sh", "-c", 'exit "$1"', "sh", "7"], 7), (["sh", "-c", "kill -TERM $$"], -15),
                                (["no-such-program"], 127)):
            self.assertEqual(lib.run_weir("run", "--new", "--run-dir", host.run_dir, *command).returncode, status)
        self.gone(host)

    def test_killed_programs_and_hosts_leave_nothing(self):
        host = self.serve()
        guest = self.start(host, "e2e_quota", "hold", 16 * MIB)
        guest.wait_line("^held$")
        guest.kill()
        self.gone(host)
        # A child that lives on is not the share's program.
        argv = self.run_argv(host, "e2e_steady")
        parent = lib.Process([*argv[:-1], "sh", "-c", f"exec 3<&0; {argv[-1]} <&3 & echo child $!; wait"], name="sh", new_group=True,
                             env=lib.clean_environment())
        self.addCleanup(parent.kill)
        child = int(parent.wait_line(r"^child (\d+)$")[1])
        parent.wait_line("^round 0$")
        parent.popen.kill()
        lib.until(lambda: not self.shares(host), 10, "the share is gone")
        lib.until(lambda: not lib.pid_is_alive(child), 10, "its child has lost its session")
        self.gone(host)
        # With the host everything of a share is gone, and the next one sweeps what was left of it.
        guest = self.start(host, "e2e_quota", "hold", 16 * MIB)
        guest.wait_line("^held$")
        workers = lib.children_of(host.pid)
        host.process.kill()
        lib.until(lambda: not any(lib.pid_is_alive(p) for p in workers), 10, "its workers are gone")
        self.assertEqual(len(os.listdir(os.path.join(host.run_dir, "shares"))), 2)
        host.start()
        self.gone(host)
        guest.close_stdin()
        guest.wait()

    def test_what_may_be_asked_is_bounded(self):
        host = self.serve('max_memory = "256MiB"', 'memory = "128MiB"', "max_weight = 200", "max_sm_limit = 50",
                          "sessions = 4", "per_user = 2")
        for share, why in ((("--memory", "1GiB"), r"memory=1GiB is over the limit of 256MiB \(max_memory"),
                           (("--memory", "50%"), "memory=50% is not comparable with the limit of 256MiB"),
                           (("--memory", "lots"), "'memory' must be an amount"),
                           (("--memory", "8\n9"), "control characters"),
                           (("--weight", "201"), "weight=201 is over the limit of 200"),
                           (("--weight", "-1"), "'weight' must lie between 1 and 10000"),
                           (("--priority", "high"), "priority=high is over the limit of normal"),
                           (("--priority", "soon"), "'priority' must be one of: low, normal, high"),
                           (("--sm-limit", "60"), "sm_limit=60% is over the limit of 50%"),
                           (("--sessions", "5"), "sessions=5 is over the limit of 4")):
            self.refused(host, *share, why=why)
        self.refused(host, "--new", "--tenant", "alice", why="goes with no --tenant", status=2)
        self.refused(host, "--new", "--host", f"ipc://{host.socket('alice')}", why="goes with no --tenant", status=2)
        self.assertEqual(self.shares(host), {})
        guests = [self.start(host, "e2e_quota", "hold", MIB) for _ in range(2)]
        for guest in guests:
            guest.wait_line("^held$")
        self.assertRegex(lib.run_weir("events", "--run-dir", host.run_dir).stdout, r"(?m) tenant-added +tenant=run-1: on demand$")
        self.refused(host, "--new", why=r"user \d+ has 2 shares already, which is the limit \(per_user\)")
        for guest in guests:
            guest.kill()  # the next one need not wait until the host has seen it
        self.finished_share(host)
        # Bounds follow the file; what is there stays.
        guest = self.start(host, "e2e_quota", "hold", MIB)
        guest.wait_line("^held$")
        host.host_lines = ["", "[default]", "per_user = 0"]
        host.write_config(["alice"])
        host.process.signal(signal.SIGHUP)
        lib.until(lambda: "reloading" in host.process.err, 5, "the file is read")
        self.refused(host, "--new", why="makes no shares on demand")
        self.assertEqual(len(self.shares(host)), 1)
        guest.kill()
        self.gone(host)

    def test_more_memory_than_there_is_is_refused(self):
        """Without a bound in [default], too."""
        host = self.serve('memory = "900TiB"', tenants={"alice": {"memory": "64MiB"}})
        total = host.status()["worker"][0]["memory_bytes"] // MIB
        more = rf"memory=900TiB is more than the GPU has, {total} MiB"
        self.refused(host, "--memory", "900TiB", why=more)
        self.refused(host, "--memory", f"{total + 1}MiB", why=f"is more than the GPU has, {total} MiB")
        for words in (("set", "alice", "memory=900TiB"), ("add", "carol", "memory=900TiB"), ("add", "carol", "pinned=900TiB"),
                      ("set", "alice", "pinned=900TiB")):
            done = lib.run_weir("tenant", "--run-dir", host.run_dir, *words)
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertRegex(done.stderr, more if words[2].startswith("memory") else "pinned=900TiB is more than the machine has")
        self.assertEqual(set(t["name"] for t in host.status()["tenant"]), {"alice"})
        self.assertEqual(host.tenant("alice")["quota_bytes"], 64 * MIB)
        # A share that does not ask has what there is, and all that there is may be asked for.
        for share in (("--new",), ("--memory", f"{total}MiB"), ("--memory", "100%")):
            guest = self.start(host, "e2e_quota", "hold", MIB, share=share)
            guest.wait_line("^held$")
            ((_, row),) = self.shares(host).items()
            self.assertAlmostEqual(row["quota_bytes"], total * MIB, delta=MIB)
            guest.close_stdin()
            self.assertEqual(guest.wait(), 0)
            self.gone(host)

    def test_the_environment_asks_as_options_do(self):
        host = self.serve('max_memory = "1GiB"')

        def run(*argv, **env):
            return lib.run_weir("run", "--run-dir", host.run_dir, *argv, env=dict(lib.clean_environment(), **env))

        quota = lib.places.program("e2e_quota")
        for argv, env in (((), {"WEIR_MEMORY": "64MiB"}), (("--memory", "64MiB"), {"WEIR_MEMORY": "64mib"})):
            done = run(*argv, "--", quota, "shows", str(64 * MIB), **env)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        asks = {"WEIR_MEMORY": "64MiB"}
        inner = run("--", "sh", "-c", 'echo "<$WEIR_MEMORY>"', **asks)
        self.assertEqual(inner.stdout, "<>\n", "it has been answered")
        for argv, env, status, why in (
                ((), {"WEIR_MEMORY": "2GiB"}, 1, r"memory=2GiB is over the limit of 1GiB \(max_memory"),
                ((), {"WEIR_MEMROY": "64MiB"}, 2, r"WEIR_MEMROY is none of Weir's; did you mean WEIR_MEMORY\?"),
                (("--tenant", "alice"), {"WEIR_MEM": "64MiB"}, 2, r"WEIR_MEM is none of Weir's: WEIR_MEMORY, WEIR_WEIGHT"),
                (("--memory", "32MiB"), asks, 2, "the option 32MiB and WEIR_MEMORY=64MiB contradict each other"),
                (("--tenant", "alice"), asks, 2, "WEIR_MEMORY asks for a share: .*goes with no --tenant"),
                ((), dict(asks, WEIR_HOST=f"ipc://{host.socket('alice')}"), 2, "nor with WEIR_HOST")):
            with self.subTest(argv=argv, env=env):
                done = run(*argv, "--", "echo", "ran", **env)
                self.assertEqual((done.returncode, done.stdout), (status, ""))
                self.assertRegex(done.stderr, "^weir run: .*" + why)
        self.gone(host)
        # A container has only its socket there: the engine has read its variables.
        folder = self.folder()
        os.symlink(host.socket("alice"), os.path.join(folder, "default.sock"))
        done = lib.run_weir("run", "--run-dir", folder, "--", lib.places.program("e2e_minimal"),
                            env=dict(lib.clean_environment(), **asks))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def finished_share(self, host):
        done = subprocess.run(self.run_argv(host, "e2e_minimal"), env=lib.clean_environment(), capture_output=True,
                              text=True, timeout=180)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_a_name_in_the_file_is_the_files(self):
        host = self.serve()
        guest = self.start(host, "e2e_steady")
        guest.wait_line("^round 0$")
        (name,) = self.shares(host)
        host.write_config({"alice": {}, name: {"memory": "96MiB"}})
        host.process.signal(signal.SIGHUP)
        self.assertNotEqual(guest.wait(), 0, "its session ended")
        self.assertEqual(host.tenant(name)["source"], "weir.toml")
        self.finished(host, "e2e_quota", "shows", 96 * MIB, tenant=name)
        self.assertEqual(os.listdir(os.path.join(host.run_dir, "shares")), ["none"])

    def weights(self, host):
        return [row["weight"] for _, row in sorted(self.shares(host).items())]

    def test_shares_of_a_user_weigh_as_one(self):
        host = self.serve("max_weight = 300", tenants={"alice": {"weight": 100}}, args=["--policy", "fair"])
        other = self.guest(host, "sched_load", *LOAD, tenant="alice")
        other.wait_line("^ready$")
        mine = [self.start(host, "sched_load", *LOAD, share=("--weight", "100"))]
        mine[0].wait_line("^ready$")
        self.assertEqual(self.weights(host), [100])
        self.assertServed(host, [0.5, 0.5])
        for _ in range(2):
            mine.append(self.start(host, "sched_load", *LOAD, share=("--weight", "100")))
            mine[-1].wait_line("^ready$")
        self.assertEqual(self.weights(host), [34, 33, 33])
        self.assertServed(host, [0.5, 1 / 6, 1 / 6, 1 / 6])
        # One that goes leaves its part to its user's others, and the heaviest says what all of them weigh.
        mine[1].kill()
        lib.until(lambda: self.weights(host) == [50, 50], 5, "two have what three had")
        heavy = self.start(host, "e2e_quota", "hold", MIB, share=("--weight", "300"))
        heavy.wait_line("^held$")
        self.assertEqual((self.weights(host), sum(self.weights(host))), ([60, 60, 180], 300))
        # What an administrator sets stays, and is not divided; taken back, it is again.
        heaviest = sorted(self.shares(host))[-1]
        place = ("--run-dir", host.run_dir)
        shown = host.weir("tenant", "show", *place, heaviest).stdout
        self.assertRegex(shown, r"(?m)^weight +180 +of the 300 that were asked for$")
        self.assertEqual(host.weir("tenant", "set", *place, heaviest, "weight=700").returncode, 0)
        self.assertEqual(self.weights(host), [50, 50, 700])
        self.assertEqual(host.weir("tenant", "set", *place, heaviest, "weight=").returncode, 0)
        self.assertEqual(self.weights(host), [60, 60, 180])
        heavy.kill()
        lib.until(lambda: self.weights(host) == [50, 50], 5, "it is gone")
        light = self.start(host, "e2e_quota", "hold", MIB, share=("--weight", "1"))
        light.wait_line("^held$")
        self.assertEqual(sum(self.weights(host)), 100)
        self.assertGreaterEqual(min(self.weights(host)), 1)

    def served(self, host):
        return [row["service_sm_ns"] for _, row in sorted((t["name"], t) for t in host.status()["tenant"])]

    def assertServed(self, host, wanted):
        """Soon, and over a while, each has its part of the device's time."""
        seen = []
        for _ in range(5):
            end = time.monotonic() + 1.5
            before = self.served(host)
            lib.until(lambda: time.monotonic() >= end, 3, "the time is over", 0.02)
            had = [b - a for a, b in zip(before, self.served(host))]
            seen.append([n / max(sum(had), 1) for n in had])
            if all(abs(n - w) < CLOSE for n, w in zip(seen[-1], wanted)):
                print(f"{' '.join(f'{100 * n:.1f}' for n in seen[-1])} %;", end=" ", flush=True)
                return
        self.fail(f"wanted {wanted}, had {seen}")

    def as_user(self, uid, *argv, **options):
        return subprocess.run(argv, user=uid, group=uid, extra_groups=[], capture_output=True, text=True, timeout=180,
                              env=lib.clean_environment(), **options)

    def test_ordinary_users_have_shares_of_their_own_and_no_more(self):
        if os.geteuid() != 0 or not lib.places.everybody_gets_there():
            self.skipTest("becoming other users needs root, and they must get to the programs")
        host = self.serve("socket_mode = 0o666", 'memory = "96MiB"', tenants={"alice": {}})
        os.chmod(host.folder, 0o755)
        minimal, quota = lib.places.program("e2e_minimal"), lib.places.program("e2e_quota")
        run = [lib.places.weir, "run", "--run-dir", host.run_dir]
        done = self.as_user(USER, *run, "--new", "--", quota, "shows", str(96 * MIB))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        # Another user's share is out of reach, as are tenants and administration.
        guest = self.start(host, "e2e_quota", "hold", MIB)
        guest.wait_line("^held$")
        (name,) = self.shares(host)
        folder = os.path.join(host.run_dir, "shares", str(os.geteuid()))
        self.assertEqual(stat.S_IMODE(os.stat(folder).st_mode), 0o700)
        for path in (f"{folder}/{name}/default.sock", host.socket("alice")):
            done = self.as_user(USER, *run, "--host", f"ipc://{path}", "--", minimal)
            self.assertEqual(done.returncode, 1, path)
            self.assertIn("Permission denied", done.stderr)
        for words in (("set", name, "weight=3"), ("remove", name), ("list",)):
            done = self.as_user(USER, lib.places.weir, "tenant", *words, "--run-dir", host.run_dir)
            self.assertEqual(done.returncode, 1)
            self.assertIn("permission denied", done.stderr)
        # Within one's own folder nothing can be put in another's way.
        script = f"cd {host.run_dir}/shares/{USER} && ! touch mine && ! ln -s / run-9 && ! ls && echo closed"
        done = self.as_user(USER, *run, "--new", "--", "sh", "-c", script)
        self.assertEqual(done.stdout, "closed\n", done.stderr)
        self.assertEqual(self.ask(host, "run\tself={pid}\tuser=0", uid=USER), "error\tonly root makes shares of other users")
        self.assertRegex(self.ask(host, f"run\tself={{pid}}\tuser={USER}"), r"^ok\trun-\d+\t.*/shares/12345/run-\d+$")
        self.assertRegex(self.ask(host, "run\tself={pid}\tuser=no-such-user"), "there is no user 'no-such-user'")
        guest.kill()
        self.gone(host)
        host.host_lines = []
        host.write_config(["alice"])
        host.process.signal(signal.SIGHUP)
        lib.until(lambda: stat.S_IMODE(os.stat(f"{host.run_dir}/new.sock").st_mode) == 0o660, 5, "it follows")
        done = self.as_user(USER, *run, "--new", "--", "true")
        self.assertEqual((done.returncode, "permission denied" in done.stderr), (1, True))

    def test_a_host_of_an_ordinary_user_serves_that_user(self):
        if os.geteuid() != 0 or not lib.places.everybody_gets_there():
            self.skipTest("becoming other users needs root, and they must get to the programs")
        folder = self.folder()
        os.chown(folder, USER, USER)
        host = self.serve("socket_mode = 0o666", prefix=["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"],
                          run_dir=os.path.join(folder, "run"), worker_user="", start=False)
        os.chmod(host.folder, 0o777)
        self.addCleanup(os.umask, os.umask(0))  # it says to a socket of ours that it is ready
        host.start()
        done = self.as_user(USER, lib.places.weir, "run", "--run-dir", host.run_dir, "--new", "--",
                            lib.places.program("e2e_minimal"))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.refused(host, "--new", why=f"this host is user {USER}'s and makes shares of that user only")

    def ask(self, host, text, uid=None, fds=()):
        """One packet to new.sock, from another process, which then ends; the answer."""
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                if uid is not None:
                    os.setgroups([])
                    os.setgid(uid)
                    os.setuid(uid)
                with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
                    s.settimeout(10)
                    s.connect(f"{host.run_dir}/new.sock")
                    data = text.format(pid=os.getpid()).encode() if isinstance(text, str) else text
                    socket.send_fds(s, [data], list(fds))
                    os.write(write, s.recv(4096))
            except OSError as why:
                os.write(write, f"gone {why}".encode())
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as f:
            answer = f.read()
        os.waitpid(child, 0)
        return answer

    def test_odd_requests_are_refused(self):
        host = self.serve()

        def both_spare():
            return [w["state"] for w in host.status()["worker"]] == ["spare", "spare"]

        lib.until(both_spare, 20, "both spares are there, with their descriptors", 0.05)
        before = len(lib.fds_of(host.pid))
        for text, answer in (("run\tself={pid}\tbeer=1", "'beer' cannot be asked for"),
                             ("run\tself={pid}\tweight", "'weight': a setting is written KEY=VALUE"),
                             ("run", "other pids"), ("run\tself=1", "other pids"), ("run\tself={pid}x", "other pids"),
                             ("dance", "no such request"), ("run\t" + "weight=1\t" * 99, "too many settings"),
                             ("container\tself={pid}\tid=abc", "has a pid and an id"),
                             ("container\tself={pid}\tpid=0\tid=abc", "has a pid and an id"),
                             ("container\tself={pid}\tpid=-1\tid=abc", "has a pid and an id"),
                             ("container\tself={pid}\tpid=99999999999\tid=abc", "has a pid and an id"),
                             ("container\tself={pid}\tpid={pid}\tid=../x", "has a pid and an id"),
                             ("container\tself={pid}\tpid=2147483647\tid=abc", "process 2147483647: No such process"),
                             (b"run\0", "^$"), (b"\xff\xfe\tself=1", "no such request"), (b"x" * 5000, "no such request")):
            self.assertRegex(self.ask(host, text), answer, text)
        with open("/dev/null") as null:
            self.assertRegex(self.ask(host, "run\tself={pid}", fds=[null.fileno()] * 3), "^ok\t")
        idle = []
        for _ in range(40):  # more than the host has room for: the first make room
            s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self.addCleanup(s.close)
            s.connect(f"{host.run_dir}/new.sock")
            idle.append(s)
        self.assertRegex(self.ask(host, "run\tself={pid}"), "^ok\t")
        for s in idle:
            s.settimeout(10)
            self.assertEqual(s.recv(100), b"", "it is not waited for")
        self.gone(host)
        lib.until(lambda: len(lib.fds_of(host.pid)) <= before, 5, "it keeps no descriptor")
        self.finished_share(host)


if __name__ == "__main__":
    lib.main()
