#!/usr/bin/env python3
"""weir.toml: what is checked, where the complaint points, and reloading."""
import os
import re
import signal

import lib

GOOD = '''# a comment
[host]
log = "warn"
window_bytes = "1TiB"

[[tenant]]
name = "alice"
weight = 300
priority = "high"
memory = "25%"
sessions = 8

[[tenant]]
name = "bob"
isolation = "process"
memory = "512MiB"
pinned = 1048576
'''

# text, line, column, a word of the message
BAD = [
    ('[host]\nlogg = "warn"\n', 2, 1, "unknown key 'logg'"),
    ('name = "x"\n', 1, 1, "before any"),
    ('[tenant]\nname = "x"\n', 1, None, "tenant"),
    ('[[tenant]]\nname = "a b"\n', 2, None, "name"),
    ('[[tenant]]\nname = "../x"\n', 2, None, "name"),
    ('[[tenant]]\nname = "admin"\n', 2, None, "admin"),
    ('[[tenant]]\nname = "x"\nweight = 0\n', 3, None, "between"),
    ('[[tenant]]\nname = "x"\nweight = "much"\n', 3, None, "integer"),
    ('[[tenant]]\nname = "x"\nweight = 1\nweight = 2\n', 4, None, "twice"),
    ('[[tenant]]\nname = "x"\npriority = "urgent"\n', 3, None, "priority"),
    ('[[tenant]]\nname = "x"\nmemory = "lots"\n', 3, None, "amount"),
    ('[[tenant]]\nname = "x"\nmemory = "-1GiB"\n', 3, None, "amount"),
    ('[[tenant]]\nname = "x"\nkey = "short"\n', 3, None, "key"),
    ('[[tenant]]\nname = "x"\n[[tenant]]\nname = "x"\n', None, None, "x"),
    ('[[tenant]]\nweight = 5\n', None, None, "name"),
    ('[host]\nwindow_bytes = "3GiB"\n', 2, None, "power of two"),
    ('[host]\ndevice = 99\n', 2, None, "between"),
    ('[host]\nlog = "unfinished\n', 2, None, ""),
    ('[host\n', 1, None, ""),
    ('[host]\n= 5\n', 2, None, ""),
    ('[host]\nlog = "a" junk\n', 2, None, ""),
    ('\x00\x01\x02', 1, None, ""),
]


# The same, where it is no single place.
BAD_TOGETHER = (
    ('[default]\nmax_memory = "8GiB"\nmemory = "25%"\n', "[default]: 'memory' is not within 'max_memory'"),
)


