#!/usr/bin/env python3
"""weir tenant and weir top: a running host's tenants shown and changed."""
import os
import pty
import re
import signal
import socket
import subprocess
import termios

import lib

SPARES = 2  # spare_workers, where weir.toml says nothing
MIB = 1 << 20


MOST = 256  # tenants


class Tenant(lib.Case):
    def tenant(self, host, *words, expect=0):
        result = lib.run_weir("tenant", *words, "--run-dir", host.run_dir)
        self.assertEqual(result.returncode, expect, f"{words}: {result.stdout}{result.stderr}")
        return result

    def config(self, host):
        with open(host.config) as f:
            return f.read()

    def test_set_is_in_effect_when_it_returns(self):
        host = self.host({"alice": {"weight": 100, "memory": "256MiB"}, "bob": {}})
        steady = self.steady(host)
        before = self.config(host)
        took = []
        for _ in range(5):  # the best of some, because this machine may be busy
            self.tenant(host, "set", "alice", "weight=")
            begin = lib.lived_s()
            result = self.tenant(host, "set", "alice", "weight=300", "priority=high",
                                 "memory=128MiB", "sm-limit=50")
            took.append(lib.lived_s() - begin)
        self.assertLess(min(took), 0.1)
        self.assertRegex(result.stdout, r"alice: weight 100 -> 300 \(until the host ends; "
                         r"weir.toml: 100\)")
        row = host.tenant("alice")
        self.assertEqual((row["weight"], row["priority"], row["sm_limit_pct"], row["quota_bytes"]),
                         (300, "high", 50, 128 * MIB))
        self.finished(host, "e2e_quota", "check", 128 * MIB)  # what its programs see
        self.assertEqual(self.config(host), before, "the file is as it was")
        self.assertRegex(self.tenant(host, "list").stdout, r"alice +300 high +50% .*4 changed since")
        shown = self.tenant(host, "show", "alice").stdout
        self.assertRegex(shown, r"weight +300 +by weir tenant, until the host ends; weir.toml: 100")
        # Back to what weir.toml says.
        self.tenant(host, "set", "alice", "weight=", "priority=", "memory=", "sm_limit=")
        row = host.tenant("alice")
        self.assertEqual((row["weight"], row["quota_bytes"], row["changed"]), (100, 256 * MIB, 0))
        self.steady_undisturbed(steady)

    def test_wrong_settings_change_nothing(self):
        host = self.host({"alice": {"weight": 100}})
        for words, complaint in ((("alice", "wieght=3"), r"unknown setting 'wieght'; did you mean 'weight'"),
                                 (("alice", "weight=5", "weight=0"), "between 1 and 10000"),
                                 (("alice", "priority=urgent"), "one of: low, normal, high"),
                                 (("alice", "memory=much"), "amount"),
                                 (("alice", "devices=0"), "restart of the host"),
                                 (("alice", "weight"), "KEY=VALUE"),
                                 (("nobody", "weight=3"), "no tenant 'nobody'")):
            with self.subTest(words=words):
                result = self.tenant(host, "set", *words, expect=1)
                self.assertRegex(result.stderr, complaint)
                self.assertEqual(result.stdout, "")
        self.assertEqual(host.tenant("alice")["changed"], 0)
        self.tenant(host, "set", "alice", "weight=\x01", expect=2)
        self.tenant(host, "set", "alice", *["weight=1"] * 99, expect=2)

    def test_quota_below_what_is_used(self):
        host = self.host({"alice": {"memory": "512MiB"}})
        holder = self.guest(host, "e2e_quota", "hold", 160 * MIB)
        holder.wait_line("^held$")
        result = self.tenant(host, "set", "alice", "memory=64MiB")
        self.assertRegex(result.stderr, "warning: alice uses 16.* MiB, more than 64 MiB")
        small = self.finished(host, "e2e_quota", "fails", 1 * MIB, expect=1)  # nor room for more
        self.assertIn("refused -> 2", small.out)
        self.assertTrue(holder.alive(), "it keeps what it has")
        self.tenant(host, "set", "alice", "memory=256MiB")
        self.finished(host, "e2e_quota", "fails", 160 * MIB)
        more = self.guest(host, "e2e_quota", "hold", 64 * MIB)
        more.wait_line("^held$")
        for guest in (holder, more):
            guest.close_stdin()
            self.assertEqual(guest.wait(), 0)
        host.wait_idle()

    def test_add_and_remove(self):
        host = self.host({"alice": {}})
        self.tenant(host, "add", "carol", "memory=128MiB", "weight=7", "vsock_cid=77")
        self.assertIn("'carol' has the same vsock_cid", self.tenant(host, "add", "dave", "vsock_cid=77", expect=1).stderr)
        self.finished(host, "e2e_minimal", tenant="carol")
        self.assertEqual(host.tenant("carol")["quota_bytes"], 128 * MIB)
        self.assertEqual(host.tenant("carol")["source"], "weir tenant")
        self.assertIn("already", self.tenant(host, "add", "carol", expect=1).stderr)
        self.assertIn("name", self.tenant(host, "add", "../x", expect=1).stderr)
        steady = self.steady(host, tenant="alice")
        guest = self.guest(host, "e2e_steady", tenant="carol")
        guest.wait_line("^round 0$")
        self.tenant(host, "remove", "carol")
        self.assertNotEqual(guest.wait(), 0, "its session ended")
        self.assertFalse(os.path.exists(host.socket("carol")))
        self.assertIn("no tenant", self.tenant(host, "show", "carol", expect=1).stderr)
        self.tenant(host, "add", "carol")
        self.finished(host, "e2e_minimal", tenant="carol")
        self.steady_undisturbed(steady)
        host.wait_idle()

    def test_many_come_and_go(self):
        """More than there are places for: each is free again when nothing is left of its tenant."""
        host = self.host({"alice": {}}, args=("--cdi", os.path.join(self.folder(), "weir.json")))
        steady = self.steady(host, tenant="alice")
        before = None
        for i in range(80):
            self.tenant(host, "add", f"job-{i}", "memory=64MiB")
            if i % 10 == 0:  # its window, images, kernels and account are used, and cleaned
                self.finished(host, "e2e_quota", "check", 64 * MIB, tenant=f"job-{i}")
            if i % 10 == 5:  # .. also when it is removed in the middle of work
                guest = self.guest(host, "e2e_steady", tenant=f"job-{i}")
                guest.wait_line("^round 0$")
            self.tenant(host, "remove", f"job-{i}")
            if i % 10 == 5:
                self.assertNotEqual(guest.wait(), 0, "its session ended")
                guest.close_stdin()
            if i == 40:
                self.spares_are_there(host)
                before = host.resting_footprint()
        row = [t for t in host.status()["tenant"] if t["name"].startswith("job-")]
        self.assertEqual(row, [])
        self.spares_are_there(host)
        lib.until(lambda: host.footprint() == before, 5, f"{host.footprint()} is {before}", 0.1)
        self.steady_undisturbed(steady)
        host.wait_idle()

    def spares_are_there(self, host):
        """Workers that programs had have been replaced; each is a socket of the supervisor's."""
        lib.until(lambda: [w["state"] for w in host.status()["worker"]].count("spare") == SPARES, 20, "the spares are ready")

    def test_a_place_is_kept_while_something_lives(self):
        """All places taken: one that is refused gets the first that becomes free."""
        host = self.host({"alice": {}, **{f"t{i}": {} for i in range(MOST - 64)}})
        for i in range(63):
            self.tenant(host, "add", f"job-{i}")
        self.assertIn("cannot be made", self.tenant(host, "add", "one", expect=1).stderr)
        guest = self.guest(host, "e2e_steady", tenant="job-7")
        guest.wait_line("^round 0$")
        os.kill(guest.pid, 19)  # it does not notice that its session ends
        self.tenant(host, "remove", "job-7")
        self.tenant(host, "add", "job-7", "weight=5")  # the same name, while the old one ends
        self.assertEqual(host.tenant("job-7")["weight"], 5)
        self.finished(host, "e2e_minimal", tenant="job-7")
        self.tenant(host, "remove", "job-7")
        os.kill(guest.pid, 18)
        self.assertNotEqual(guest.wait(), 0)
        lib.until(lambda: lib.run_weir("tenant", "add", "one", "--run-dir",
                                       host.run_dir).returncode == 0, 10, "a place is free")
        self.finished(host, "e2e_minimal", tenant="one")

    def hold(self, host, tenant):
        """A program that has some memory; None: it was refused."""
        guest = self.guest(host, "e2e_quota", "hold", 4096, tenant=tenant)
        lib.until(lambda: "held" in guest.lines or not guest.alive(), 20, "it is held or refused", 0.02)
        return guest if "held" in guest.lines else None

    def test_64_of_many_work_in_one_worker(self):
        """A worker has so many windows of addresses. Who has a worker of its own needs none of them."""
        names = [f"t{i}" for i in range(MOST - 1)]
        host = self.host({**{name: {"isolation": "group"} for name in names}, "own": {"isolation": "tenant"}})
        held = []
        while not held or held[-1] is not None:
            held.append(self.hold(host, names[len(held)]))
        self.assertGreater(len(held), 64)
        lib.until(lambda: any("no window is left" in line for line in host.process.errors), 10, "the log says why")
        self.finished(host, "e2e_minimal", tenant="own")
        self.tenant(host, "remove", names[7])
        held[7].close_stdin()
        self.assertNotEqual(held[7].wait(10), 0, "its session ended")
        lib.until(lambda: self.hold(host, names[200]) is not None, 20, "a window is free")
        for guest in held[:7] + held[8:-1]:
            guest.close_stdin()
            self.assertEqual(guest.wait(20), 0)

    def test_a_worker_ends_with_its_tenant(self):
        host = self.host({"alice": {"isolation": "group"}})
        for i in range(3):
            self.tenant(host, "add", f"job-{i}", "isolation=process")
            lib.until(lambda: all(w["pid"] for w in host.status()["worker"]), 10, "two workers")
            self.assertEqual([w["tenant"] for w in host.status()["worker"]], ["", f"job-{i}"])
            self.finished(host, "e2e_minimal", tenant=f"job-{i}")
            self.tenant(host, "remove", f"job-{i}")
            lib.until(lambda: len(host.status()["worker"]) == 1, 10, "its worker has ended", 0.05)
        self.finished(host, "e2e_minimal")

    def test_a_socket_of_its_own_user(self):
        if os.geteuid() != 0:
            self.skipTest("giving sockets to users needs root")
        host = self.host({"alice": {}, "bob": {"user": "nobody"}},
                         host_lines=["socket_mode = 0o666"],
                         args=("--cdi", os.path.join(self.folder(), "weir.json")))
        self.tenant(host, "add", "carol", "user=12345")
        for name, uid in (("bob", 65534), ("carol", 12345)):
            for path in (host.socket(name), f"{host.run_dir}/vm/{name}.sock"):
                info = os.stat(path)
                self.assertEqual((info.st_uid, info.st_mode & 0o777), (uid, 0o600), path)
        self.assertEqual(os.stat(host.socket("alice")).st_mode & 0o777, 0o666)
        os.chmod(host.folder, 0o755)

        def as_user(uid, path=None):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
                pid = os.fork()
                if pid == 0:
                    os.setgroups([])
                    os.setgid(uid)
                    os.setuid(uid)
                    try:
                        s.connect(path or host.socket("carol"))
                        os._exit(0)
                    except PermissionError:
                        os._exit(1)
                return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

        self.assertEqual(as_user(12345), 0)
        self.assertEqual(as_user(65534), 1)
        # What is mounted into containers is open to any uid there, and on the host the folder above it is the user's.
        for path in (f"{host.run_dir}/users/12345/carol/default.sock", f"{host.run_dir}/containers/carol/default.sock"):
            self.assertEqual(os.stat(path).st_mode & 0o777, 0o666)
            self.assertEqual((as_user(12345, path), as_user(65534, path)), (0, 1))
        for wrong, why in (("user=no-such-user", "there is no user 'no-such-user'"),
                           ("user=-1", "name or number"), ("user=4294967295", "name or number")):
            self.assertIn(why, self.tenant(host, "add", "dave", wrong, expect=1).stderr)
        self.assertIn("restart", self.tenant(host, "set", "carol", "user=1", expect=1).stderr)

    def test_the_group_may_look_but_not_change(self):
        if os.geteuid() != 0:
            self.skipTest("becoming another user needs root")
        host = self.host({"alice": {}})
        os.chmod(host.folder, 0o755)

        def as_nobody(*words):
            return subprocess.run([lib.places.weir, "tenant", *words, "--run-dir", host.run_dir],
                                  user=65534, group=0, extra_groups=[], capture_output=True,
                                  text=True, timeout=180, env=lib.clean_environment())

        try:
            shown = as_nobody("show", "alice")
        except PermissionError:
            self.skipTest("nobody cannot reach the program")
        self.assertEqual((shown.returncode, shown.stderr), (0, ""))
        for words in (("set", "alice", "weight=3"), ("add", "carol"), ("remove", "alice")):
            refused = as_nobody(*words)
            self.assertEqual(refused.returncode, 1)
            self.assertIn("permission denied", refused.stderr)
        self.assertEqual([(t["name"], t["changed"]) for t in host.status()["tenant"]],
                         [("alice", 0)])

    def test_save(self):
        host = self.host({"alice": {"weight": 100}, "bob": {}})
        with open(host.config, "a") as f:
            f.write("# the last line\n")
        self.tenant(host, "set", "alice", "priority=low")
        self.tenant(host, "set", "alice", "weight=250", "memory=25%", "--save")
        self.tenant(host, "add", "carol", "weight=7", "--save")
        self.tenant(host, "remove", "bob", "--save")
        text = self.config(host)
        self.assertIn('weight = 250\n', text)
        self.assertIn('memory = "25%"\n', text)
        self.assertNotIn("bob", text)
        self.assertNotIn("low", text)
        lib.until(lambda: host.tenant("alice")["changed"] == 1, 5, "the host has read its file")
        self.assertEqual(host.tenant("alice")["priority"], "low", "a reload keeps what was set")
        self.assertEqual(host.stop(), 0)
        host.start()
        tenants = {t["name"]: t for t in host.status()["tenant"]}
        self.assertEqual(sorted(tenants), ["alice", "carol"])
        self.assertEqual((tenants["alice"]["weight"], tenants["alice"]["priority"]),
                         (250, "normal"))
        self.assertEqual(tenants["carol"]["source"], "weir.toml")

    def test_a_new_worker_has_the_settings(self):
        host = self.host({"alice": {"memory": "512MiB", "isolation": "group"}})
        self.tenant(host, "set", "alice", "memory=64MiB")
        os.kill(host.worker_pid(), 9)
        lib.until(lambda: host.worker()["restarts"] == 1 and host.worker()["pid"], 10, "a new worker",
                  0.05)
        self.finished(host, "e2e_quota", "check", 64 * MIB)

    def test_top_in_batches(self):
        host = self.host({"alice": {}, "bob": {}})
        steady = self.steady(host)
        result = lib.run_weir("top", "--run-dir", host.run_dir, "--batch", "-n", "3",
                              "--interval-ms", "100")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        frames = re.split(r"\n\n(?=weir top - )", result.stdout)
        self.assertEqual(len(frames), 3)
        for frame in frames:
            self.assertRegex(frame, r"(?m)^weir top - ..:..:.., up \d+ s, 2 tenants, 1 sessions")
            self.assertRegex(frame, r"(?m)^TENANT +WEIGHT +PRIORITY +SHARE +SMS +SM-SECONDS")
            self.assertRegex(frame, r"(?m)^alice +100 normal .* 0$")
            self.assertRegex(frame, r"(?m)^bob +100 normal .* 1$")
            self.assertNotIn("\033", frame)
        self.steady_undisturbed(steady)
        self.terminal(host)
        self.assertEqual(host.stop(), 0)
        gone = lib.run_weir("top", "--run-dir", host.run_dir, "-n", "1")
        self.assertEqual(gone.returncode, 1)
        self.assertIn("is weir serve running?", gone.stderr)

    def terminal(self, host):
        """On a terminal it takes the other screen, and gives everything back when q is pressed."""
        master, slave = pty.openpty()
        before = termios.tcgetattr(slave)
        top = subprocess.Popen([lib.places.weir, "top", "--run-dir", host.run_dir,
                                "--interval-ms", "50"], stdin=slave, stdout=slave,
                               env=dict(lib.clean_environment(), TERM="xterm"), preexec_fn=lib.die_with_parent)
        self.addCleanup(top.kill)
        seen = b""
        while seen.count(b"\x1b[H") < 3:
            seen += os.read(master, 4096)
        self.assertIn(b"\x1b[?1049h", seen)
        self.assertNotEqual(termios.tcgetattr(slave)[3], before[3], "keys without Enter")
        os.write(master, b"q")
        while b"\x1b[?1049l" not in seen:
            seen += os.read(master, 4096)
        self.assertEqual(top.wait(10), 0)
        self.assertEqual(termios.tcgetattr(slave), before)
        os.close(master)
        os.close(slave)

    def test_without_weir_toml(self):
        """What no file says is not said to be a file's."""
        folder = self.folder()
        run_dir = os.path.join(folder, "run")
        host = lib.Process([lib.places.weir, "serve", "--run-dir", run_dir, "--driver", "softgpu", "--log", "warn"],
                           env=dict(lib.clean_environment(), XDG_CACHE_HOME=folder), name="weir serve")
        self.addCleanup(host.kill)
        lib.until(lambda: lib.run_weir("status", "--run-dir", run_dir).returncode == 0, 20, "the host is there", 0.1)
        self.assertRegex(lib.run_weir("tenant", "list", "--run-dir", run_dir).stdout, r"\ndefault .* built in\n$")
        said = lib.run_weir("tenant", "set", "default", "weight=3", "--run-dir", run_dir)
        self.assertEqual((said.returncode, said.stdout), (0, "default: weight 100 -> 3 (until the host ends; built in: 100)\n"), said.stderr)
        saved = lib.run_weir("tenant", "set", "default", "weight=4", "--save", "--run-dir", run_dir)
        self.assertEqual(saved.returncode, 1)
        self.assertIn("the host was started without --config", saved.stderr)
        host.signal(signal.SIGTERM)
        self.assertEqual(host.wait(), 0)


if __name__ == "__main__":
    lib.main()
