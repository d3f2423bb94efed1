#!/usr/bin/env python3
"""weir drain lets no new programs in and ends none; weir restart ends none either, and loses none that comes."""
import contextlib
import json
import os
import signal
import socket
import threading
import time
import urllib.request

import lib

RESTART = 85  # WEIR_SERVE_EXIT_RESTART
UNUSED = 3  # WEIR_EXIT_UNUSED


class Drain(lib.Case):
    def weir(self, host, command, *args, expect=0):
        done = lib.run_weir(command, "--run-dir", host.run_dir, *args)
        self.assertEqual(done.returncode, expect, f"{command} {args}: {done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def refused(self, host, tenant="alice", arrangement=lib.SHM, program="e2e_minimal"):
        """A new program gets CUDA_ERROR_NO_DEVICE, and its user a line that names the drain."""
        guest = self.guest(host, program, tenant=tenant, arrangement=arrangement, env={"WEIR_LOG": ""})
        self.assertNotEqual(guest.wait(30), 0, guest.tail())
        self.assertIn("100", guest.out + guest.err)
        self.assertRegex(guest.err, rf"weir: {program} gets no GPU from \S+: tenant '{tenant}' is drained \(weir drain\)")

    def drained(self, host):
        return {t["name"] for t in host.status()["tenant"] if t["drained"]}

    def test_quotas_are_told_without_a_worker(self):
        """A drained host has no spare workers, from which it learns of the device."""
        tenants = {"alice": {}, "bob": {"memory": "25%"}, "carol": {"memory": "64MiB"}}
        host = self.host(tenants)
        lib.until(lambda: host.tenant("alice")["quota_bytes"], 10, "a worker has told of the device's memory")
        before = self.weir(host, "tenant", "list")
        self.assertRegex(before, r"(?m)^alice .* 4\.0 GiB ")
        self.weir(host, "drain")
        lib.until(lambda: not host.status()["worker"], 20, "there is no worker")
        self.assertEqual(self.weir(host, "tenant", "list"), before)
        again = self.host(tenants, run_dir=host.run_dir, start=False)
        host.process.signal(signal.SIGTERM)
        host.process.wait(20)
        again.start()  # and is drained
        said = self.weir(again, "tenant", "list")
        for tenant, quota in (("alice", r"\?"), ("bob", r"\?"), ("carol", "64 MiB")):
            self.assertRegex(said, rf"(?m)^{tenant} .* {quota} +0  ")

    def test_a_tenant_takes_no_new_programs_and_goes_on(self):
        port = lib.free_port()
        host = self.host(args=["--metrics", f"127.0.0.1:{port}"])
        steady = self.steady(host, tenant="alice")
        self.assertEqual(self.weir(host, "drain", "alice"), "alice: drained, 1 program (alice 1) runs\n")
        self.refused(host)
        self.finished(host, "e2e_minimal", tenant="bob")
        self.assertEqual(self.drained(host), {"alice"})
        self.assertEqual(host.status()["host"][0]["drained"], 0)
        self.assertRegex(self.weir(host, "status"), r"(?m)^alice .*  drained$")
        self.assertRegex(self.weir(host, "top", "--once"), r"(?m)^alice .*  drained\b")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            metrics = answer.read().decode()
        self.assertIn('weir_tenant_drained{tenant="alice"} 1\n', metrics)
        self.assertIn('weir_tenant_drained{tenant="bob"} 0\n', metrics)
        host.process.signal(signal.SIGHUP)
        host.process.wait_log("reloading")
        self.refused(host)
        self.steady_goes_on(steady)
        monitor = self.guest(host, "e2e_nvml", "again", tenant="alice")  # is no program
        monitor.wait_line("^ready$")
        monitor.say("")
        self.ends(host, monitor)
        self.weir(host, "undrain", "alice")
        self.finished(host, "e2e_minimal")
        self.steady_undisturbed(steady)
        events = [e["kind"] for e in map(json.loads, self.weir(host, "events", "--json").splitlines())
                  if e.get("tenant") == "alice" and e["kind"].startswith("drain")]
        self.assertEqual(events, ["drain-began", "drain-ended"])
        host.wait_idle()
        self.assertEqual(host.stop(), 0)

    def test_each_way_to_a_worker(self):
        for isolation in ("group", "process", "program", "strict"):
            for arrangement in (lib.SHM, lib.ZMQ):
                with self.subTest(isolation=isolation, arrangement=arrangement):
                    settings = {"isolation": isolation, **({"group": "g"} if isolation == "group" else {})}
                    host = self.host({"alice": settings, "bob": {}})
                    steady = self.steady(host, tenant="alice", arrangement=arrangement)
                    self.weir(host, "drain", "alice")
                    self.refused(host, arrangement=arrangement)
                    self.finished(host, "e2e_minimal", tenant="bob", arrangement=arrangement)
                    self.weir(host, "undrain")
                    self.finished(host, "e2e_minimal", tenant="alice", arrangement=arrangement)
                    self.steady_undisturbed(steady)
                    host.stop()

    def test_remote_programs(self):
        host = self.host(remote=self.remote())
        steady = self.steady(host, tenant="alice", arrangement=lib.TCP)
        self.weir(host, "drain")
        self.refused(host, arrangement=lib.TCP)
        self.refused(host, tenant="bob", arrangement=lib.TCP)
        self.weir(host, "undrain")
        self.finished(host, "e2e_minimal", tenant="bob", arrangement=lib.TCP)
        self.steady_undisturbed(steady)

    def test_wait(self):
        host = self.host()
        steady, other = self.steady(host, tenant="alice"), self.steady(host, tenant="bob")
        waiter = lib.Process([lib.places.weir, "drain", "--wait", "--run-dir", host.run_dir, "alice"], env=lib.clean_environment())
        self.addCleanup(waiter.kill)
        waiter.wait_line("^alice: drained, 1 program")
        waiter.signal(signal.SIGINT)
        self.assertEqual(waiter.wait(), -signal.SIGINT)
        self.refused(host)
        waiter = lib.Process([lib.places.weir, "drain", "--wait", "--run-dir", host.run_dir], env=lib.clean_environment())
        self.addCleanup(waiter.kill)
        waiter.wait_line(r"^all tenants: drained, 2 programs \(alice 1, bob 1\) run$")
        self.steady_undisturbed(steady)
        waiter.wait_line(r"^all tenants: drained, 1 program \(bob 1\) runs$")
        self.assertTrue(waiter.alive())
        self.steady_undisturbed(other)
        self.assertEqual(waiter.wait(20), 0)
        self.assertEqual(waiter.lines[-1], "all tenants: drained, no program runs")

    def test_all_tenants_over_a_restart(self):
        host = self.host({"alice": {}, "bob": {}}, host_lines=["spare_workers = 1"])
        self.weir(host, "drain", "bob")
        self.weir(host, "drain")
        self.assertEqual(host.status()["host"][0]["drained"], 1)
        self.assertIn("drained: no new programs", self.weir(host, "status"))
        lib.until(lambda: not [w for w in host.status()["worker"] if w["state"]], 20, "the spare workers have ended")
        self.weir(host, "tenant", "add", "late")
        for tenant in ("alice", "bob", "late"):
            self.refused(host, tenant)
        done = lib.run_weir("run", "--run-dir", host.run_dir, "--memory", "64M", "--", "true")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("the host is drained (weir drain)", done.stderr)
        self.assertIn("weir undrain, without a name", self.weir(host, "undrain", "alice", expect=1))
        self.weir(host, "tenant", "remove", "late")
        host.process.kill()
        host.start()
        self.assertEqual(self.drained(host), {"alice", "bob"})
        self.refused(host)
        self.weir(host, "undrain")
        self.finished(host, "e2e_minimal")
        self.finished(host, "e2e_minimal", tenant="bob")
        self.assertFalse(os.path.exists(os.path.join(host.run_dir, "drained")))
        lib.until(lambda: [w for w in host.status()["worker"] if w["state"] == "spare"], 20, "there are spare workers again")
        host.wait_idle()
        self.assertEqual(host.stop(), 0)

    def test_a_tenant_over_a_restart_and_its_removal(self):
        host = self.host()
        self.weir(host, "drain", "bob")
        host.process.kill()
        host.start()
        self.assertEqual(self.drained(host), {"bob"})
        self.weir(host, "tenant", "remove", "bob")
        self.weir(host, "tenant", "add", "bob")
        self.finished(host, "e2e_minimal", tenant="bob")

    def test_wrong_usage(self):
        host = self.host()
        self.assertEqual(self.weir(host, "drain", "carol", expect=1), "weir drain: there is no tenant 'carol'\n")
        self.assertIn("unexpected 'bob'", self.weir(host, "drain", "alice", "bob", expect=2))
        self.assertIn("unexpected 'bob'", self.weir(host, "undrain", "alice", "bob", expect=2))
        self.assertIn("is weir serve running?", lib.run_weir("drain", "--run-dir", self.folder()).stderr)


LINGER = ["linger_s = 30"]


class Restart(lib.Case):
    def restart(self, host, expect=0):
        done = lib.run_weir("restart", "--run-dir", host.run_dir)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def service(self, host):
        """From now on it is started again as by systemd: 0.1 s after it has ended for a restart."""
        end = threading.Event()

        def run():  # hosts end with the thread that has started them
            while not end.wait(0.01):
                if host.process.popen.poll() == RESTART:
                    time.sleep(0.1)
                    host.start()

        self.addCleanup(end.set)
        threading.Thread(target=run, daemon=True).start()

    def test_programs_settings_and_shares_stay(self):
        host = self.host(host_lines=LINGER)
        before = host.pid
        self.service(host)
        steady = self.steady(host, tenant="alice")
        sleeper = lib.Process([lib.places.weir, "run", "--run-dir", host.run_dir, "--memory", "64M", "--", "sleep", "600"],
                              env=lib.clean_environment())
        self.addCleanup(sleeper.kill)
        lib.until(lambda: [t for t in host.status()["tenant"] if t["source"] == "on demand"], 10, "there is a share")
        lib.run_weir("tenant", "set", "--run-dir", host.run_dir, "bob", "weight=7", "memory=64M")
        lib.run_weir("tenant", "add", "--run-dir", host.run_dir, "made")
        said = self.restart(host)
        self.assertNotEqual(host.supervisor_pid(), before)
        self.assertEqual(said, f"restarted: weir {host.status()['host'][0]['version']}, pid {host.supervisor_pid()}\n")
        self.steady_goes_on(steady)
        self.assertEqual(host.tenant("bob")["weight"], 7)
        self.finished(host, "e2e_minimal", tenant="made")
        another = lib.run_weir("run", "--run-dir", host.run_dir, "--memory", "64M", "--", "true")
        self.assertEqual(another.returncode, 0, another.stderr)
        self.assertIn("run-1", [t["name"] for t in host.status()["tenant"]])
        sleeper.kill()
        lib.until(lambda: "run-1" not in [t["name"] for t in host.status()["tenant"]], 20, "the share ends with its program")
        self.steady_undisturbed(steady)
        host.wait_idle()
        self.assertEqual(host.stop(signal.SIGINT), 0)

    def test_not_where_it_would_end_programs(self):
        host = self.host()
        self.assertIn("since linger_s is 0", self.restart(host, expect=1))
        self.assertTrue(host.process.alive())

    def ask_again_and_again(self, host, end):
        while not end.wait(0.2):
            lib.run_weir("restart", "--run-dir", host.run_dir)

    def test_programs_one_after_the_other_notice_nothing(self):
        self.limit(3 * lib.CASE_LIMIT_S)
        for isolation in ("program", "process"):
            with self.subTest(isolation=isolation):
                host = self.host({"alice": {"isolation": isolation}, "bob": {}}, host_lines=LINGER)
                self.service(host)
                end = threading.Event()
                asker = threading.Thread(target=self.ask_again_and_again, args=(host, end))
                asker.start()
                hosts, n = {host.pid}, 0
                try:
                    while len(hosts) < 3 or n < 20:  # each request restarts it
                        self.finished(host, "e2e_minimal")
                        hosts.add(host.pid)
                        n += 1
                finally:
                    end.set()
                    asker.join()

    def test_remote_programs_notice_nothing(self):
        host = self.host(remote=self.remote(), host_lines=LINGER)
        self.service(host)
        for _ in range(4):
            asker = threading.Thread(target=self.restart, args=(host,))
            asker.start()
            self.finished(host, "e2e_minimal", arrangement=lib.TCP)
            asker.join()

    def test_a_monitor_goes_on(self):
        host = self.host(host_lines=LINGER)
        monitor = self.guest(host, "e2e_nvml", "again")
        monitor.wait_line("^ready$")
        self.service(host)
        self.assertIn("restarted: ", self.restart(host))
        monitor.say("")
        self.ends(host, monitor)

    def test_only_a_service(self):
        """Nobody would start another host again."""
        host = self.host(start=False)
        process = lib.Process([lib.places.weir, "serve", "--config", host.config, "--run-dir", host.run_dir, "--driver", lib.DRIVER,
                               "--log", "info"], env=dict(lib.clean_environment(), XDG_CACHE_HOME=lib.cache_home()))
        self.addCleanup(process.kill)
        process.wait_log("supervisor: ready")
        self.assertIn("no service of systemd", self.restart(host, expect=1))
        self.assertTrue(process.alive())

    def test_no_host(self):
        done = lib.run_weir("restart", "--run-dir", self.folder())
        self.assertEqual((done.returncode, "is weir serve running?" in done.stderr), (1, True))

    def test_a_host_that_is_older(self):
        """It knows no such request, and closes the connection. What runs is left alone."""
        folder = self.folder()
        rows = [{"row": "host", "version": "0.0.9", "pid": 7}, {"row": "tenant", "name": "alice", "sessions": 2}, {"row": "end"}]

        def serve(listener):
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        if connection.recv(4096) == b"status\n":
                            connection.sendall("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows).encode())

        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(os.path.join(folder, "admin.sock"))
            listener.listen()
            threading.Thread(target=serve, args=(listener,), daemon=True).start()
            done = lib.run_weir("restart", "--run-dir", folder)
            self.assertEqual((done.returncode, done.stderr), (1, (
                "weir restart: weir 0.0.9 goes on, since 2 programs (alice 2) run. It cannot wait for their ends: once they have "
                "ended, systemctl restart weir\n")))
            self.assertRegex(lib.run_weir("status", "--run-dir", folder).stdout, r"(?m)^host runs 0\.0\.9, installed is \d")
            self.assertRegex(lib.run_weir("doctor", "--run-dir", folder).stdout, r"(?m)^warning +host runs 0\.0\.9, installed is \d")
            # A host that says what it speaks, which is something else, or the same.
            for protocol, refused in ((77, True), (self.host().status()["host"][0]["protocol"], False)):
                rows[0]["protocol"] = protocol
                said = lib.run_weir("status", "--run-dir", folder).stdout
                self.assertEqual("new programs are refused until weir restart" in said, refused, said)
                said = lib.run_weir("doctor", "--run-dir", folder).stdout
                kind = "problem" if refused else "warning"
                self.assertRegex(said, rf"(?m)^{kind} +host runs 0\.0\.9, installed is .*\n +-> weir restart, which ends no program")
                self.assertEqual("new programs are refused" in said, refused, said)
            rows[1]["sessions"] = 0
            self.assertEqual(lib.run_weir("restart", "--run-dir", folder).returncode, UNUSED)


if __name__ == "__main__":
    lib.main()