class Config(lib.Case):
    def check(self, text):
        path = os.path.join(self.folder(), "weir.toml")
        with open(path, "w") as f:
            f.write(text)
        return path, lib.run_weir("serve", "--check", "--config", path)

    def test_good(self):
        _, result = self.check(GOOD)
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_the_packaged_file_is_good(self):
        path = os.path.join(lib.places.source, "packaging/weir.toml")
        if not os.path.exists(path):
            self.skipTest("not in a source tree")
        result = lib.run_weir("serve", "--check", "--config", path)
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_bad(self):
        for text, line, column, word in BAD:
            with self.subTest(text=text):
                path, result = self.check(text)
                self.assertEqual(result.returncode, 2, result.stderr)
                where = path + (f":{line}:" if line else ":")
                where += f"{column}:" if column else ""
                self.assertIn(where, result.stderr)
                self.assertRegex(result.stderr, r":\d+:\d+: \S")
                self.assertIn(word, result.stderr)
                self.assertEqual(len(result.stderr.splitlines()), 1, "one complaint")

    def test_bad_together(self):
        for text, complaint in BAD_TOGETHER:
            with self.subTest(text=text):
                path, result = self.check(text)
                self.assertEqual((result.returncode, result.stderr), (2, f"{path}: {complaint}\n"))

    def test_the_log_of_the_file(self):
        """The supervisor has it, as workers do; --log goes before it. A check makes no file."""
        folder = self.folder()
        text = f'[host]\nlog = "debug:{folder}/host.log"\n'
        _, result = self.check(text)
        self.assertEqual((result.returncode, result.stderr, os.listdir(folder)), (0, "", []))
        for log, code in (("loud", 2), (f"info:{folder}/none/host.log", 1)):
            _, result = self.check(f'[host]\nlog = "{log}"\n')
            self.assertEqual(result.returncode, code)
            self.assertIn(f"log '{log}': ", result.stderr)
        path, _ = self.check(text)
        argv = [lib.places.weir, "serve", "--config", path, "--run-dir", os.path.join(folder, "run"), "--driver", "softgpu"]
        host = lib.Process(argv, env=dict(lib.clean_environment(), XDG_CACHE_HOME=folder), name="weir serve")
        self.addCleanup(host.kill)

        def said():
            with open(f"{folder}/host.log") as f:
                return f.read()

        lib.until(lambda: os.path.exists(f"{folder}/host.log") and "weir serve info supervisor: ready" in said(), 20, "the log of the file")
        host.signal(signal.SIGTERM)
        self.assertEqual((host.wait(), host.err), (0, ""))

    def test_no_such_file(self):
        result = lib.run_weir("serve", "--check", "--config", "/nonexistent/weir.toml")
        self.assertEqual(result.returncode, 2)
        self.assertIn("/nonexistent/weir.toml", result.stderr)

    def test_a_bad_file_does_not_start_a_host(self):
        path, _ = self.check("[host]\nbogus = 1\n")
        result = lib.run_weir("serve", "--config", path, "--run-dir", self.folder())
        self.assertEqual(result.returncode, 2)
        self.assertIn(":2:1: ", result.stderr)

    def test_tcp_needs_a_server_key(self):
        _, result = self.check('[host]\nlisten_tcp = "127.0.0.1:1"\n')
        self.assertEqual(result.returncode, 2)
        self.assertIn("server_key", result.stderr)

    def test_a_key_without_a_worker_that_listens_is_warned_of(self):
        warning = "its remote guests are turned away.* tenant=alice"
        tenants = {"alice": {"isolation": "strict"}, "bob": {"isolation": "program"}}
        host = self.host(tenants, remote=self.remote())
        host.process.wait_log(warning)
        self.finished(host, "e2e_minimal", tenant="bob", arrangement=lib.TCP)
        host.process.signal(signal.SIGHUP)
        lib.until(lambda: len(re.findall(warning, host.process.err)) == 2, 5, "again")
        self.assertNotRegex(host.process.err, "turned away.* tenant=bob")

    def test_reload(self):
        host = self.host({"alice": {"weight": 100}, "gone": {}})
        steady = self.steady(host, tenant="alice")
        host.write_config({"alice": {"weight": 250, "memory": "512MiB"}, "carol": {}})
        host.process.signal(signal.SIGHUP)
        lib.until(lambda: os.path.exists(host.socket("carol")), 5, "the new tenant's socket")
        lib.until(lambda: not os.path.exists(host.socket("gone")), 5, "the old one's is gone")
        self.finished(host, "e2e_minimal", tenant="carol")
        self.assertEqual(host.tenant("alice")["weight"], 250)
        self.assertEqual([t["name"] for t in host.status()["tenant"]], ["alice", "carol"])
        lib.until(lambda: host.tenant("alice")["quota_bytes"] == 512 << 20, 5, "the new quota")
        self.steady_undisturbed(steady)
        # A bad file changes nothing.
        with open(host.config, "a") as f:
            f.write("bogus = 1\n")
        lines = len(host.process.errors)
        host.process.signal(signal.SIGHUP)
        lib.until(lambda: any("not reloaded" in l for l in host.process.errors[lines:]), 5,
                  "the log says so")
        self.finished(host, "e2e_minimal", tenant="carol")
        self.assertEqual(host.stop(), 0)

    def test_isolation_process(self):
        host = self.host({"alice": {"isolation": "group"}, "bob": {"isolation": "process"}})
        workers = host.status()["worker"]
        self.assertEqual(sorted(w["tenant"] for w in workers), ["", "bob"])
        steady = self.steady(host, tenant="bob")
        shared = next(w["pid"] for w in workers if not w["tenant"])
        self.finished(host, "e2e_minimal", tenant="alice")
        os.kill(shared, signal.SIGKILL)
        self.steady_undisturbed(steady)  # another worker's death is not bob's
        lib.until(lambda: all(w["pid"] for w in host.status()["worker"]), 10, "both live", 0.05)
        self.finished(host, "e2e_minimal", tenant="alice")
        host.wait_idle()


if __name__ == "__main__":
    lib.main()
