#!/usr/bin/env python3
"""Typing errors and other wrong usages: each is refused, in one message that says what is wrong and where."""
import os
import shutil
import signal
import subprocess
import unittest

import lib

ALICE = '[[tenant]]\nname = "alice"\n'
COMMANDS = ("serve", "run", "status", "top", "tenant", "drain", "undrain", "suspend", "resume", "move", "restart", "attach", "detach", "stats", "doctor", "cdi", "docker-args", "keygen",
            "ptx", "trace", "sim")
TENANTS_MAX = 256  # WEIR_CONFIG_TENANTS_MAX
# Actions with an option that has a value: the value is an action's name, too, to be mistaken for one.
ACTIONS = (("tenant", ("list", "show", "set", "add", "remove"), ("run-dir",)),
           ("trace", ("start", "stop", "show", "generate"), ("run-dir", "device", "out", "seed", "duration", "gpu")),
           ("ptx", ("inspect",), ("kernel",)))


class Usage(lib.Case):
    def weir(self, *argv):
        result = lib.run_weir(*argv)
        return result.returncode, result.stderr

    def toml(self, text):
        path = os.path.join(self.folder(), "bad.toml")
        with open(path, "w") as f:
            f.write(text)
        return self.weir("serve", "--check", "--config", path, "--run-dir", self.folder())

    def serve_wrongly(self, *argv):
        """A host that does not start says why in its log, once."""
        code, err = self.weir("serve", "--run-dir", os.path.join(self.folder(), "run"), "--driver", lib.DRIVER, *argv)
        return code, "\n".join(line for line in err.splitlines() if " error " in line and "worker died" not in line)

    def session_too_many(self, host):
        """What a program prints whose tenant has all its sessions."""
        first = self.guest(host, "e2e_steady", tenant="few")
        first.wait_line(r"^round 0$")
        second = lib.run_weir("run", "--run-dir", host.run_dir, "--tenant", "few", "--", lib.places.program("e2e_minimal"))
        first.kill()
        return second.returncode != 0, second.stderr

    def tenant_too_many(self, host):
        for i in range(TENANTS_MAX - len(host.tenants)):
            code, err = self.weir("tenant", "add", "--run-dir", host.run_dir, f"t{i}")
            self.assertEqual((code, err), (0, ""))
        return self.weir("tenant", "add", "--run-dir", host.run_dir, "one-more")

    def stopped(self):
        own_cache = ["", "[forms]", f'cache_dir = "{self.folder()}/cache"']  # the other host has that of both
        host = self.host(("default",), host_lines=own_cache)
        self.finished(host, "e2e_minimal", tenant="default")
        process, code = host.process, host.stop()
        told = ("run as root", "another host has it")  # the class's other host has the same cache
        return code, "\n".join(line for line in process.errors if " warn " in line and not any(text in line for text in told))

    def test_each_is_told(self):
        host = self.host({"alice": {}, "few": {"sessions": 1}})
        here = ("--run-dir", host.run_dir)
        no_host = ("--run-dir", self.folder())
        rows = (
            ("command", lambda: self.weir("stauts"), 2, r"^weir: unknown command 'stauts'; did you mean 'status'\? \(see weir --help\)\n$"),
            ("key", lambda: self.toml(ALICE + "wieght = 300\n"), 2,
             r"bad.toml:3:1: unknown key 'wieght' in \[\[tenant\]\]; did you mean 'weight'\?\n$"),
            ("range", lambda: self.toml(ALICE + "weight = 0\n"), 2, r"bad.toml:3:10: 'weight' must lie between 1 and 10000\n$"),
            ("amount", lambda: self.toml(ALICE + 'memory = "8GiBB"\n'), 2,
             r"bad.toml:3:10: 'memory' must be an amount such as \"8GiB\" or \"25%\"\n$"),
            ("unit", lambda: self.toml(ALICE + "memory = 8\n"), 2, r"bad.toml:3:10: 'memory' is only 8 bytes, and the least is 1MiB: give a unit, as in \"8GiB\"\n$"),
            ("array", lambda: self.toml("[host]\ndevices = [0, 1.5]\n"), 2,
             r"bad.toml:2:11: 'devices' must be an ordinal, or a list such as \"0,1\", \[0, 1\] or \"GPU-4a8f\"\n$"),
            ("array of devices", lambda: self.toml("[host]\ndevices = [0]\n" + ALICE), 0, r"^$"),
            ("dotted key", lambda: self.toml('host.run_dir = "/run/w"\n' + ALICE), 0, r"^$"),
            ("dotted key, wrong", lambda: self.toml("host.run_dri = 1\n"), 2,
             r"bad.toml:1:6: unknown key 'run_dri' in \[host\]; did you mean 'run_dir'\?\n$"),
            ("table", lambda: self.toml("[tenant]\n"), 2, r"bad.toml:1:1: each tenant is a table in two brackets: \[\[tenant\]\]\n$"),
            ("other table", lambda: self.toml("[gpu]\n"), 2,
             r"bad.toml:1:2: unknown table 'gpu': \[host\], \[default\], \[forms\], .* or \[\[tenant\]\]\n$"),
            ("policy", lambda: self.toml('[scheduler]\npolicy = "fifo"\n'), 2,
             r"bad.toml:2:10: no policy is called 'fifo': fair, priority, .*corun.*\n$"),
            ("no host", lambda: self.weir("status", *no_host), 1, r"admin.sock: not found \(is weir serve running\?\)\n$"),
            ("no tenant", lambda: self.weir("run", *here, "--tenant", "alcie", "true"), 1,
             r"^weir run: \S+/alcie.sock: the host has no tenant 'alcie' \(see weir tenant list\)\n$"),
            ("new as a tenant", lambda: self.weir("run", *here, "--tenant", "new", "true"), 2,
             r"^weir run: --tenant 'new': no tenant is called so; weir run --new asks for a share\n$"),
            ("admin as a tenant", lambda: self.weir("why", *here, "--tenant", "admin"), 2,
             r"^weir why: --tenant 'admin': no tenant is called so\n$"),
            ("a path as a tenant", lambda: self.weir("run", *here, "--tenant", "../admin", "true"), 2,
             r"^weir run: --tenant '../admin': no tenant is called so\n$"),
            ("no tenant of that name by default", lambda: self.weir("run", *here, "true"), 1, r": the host has no tenant 'default' "),
            ("no host for cdi", lambda: self.weir("cdi", *no_host), 1, r"^weir cdi: \S+/admin.sock: not found \(is weir serve running\?\)\n$"),
            ("host", lambda: self.weir("run", "--host", "http://x", "--", "ls"), 2, r"^weir run: the host 'http://x': .*ipc://.*\n$"),
            ("key file", lambda: self.weir("run", "--key", "/nonexist", "--", "ls"), 2, r"^weir run: --key '/nonexist': not found .*\n$"),
            ("server key", lambda: self.serve_key(), 1, r"^weir serve: server_key '.*/none': not found\n$"),
            ("sessions", lambda: self.session_too_many(host), True,
             r"(?m)^weir: e2e_minimal gets no GPU from ipc://.*/few.sock: too many sessions: tenant 'few' may have 1 at a time$"),
            ("devices", lambda: self.serve_wrongly("--devices", "7"), 69,
             r"^\S+ worker error worker: there is no device '7', only device 0\n\S+ weir serve error supervisor: no device to serve .*$"),
            ("devices of a tenant", lambda: self.toml(ALICE + 'devices = "0,7"\n'), 1, r"^weir serve: there is no device '7', only device 0\n$"),
            ("driver", lambda: self.serve_wrongly("--driver", "/none.so"), 69,
             r"^\S+ worker error worker: driver not loaded path=/none.so why=\"/none.so: cannot open shared object file: No such file"),
            ("log", lambda: self.weir("serve", "--log", "loud"), 2, r"^weir serve: log 'loud': LEVEL or LEVEL:FILE is wanted; levels are none, error, warn, .*\n$"),
            ("address", lambda: self.toml('[metrics]\nlisten = "9090"\n'), 2,
             r"^weir serve: metrics '9090': a socket's path is wanted, or ADDRESS:PORT with a numeric address, localhost or \*\n$"),
            ("run directory", lambda: self.weir("serve", "--run-dir", f"{self.folder()}/a/b", "--log", "none"), 1,
             r"^weir serve: run_dir '\S+/a/b': No such file or directory \(only its last folder is made\)\n$"),
            ("list of devices", lambda: self.weir("serve", "--devices", "gpu0"), 2, r"^weir serve: --devices 'gpu0': a list such as 0,1 or GPU-4a8f is wanted\n$"),
            ("tenants", lambda: self.tenant_too_many(host), 1,
             r"^weir tenant: tenant 'one-more' cannot be made: a host has room for 256 tenants\n$"),
            ("attach", lambda: self.weir("attach", "vm1", "--weight", "abc", *here), 2,
             r"^weir attach: --weight 'abc': 'weight' must be an integer\n$"),
            ("trace", lambda: self.weir("trace", "start", "--out", "F"), 2,
             r"^weir trace start: unrecognized option '--out'\nSee weir trace start --help.\n$"),
            ("stats", lambda: self.weir("stats", "--tenant", "alcie", *here), 1,
             r"^weir stats: there is no tenant 'alcie'; did you mean 'alice'\?\n$"),
            ("check", lambda: self.weir("serve", "--check", "--device", "9", "--driver", "softgpu", "--run-dir", self.folder()), 1,
             r"^weir serve: there is no device '9', only device 0\n$"),
            ("stop", self.stopped, 0, r"^$"),
            ("second host", lambda: self.weir("serve", *here, "--driver", "softgpu"), 1,
             r"admin.sock: a host is running here already \(see weir status\); another one wants another --run-dir\n$"),
        )
        for name, act, expected, pattern in rows:
            with self.subTest(name):
                code, err = act()
                self.assertEqual(code, expected, err)
                self.assertRegex(err, pattern)

    def serve_key(self):
        folder = self.folder()
        path = os.path.join(folder, "weir.toml")
        with open(path, "w") as f:
            f.write(f'[host]\nlisten_tcp = "127.0.0.1:{lib.free_port()}"\nserver_key = "{folder}/none"\n')
        code, err = self.weir("serve", "--check", "--config", path, "--run-dir", os.path.join(folder, "run"), "--driver", "softgpu")
        self.assertFalse(os.path.exists(os.path.join(folder, "run")), "nothing was begun")
        return code, err

    def test_a_stop_of_all_processes_is_no_alarm(self):
        """As a terminal's ^C and systemd do: workers and gate leave it to the host when they end."""
        for isolation in ("group", "program"):
            host = self.host({"default": {"isolation": isolation}})
            self.finished(host, "e2e_minimal", tenant="default")
            process, pids = host.process, [*lib.children_of(host.pid), host.pid]
            for pid in pids:
                os.kill(pid, signal.SIGTERM)
            self.assertEqual(process.wait(), 0)
            alarms = [line for line in process.errors if " warn " in line or " error " in line]
            self.assertEqual([line for line in alarms if "run as root" not in line], [])

    def test_help_everywhere(self):
        for command in COMMANDS:
            texts = {lib.run_weir(*argv).stdout for argv in (("help", command), (command, "-h"), (command, "--help"))}
            self.assertEqual(len(texts), 1, command)
            self.assertRegex(texts.pop(), rf"^Usage: weir {command}\b")
        for command, actions, _ in ACTIONS:
            for action in actions:
                for argv in (("help", command, action), (command, "-h", action), (command, action, "-h")):
                    self.assertRegex(lib.run_weir(*argv).stdout, rf"^Usage: weir {command} {action}\b", argv)
        code, err = self.weir("help", "sreve")
        self.assertEqual((code, err), (2, "weir: unknown command 'sreve'; did you mean 'serve'? (see weir --help)\n"))

    def test_a_word_too_many(self):
        for command in ("serve", "status", "top", "events", "stats", "doctor", "cdi", "version"):
            code, err = self.weir(command, "extra")
            self.assertEqual((code, err), (2, f"weir {command}: unexpected 'extra' (see weir {command} --help)\n"))

    def test_misspelt_options_and_actions(self):
        for argv, meant in ((("serve", "--devcies", "1"), "Did you mean --devices?"), (("stats", "--tennant", "a"), "Did you mean --tenant?"),
                            (("tenant", "sett"), "did you mean 'set'?"), (("trace", "stat"), "did you mean 'start'?")):
            code, err = self.weir(*argv)
            self.assertEqual(code, 2, argv)
            self.assertIn(meant, err)
        code, err = self.weir("serve", "--nothing-like-it")
        self.assertEqual(code, 2)
        self.assertNotIn("Did you mean", err)

    def test_options_stand_anywhere(self):
        """In front of an action, behind it, and behind the words; a value is not taken for the action."""
        for command, actions, valued in ACTIONS:
            for option in valued:
                for words in ((f"--{option}", actions[0]), (f"--{option}={actions[0]}",)):
                    result = lib.run_weir(command, *words, actions[-1], "--help")  # it may not have this option
                    self.assertRegex(result.stdout + result.stderr, rf"^(Usage: )?weir {command} {actions[-1]}\b", (option, words))
            for action in actions:  # and all options with a value are in the table above
                text = lib.run_weir(command, action, "--help").stdout
                for line in text.splitlines():
                    words = line.split()
                    if line.startswith("  --") and len(words) > 1 and words[1].isupper():
                        self.assertIn(words[0][2:], valued, f"weir {command} {action}")
        host = self.host()
        here = ("--run-dir", host.run_dir)
        for argv in ((*here, "set", "alice", "weight=7"), ("set", *here, "alice", "weight=7"), ("set", "alice", "weight=7", *here)):
            result = lib.run_weir("tenant", *argv)
            self.assertEqual((result.returncode, result.stderr), (0, ""), argv)
            self.assertIn("weight", result.stdout)

    def refused(self, env, program="e2e_minimal"):
        """A program that finds no session; gives what it prints on standard error."""
        environment = dict(lib.clean_environment(), LD_LIBRARY_PATH=lib.places.guest_lib, **env)
        result = subprocess.run([lib.places.program(program)], env=environment, capture_output=True, text=True, timeout=180)
        self.assertNotEqual(result.returncode, 0)
        return [line for line in result.stderr.splitlines() if line.startswith("weir: ")]

    def test_the_user_of_a_refused_program_is_told(self):
        host = self.host({"few": {"sessions": 1}, "gone": {}})
        few, gone = f"ipc://{host.socket('few')}", f"ipc://{host.socket('gone')}"
        first = self.guest(host, "e2e_steady", tenant="few")
        first.wait_line(r"^round 0$")
        said = self.refused({"WEIR_HOST": few})
        self.assertEqual(len(said), 1)
        self.assertIn("too many sessions: tenant 'few' may have 1 at a time", said[0])
        self.assertEqual(self.refused({"WEIR_HOST": few, "WEIR_LOG": "none"}), [], "silenced")
        self.assertEqual(self.refused({"WEIR_HOST": few, "WEIR_LOG": "error"}), [], "the log has it")
        self.assertEqual(lib.run_weir("tenant", "remove", "gone", "--run-dir", host.run_dir).returncode, 0)
        self.assertRegex("\n".join(self.refused({"WEIR_HOST": gone})), r"^weir: e2e_minimal gets no GPU from .*gone.sock: not found \(the host is down, or has no such tenant\)$")
        if not os.path.exists("/run/weir"):
            self.assertEqual(self.refused({"WEIR_HOST": ""}), [], "a program on a machine without a host looks for a GPU")
        again = "import ctypes as c; l = c.CDLL('libcuda.so.1'); print(*(l.cuInit(0) for i in range(3)))"
        environment = dict(lib.clean_environment(), LD_LIBRARY_PATH=lib.places.guest_lib, WEIR_HOST=gone)
        result = subprocess.run(["python3", "-c", again], env=environment, capture_output=True, text=True, timeout=180)
        self.assertEqual(result.stdout, "100 100 100\n")
        self.assertEqual(result.stderr.count("weir: "), 1, "once in a process")

    @unittest.skipUnless(os.geteuid() == 0 and shutil.which("setpriv"), "wants root and setpriv")
    def test_output_that_is_not_written_is_told(self):
        host = self.host(["alice"])
        for command in (("status",), ("tenant", "list"), ("cdi",), ("--version",)):
            place = () if command == ("--version",) else ("--run-dir", host.run_dir)
            with open("/dev/full", "w") as full:
                done = subprocess.run([lib.places.weir, *command, *place], stdout=full, stderr=subprocess.PIPE, text=True,
                                      env=lib.clean_environment(), timeout=180)
            self.assertEqual((done.returncode, done.stderr), (1, "weir: standard output: No space left on device\n"), command)

    def test_the_user_without_permission_is_told(self):
        host = self.host({"alice": {}}, host_lines=["socket_mode = 0o600"])
        os.chmod(host.folder, 0o711)
        os.chmod(host.run_dir, 0o711)
        environment = dict(lib.clean_environment(), WEIR_HOST=f"ipc://{host.socket('alice')}")
        library = os.path.join(lib.places.guest_lib, "libcuda.so.1")
        probe = f"import ctypes; print(ctypes.CDLL('{library}').cuInit(0))"
        result = subprocess.run(["setpriv", "--reuid=65534", "--clear-groups", "python3", "-c", probe], env=environment, capture_output=True,
                                text=True, timeout=180)
        if "cannot open shared object" in result.stderr:
            self.skipTest("another user cannot read the build tree")
        self.assertEqual(result.stdout, "100\n")
        self.assertRegex(result.stderr, r"^weir: python3\S* gets no GPU from .*alice.sock: permission denied \(this user may not be that tenant\)\n$")
        bad = os.path.join(host.folder, "bad.toml")
        with open(bad, "w") as f:
            os.fchmod(f.fileno(), 0o600)
        here = ("--run-dir", host.run_dir)
        for argv, status, said in (
                (("status", *here), 1, r"admin.sock: permission denied \(root and the group of this socket may ask the host\)$"),
                (("run", *here, "--tenant", "alice", "true"), 1, r"alice.sock: Permission denied: this user may not be that tenant \(see socket_mode and user "),
                (("run", *here, "--tenant", "none", "true"), 1, r"the host has no tenant 'none' "),
                (("run", *here, "--new", "true"), 1, r"new.sock: permission denied \(who may ask says socket_mode in \[default\] "),
                (("doctor", *here), 1, r"problem +the host here has no tenant 'default', and this user may not ask it for others\n +-> run weir doctor as root"),
                (("serve", *here), 1, r"admin.sock: permission denied: name a --run-dir that this user may write to$"),
                (("serve", "--config", bad), 2, r"bad.toml: permission denied$")):
            result = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", lib.places.weir, *argv],
                                    env=lib.clean_environment(), capture_output=True, text=True, timeout=180)
            self.assertEqual(result.returncode, status, result.stderr)
            self.assertRegex(result.stdout + result.stderr.strip(), f"(?m){said}")

    def test_a_reload_names_what_it_does_not_change(self):
        host = self.host({"alice": {"weight": 1}})
        host.host_lines += ["quarantine_s = 7", 'log = "warn"']
        host.write_config({"alice": {"weight": 2}})
        with open(host.config, "a") as f:
            f.write(f'[libvirt]\nuri = "test:///"\n[scheduler]\npolicy = "priority"\n')
        host.process.signal(signal.SIGHUP)
        lib.until(lambda: host.tenant("alice")["weight"] == 2, 5, "the new weight")
        lib.until(lambda: host.status()["host"][0]["policy"].startswith("priority"), 5, "the new policy")
        lines = [line for line in host.process.errors if "change with a restart" in line]
        self.assertEqual(len(lines), 1)
        self.assertTrue(lines[0].endswith('keys="[host] quarantine_s, [libvirt] uri"'), lines[0])

    def test_overcommitted_memory_is_remarked(self):
        """80 % and 80 % of a GPU; 25 % and what there is of it are not too much, nor is no quota at all."""
        much = "promise 160 % of a GPU's memory"
        for tenants, remarked in (({"a": {"memory": "80%"}, "b": {"memory": "80%"}}, True),
                                  ({"a": {"memory": "75%"}, "b": {"memory": "25%"}, "c": {}}, False)):
            host = self.host(tenants)
            check = lib.run_weir("serve", "--check", "--config", host.config, "--run-dir", host.run_dir, "--driver", lib.DRIVER)
            self.assertEqual((check.returncode, much in check.stderr), (0, remarked), "a remark is no failure")
            doctor = lib.run_weir("doctor", "--run-dir", host.run_dir)
            self.assertEqual((doctor.returncode, much in doctor.stdout), (0, remarked), doctor.stdout)
            def times(process=host.process):
                return sum(much in line for line in process.errors)
            if remarked:
                lib.until(times, 10, "the log has the remark")
            self.assertEqual(times(), remarked)
        total = host.status()["worker"][0]["memory_bytes"]
        for name in ("a", "b"):  # in bytes, and while the host runs
            lib.run_weir("tenant", "set", name, f"memory={total // 10 * 8}", "--run-dir", host.run_dir)
        self.assertEqual(host.status()["host"][0]["memory_promised_pct"], 159)

    def test_check_warns_of_a_quota_that_no_gpu_has(self):
        host = self.host({"a": {"memory": "900TiB"}, "b": {"memory": "1GiB"}}, host_lines=["", "[default]", 'max_memory = "800TiB"'])
        check = lib.run_weir("serve", "--check", "--config", host.config, "--run-dir", host.run_dir, "--driver", lib.DRIVER)
        self.assertEqual(check.returncode, 0, check.stderr)
        self.assertRegex(check.stderr, r"warning: \[default\]: memory=800TiB is more than the GPU has, \d+ MiB\n")
        for name in ("a", "b"):
            self.assertEqual(f"warning: tenant '{name}': memory=" in check.stderr, name == "a")

    def test_check_looks_at_places(self):
        folder = self.folder()
        plain = os.path.join(folder, "plain")
        with open(plain, "w"):
            pass
        in_the_way = os.path.join(folder, "way")
        os.makedirs(os.path.join(in_the_way, "admin.sock"))
        for argv, words in ((("--run-dir", "/nonexistent/weir/run"), "run_dir cannot be made in '/nonexistent/weir': No such file"),
                            (("--run-dir", plain), f"run_dir '{plain}': Not a directory"),
                            (("--run-dir", in_the_way), "admin.sock': another file is in its place"),
                            (("--run-dir", os.path.join(folder, "x" * 100)), "socket has"),
                            (("--driver", "/no/such.so"), "no driver '/no/such.so' that has a device"),
                            (("--devices", "0,GPU-ffffffff"), "there is no device 'GPU-ffffffff'"),
                            (("--metrics", f"{folder}/none/m.sock"), "m.sock': No such file")):
            with self.subTest(argv):
                where = () if "--run-dir" in argv else ("--run-dir", os.path.join(folder, "run"))
                driver = () if "--driver" in argv else ("--driver", "softgpu")
                code, err = self.weir("serve", "--check", *argv, *where, *driver)
                self.assertEqual(code, 2 if words == "socket has" else 1, err)  # no machine has room for such a path
                self.assertIn(words, err)
                self.assertRegex(err, r"^weir serve: .+\n$")
        self.assertFalse(os.path.exists(os.path.join(folder, "run")), "nothing is made")
        code, err = self.weir("serve", "--check", "--devices", "9", "--metrics", f"{folder}/none/m.sock", "--run-dir", plain, "--driver", "softgpu")
        self.assertEqual((code, len(err.splitlines())), (1, 3), "all complaints")

    def test_check_beside_a_running_host(self):
        host = self.host(args=["--metrics", f"127.0.0.1:{lib.free_port()}"])
        result = lib.run_weir("serve", "--check", "--config", host.config, "--run-dir", host.run_dir, "--driver", "softgpu", *host.args)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(len(host.status()["tenant"]), 2)


if __name__ == "__main__":
    lib.main()
