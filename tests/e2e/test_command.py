#!/usr/bin/env python3
"""The weir command: exit statuses, help, man pages, doctor, keygen, status."""
import json
import os
import re
import shutil
import stat
import subprocess

import lib

COMMANDS = ("serve", "run", "status", "doctor", "keygen", "ptx", "trace", "sim", "version")
PTX_ACTIONS = ("inspect",)


class Command(lib.Case):
    def test_help(self):
        result = lib.run_weir("--help")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        for name in COMMANDS:
            self.assertRegex(result.stdout, rf"(?m)^  {name} +\S")
            one = lib.run_weir(name, "--help")
            self.assertEqual((one.returncode, one.stderr), (0, ""))
            self.assertTrue(one.stdout.startswith(f"Usage: weir {name}"), one.stdout)
            self.assertIn("--help", one.stdout)
            for other in ((name, "-h"), ("help", name)):
                self.assertEqual(lib.run_weir(*other).stdout, one.stdout)
        self.assertNotIn("worker", result.stdout, "the worker is not for people")
        for argv in (("-h",), ("help",)):
            self.assertEqual(lib.run_weir(*argv).stdout, result.stdout)
        action = lib.run_weir("help", "trace", "show").stdout
        self.assertTrue(action.startswith("Usage: weir trace show FILE\n"), action)

    def test_options_anywhere_before_dashes(self):
        good = self.ptx("k.ptx", ".entry a() { ret; }\n.entry b() { ret; }\n")
        want = lib.run_weir("ptx", "inspect", "--json", "--kernel", "b", good).stdout
        self.assertEqual(json.loads(want)["kernel"], "b")
        for argv in ((good, "--json", "--kernel", "b"), ("--json", good, "--kernel=b"),
                     ("--json", "--kernel", "b", "--", good)):
            with self.subTest(argv=argv):
                result = lib.run_weir("ptx", "inspect", *argv)
                self.assertEqual((result.returncode, result.stdout), (0, want), result.stderr)
        hidden = lib.run_weir("ptx", "inspect", good, "--", "--json")
        self.assertEqual(hidden.returncode, 2, "two files, one of them called --json")
        late = lib.run_weir("ptx", "inspect", good, "--bogus")
        self.assertEqual((late.returncode, late.stdout), (2, ""))
        self.assertIn("weir ptx inspect: unrecognized option '--bogus'", late.stderr)

    def test_wrong_usage(self):
        for argv in ((), ("bogus",), ("run",), ("run", "--"), ("run", "--bogus", "true"),
                     ("run", "--tenant"), ("serve", "extra"), ("serve", "--check=yes"),
                     ("serve", "--device", "x"), ("serve", "--window-bytes", "-1"), ("keygen",),
                     ("status", "--bogus")):
            with self.subTest(argv=argv):
                result = lib.run_weir(*argv)
                self.assertEqual(result.returncode, 2, result.stderr)
                self.assertTrue(result.stderr)
                self.assertEqual(result.stdout, "")

    def test_version(self):
        for argv in (("version",), ("--version",)):
            result = lib.run_weir(*argv)
            self.assertEqual(result.returncode, 0)
            self.assertRegex(result.stdout, r"^weir \d+\.\d+\.\d+\n$")

    def test_man_pages(self):
        folder = os.path.join(lib.places.source, "docs/man")
        if not os.path.isdir(folder):
            self.skipTest("not in a source tree")
        for name in ("weir.1.scd.in", *(f"weir-{c}.1.scd" for c in COMMANDS), "weir.toml.5.scd", "weir-libcuda.7.scd"):
            path = os.path.join(folder, name)
            self.assertTrue(os.path.exists(path), f"no page {name}")
        for command in COMMANDS:  # every option of the help stands in the page
            with open(os.path.join(folder, f"weir-{command}.1.scd")) as f:
                page = f.read()
            for option in re.findall(r"^  (--[a-z-]+)", lib.run_weir(command, "--help").stdout, re.M):
                if option != "--help":
                    self.assertIn(option, page, f"weir-{command}(1) does not tell of it")

    def test_page_of_policies(self):
        with open(os.path.join(lib.places.source, "sched/policies.def")) as f:
            policies = re.findall(r"^WEIR_POLICY\((\w+)\)", f.read(), re.M)
        with open(os.path.join(lib.places.source, "docs/man/weir-policy.7.scd")) as f:
            page = f.read()
        self.assertEqual(sorted(re.findall(r"^\*(\w+)\*$", page, re.M)), sorted(policies))

    def test_page_of_weir_toml(self):
        with open(os.path.join(lib.places.source, "host_backend/config/config.c")) as f:
            keys = set(re.findall(r'^    \{"(\w+)", ROW_', f.read(), re.M))
        with open(os.path.join(lib.places.source, "host_backend/config/tenant.def")) as f:
            keys |= set(re.findall(r"^WEIR_SETTING\((\w+), ROW_", f.read(), re.M))
        with open(os.path.join(lib.places.source, "docs/man/weir.toml.5.scd")) as f:
            told = set(re.findall(r"\*(\w+)\*", f.read()))
        self.assertGreater(len(keys), 50)
        self.assertEqual(keys - told, set())

    def test_page_of_stats(self):
        with open(os.path.join(lib.places.source, "docs/man/weir-stats.1.scd")) as f:
            told = set(re.findall(r"\b_(\w+)_\b", f.read().replace("\\", "")))
        rows = set()
        for path, row in (("twins", r'^WEIR_FORMS_ROW\(\w+, "(\w+)"'), ("runs", r"^WEIR_RUNS_ROW\((\w+)\)")):
            with open(os.path.join(lib.places.source, f"host_backend/worker/{path}/counts.def")) as f:
                rows |= set(re.findall(row, f.read(), re.M))
        self.assertEqual(rows - told, set())

    def test_ptx_pages(self):
        with open(os.path.join(lib.places.source, "docs/man/weir-ptx.1.scd")) as f:
            page = f.read()
        for action in PTX_ACTIONS:
            text = lib.run_weir("ptx", action, "--help").stdout
            self.assertTrue(text.startswith(f"Usage: weir ptx {action}"), text)
            for option in re.findall(r"^  (--[a-z-]+)", text, re.M):
                if option != "--help":
                    self.assertIn(option, page, f"weir-ptx(1) does not tell of {action}'s")

    def ptx(self, name, body):
        path = os.path.join(self.folder(), name)
        with open(path, "w") as f:
            f.write(".version 9.0\n.target sm_90\n.address_size 64\n" + body)
        return path

    def test_ptx_inspect(self):
        path = self.ptx("k.ptx", ".entry plain() {\n.reg .b32 r;\nmov.u32 r, %ctaid.x;\nret;\n}\n"
                                 ".entry sync() {\n.reg .b32 r;\nbar.sync 3, 64;\nbar.sync 3, 64;\n"
                                 "mov.u32 r, %envreg1;\nret;\n}\n")
        text = lib.run_weir("ptx", "inspect", path)
        self.assertEqual((text.returncode, text.stderr), (0, ""))
        self.assertIn("plain (line 4)\n  forms: original, ticket, persistent\n", text.stdout)
        self.assertIn("\n  reads %ctaid (line 6)\n", text.stdout)
        self.assertIn("\n  not ticket: all blocks of a grid-wide barrier must be resident at once\n",
                      text.stdout)
        self.assertIn("\n  barrier 3: 2 sync, 0 arrive, 0 reduction, 2 with a count of 64 threads\n",
                      text.stdout)
        rows = lib.run_weir("ptx", "inspect", "--json", path).stdout.splitlines()
        plain, sync = (json.loads(row) for row in rows)
        self.assertEqual(plain["forms"], ["original", "ticket", "persistent"])
        self.assertEqual((plain["refused"], plain["facts"]["ctaid"]),
                         ({}, {"count": 1, "line": 6, "function": "plain"}))
        self.assertEqual((sync["forms"], sync["refused"]["ticket"]["facts"]),
                         (["original"], ["grid_sync"]))
        self.assertEqual(sync["barriers"], [{"number": 3, "sync": 2, "arrive": 0, "red": 0,
                                             "counted": 2, "threads": 64}])
        one = lib.run_weir("ptx", "inspect", "--json", "--kernel", "sync", path)
        self.assertEqual(one.stdout.splitlines(), rows[1:])

    def test_ptx_inspect_same_code_has_same_hash(self):
        body = "{\n.reg .b32 r;\nmov.u32 r, %ctaid.x;\nret;\n}\n"
        path = self.ptx("k.ptx", f".entry a(.param .u64 a_param_0) {body}.entry bb(.param .u64 bb_param_0) {body}"
                                 ".entry c() { ret; }\n")
        rows = [json.loads(row)["hash"]
                for row in lib.run_weir("ptx", "inspect", "--json", path).stdout.splitlines()]
        self.assertEqual((len(rows), rows[0], len(set(rows))), (3, rows[1], 2))

    def test_ptx_wrong_files(self):
        bad = self.ptx("bad.ptx", ".entry k() { nonsense; ret; }\n")
        good = self.ptx("good.ptx", ".entry k() { ret; }\n")
        for action in PTX_ACTIONS:
            for argv, status, words in (((bad,), 1, "bad.ptx:4:14"), (("/no/such",), 1, "/no/such"),
                                        ((), 2, "FILE is missing"), ((good, good), 2, "unexpected")):
                with self.subTest(action=action, argv=argv):
                    result = lib.run_weir("ptx", action, *argv)
                    self.assertEqual((result.returncode, result.stdout), (status, ""))
                    self.assertIn(words, result.stderr)
        result = lib.run_weir("ptx", "inspect", "--kernel", "other", good)
        self.assertEqual(result.returncode, 1)
        self.assertIn("no kernel other", result.stderr)

    def complete(self, *lines):
        """What bash's completion offers for each line, whose last word is being written."""
        script = f"PATH={os.path.dirname(lib.places.weir)}:$PATH; . {lib.places.source}/packaging/weir.bash\n"
        for line in lines:
            words = line.split(" ")
            script += (f"COMP_WORDS=({' '.join(word or chr(39) * 2 for word in words)}) COMP_CWORD={len(words) - 1}\n"
                       f"_weir weir '{words[-1]}' '{words[-2]}'; echo \"${{COMPREPLY[@]}}\"\n")
        done = subprocess.run(["bash", "--norc", "-c", script], capture_output=True, text=True, timeout=180)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return [set(line.split()) for line in done.stdout.split("\n")[:-1]]

    def test_completion_knows_what_the_help_knows(self):
        commands = re.findall(r"(?m)^  ([a-z-]+) +\S", lib.run_weir("--help").stdout)
        self.assertEqual(self.complete("weir ", "weir help "), [{*commands, "help"}] * 2)
        actions = self.complete(*(f"weir {command} " for command in ("tenant", "trace", "ptx")))
        self.assertEqual([sorted(found)[:2] for found in actions],
                         [["add", "list"], ["generate", "show"], ["inspect"]])
        lines = [*commands, *(f"tenant {action}" for action in actions[0]), *(f"trace {action}" for action in actions[1]),
                 *(f"ptx {action}" for action in actions[2])]
        for line, found in zip(lines, self.complete(*(f"weir {line} -" for line in lines)), strict=True):
            with self.subTest(line=line):
                shown = lib.run_weir(*line.split(), "--help").stdout
                self.assertEqual(found, set(re.findall(r"(?m)^  (?:-\w, )?(--[a-z-]+)", shown)))
        self.assertEqual(self.complete("weir ser", "weir stats --sort ", "weir trace show --", "weir bogus "),
                         [{"serve"}, {"time", "waited", "calls"}, {"--help"}, set()])

    def test_completion_knows_settings(self):
        keys = lambda action: re.search(r"(?m)^Keys: (.*)$", lib.run_weir("tenant", action, "--help").stdout)[1].split()
        self.assertLessEqual({"weight", "memory", "priority"}, set(keys("set")))
        self.assertNotIn("isolation", keys("set"), "it changes with a restart")
        self.assertLessEqual({"isolation", "user", *keys("set")}, set(keys("add")))
        self.assertEqual(self.complete("weir tenant set alice we", "weir tenant set alice ", "weir tenant add alice iso",
                                       "weir tenant set --run-dir /run alice mem", "weir tenant add "),
                         [{"weight="}, {f"{key}=" for key in keys("set")}, {"isolation="}, {"memory=", "memory_min="}, set()])

    def test_completion_knows_values(self):
        """Bash takes = for a word of its own; a shell whose COMP_WORDBREAKS has none, and zsh, do not."""
        classes = {"low", "normal", "high"}
        self.assertEqual(self.complete("weir tenant set alice priority =", "weir tenant set alice priority = lo",
                                       "weir tenant set alice weight = 3 share =", "weir tenant set alice weight =",
                                       "weir tenant set alice priority=", "weir tenant set alice priority=l",
                                       "weir tenant add alice isolation = st", "weir run --priority ", "weir attach vm --priority n",
                                       "weir run --transport ", "weir top --sort w"),
                         [classes, {"low"}, {"yes", "no"}, set(), {f"priority={c}" for c in classes}, {"priority=low"},
                          {"strict"}, classes, {"normal"}, {"shm", "zmq"}, {"wait"}])

    def test_run_exit_statuses(self):
        host = self.host()
        run = ("run", "--run-dir", host.run_dir, "--tenant", "alice", "--")
        self.assertEqual(lib.run_weir(*run, "true").returncode, 0)
        self.assertEqual(lib.run_weir(*run, "sh", "-c", "exit 41").returncode, 41)
        missing = lib.run_weir(*run, "/no/such/program")
        self.assertEqual(missing.returncode, 127)
        self.assertIn("/no/such/program", missing.stderr)
        plain = os.path.join(self.folder(), "plain")
        with open(plain, "w") as f:
            f.write("not a program\n")
        self.assertEqual(lib.run_weir(*run, plain).returncode, 126)
        killed = lib.run_weir(*run, "sh", "-c", "kill -9 $$")
        self.assertEqual(killed.returncode, -9)

    def test_run_passes_arguments_and_environment(self):
        host = self.host()
        env = dict(lib.clean_environment(), LD_LIBRARY_PATH="/before", MINE="kept")
        result = lib.run_weir("run", "--run-dir", host.run_dir, "--tenant", "bob", "sh", "-c",
                              'echo "$WEIR_HOST|$LD_LIBRARY_PATH|$TRITON_CUPTI_LIB_PATH|$MINE|$1|$2"', "x", "a b", "--c",
                              env=env)
        self.assertEqual(result.stdout, f"ipc://{host.socket('bob')}|{lib.places.guest_lib}:/before"
                         f"|{lib.places.guest_lib}|kept|a b|--c\n")

    def test_run_stops_at_the_program(self):
        host = self.host()
        result = lib.run_weir("run", "--run-dir", host.run_dir, "--tenant", "bob", "echo", "--tenant",
                              "x", "-h", "--help", "--", "y")
        self.assertEqual((result.returncode, result.stdout), (0, "--tenant x -h --help -- y\n"))

    def test_run_refuses_what_cannot_connect(self):
        """In place of a program that runs without a device."""
        folder = self.folder()
        for name in ("alice", "server"):
            lib.keygen(os.path.join(folder, name))
        files = {"lone.secret": open(os.path.join(folder, "alice.secret")).read(),
                 "bad.secret": "a word\n", "bad.public": "a word\n"}
        for name, text in files.items():
            with open(os.path.join(folder, name), "w") as f:
                f.write(text)

        def tcp(key, server="server.public"):
            return ("--host", "tcp://127.0.0.1:1", "--key", os.path.join(folder, key), "--server-key",
                    os.path.join(folder, server))

        for argv, words in ((("--host", "nonsense"), "tcp://"), (("--host", "http://x"), "ipc://"),
                            (("--host", "tcp://x"), "tcp://ADDRESS:PORT"), (("--host", "none:"), "ipc://"),
                            (("--host", "tcp://127.0.0.1:1"), "--server-key"),
                            (("--host", "vsock://", "--transport", "pigeon"), "shm or zmq"),
                            (("--host", "vsock://", "--key", "/no/such"), "/no/such"),
                            (tcp("none.secret"), "not found"), (tcp("bad.secret"), "no key"),
                            (tcp("lone.secret"), "NAME.public"), (tcp("alice.public"), "NAME.secret"),
                            (tcp("alice.secret", "none"), "--server-key")):
            with self.subTest(argv=argv):
                result = lib.run_weir("run", *argv, "--", "echo", "ran")
                self.assertEqual((result.returncode, result.stdout), (2, ""), result.stderr)
                self.assertRegex(result.stderr, r"^weir run: .+\n$")
                self.assertIn(words, result.stderr)
        env = dict(lib.clean_environment(), WEIR_HOST="nonsense")
        self.assertEqual(lib.run_weir("run", "echo", env=env).returncode, 2)
        nowhere = lib.run_weir("run", "--host", "tcp://a..b:7070", *tcp("alice.secret")[2:], "--", "echo", "ran")
        self.assertEqual((nowhere.returncode, nowhere.stdout), (1, ""), "no name is so, and none is waited for")
        self.assertRegex(nowhere.stderr, r"^weir run: tcp://a\.\.b:7070: .+\n$")
        good = lib.run_weir("run", *tcp("alice.secret"), "--", "echo", "ran")
        self.assertEqual((good.returncode, good.stdout), (0, "ran\n"), good.stderr)

    def test_run_without_host(self):
        result = lib.run_weir("run", "--run-dir", self.folder(), "true")
        self.assertEqual(result.returncode, 1)
        self.assertIn("weir serve", result.stderr)

    def test_status(self):
        host = self.host()
        steady = self.steady(host)
        text = lib.run_weir("status", "--run-dir", host.run_dir)
        self.assertEqual(text.returncode, 0)
        for word in ("alice", "bob", "e2e_steady", "WORKER", "shm"):
            self.assertIn(word, text.stdout)
        rows = lib.run_weir("status", "--run-dir", host.run_dir, "--json").stdout.splitlines()
        self.assertEqual([json.loads(r)["row"] for r in rows].count("tenant"), 2)
        session = host.status()["session"][0]
        self.assertEqual((session["tenant"], session["program"]), ("bob", "e2e_steady"))
        self.assertGreater(session["calls"], 0)
        lib.until(lambda: host.status()["session"][0]["calls_per_s"] > 0, 5, "calls per second", 0.2)
        self.assertGreater(host.tenant("bob")["used_bytes"], 0)
        self.steady_undisturbed(steady)

    def test_status_of_a_program_with_a_hostile_name(self):
        """What a guest calls itself must not command the terminal of who looks."""
        name = "a\n\x1b[2J\x9b\\"
        path = os.path.join(self.folder(), name)
        shutil.copy(lib.places.program("e2e_calls"), path)
        host = self.host()
        guest = self.guest(host, path, 1, 1)
        guest.wait_line("^done$")
        for command in ("status", "stats"):
            shown = lib.run_weir(command, "--run-dir", host.run_dir).stdout
            self.assertNotRegex(shown, r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", command)
            self.assertIn(r"a\x0a\x1b[2J", shown)
        rows = lib.run_weir("stats", "--run-dir", host.run_dir, "--json").stdout.splitlines()
        for program in (json.loads(rows[0])["program"], host.status()["session"][0]["program"]):
            self.assertEqual(program, name)
        guest.close_stdin()
        self.assertEqual(guest.wait(), 0, guest.tail())

    def test_status_without_host(self):
        result = lib.run_weir("status", "--run-dir", self.folder())
        self.assertEqual(result.returncode, 1)
        self.assertIn("is weir serve running?", result.stderr)

    def test_keygen(self):
        folder = self.folder()
        path = os.path.join(folder, "k")
        result = lib.run_weir("keygen", path)
        self.assertEqual(result.returncode, 0)
        self.assertEqual(result.stdout, f"{path}.secret\n{path}.public\n")
        self.assertEqual(stat.S_IMODE(os.stat(path + ".secret").st_mode), 0o600)
        keys = [open(path + end).read() for end in (".secret", ".public")]
        for key in keys:
            self.assertRegex(key, r"^\S{40}\n$")
        self.assertNotEqual(*keys)
        again = lib.run_weir("keygen", path)
        self.assertEqual(again.returncode, 1)
        self.assertEqual([open(path + end).read() for end in (".secret", ".public")], keys)

    def doctor(self, *args, **env):
        full = dict(lib.clean_environment(), **env)
        return lib.run_weir("doctor", *args, env=full)

    def test_doctor_finds_no_host(self):
        folder = self.folder()
        result = self.doctor("--run-dir", folder)
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stdout, r"(?m)^problem .*no host")
        self.assertIn("-> start it: weir serve", result.stdout)
        self.assertIn("There are problems.", result.stdout)

    def test_doctor_finds_no_library(self):
        host = self.host(("default",))
        result = self.doctor("--run-dir", host.run_dir, WEIR_LIB_DIR=self.folder())
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertRegex(result.stdout, r"(?m)^problem ")
        self.assertIn("library", result.stdout)

    def test_doctor_finds_all_well(self):
        host = self.host(("default",))
        result = self.doctor("--run-dir", host.run_dir)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertRegex(result.stdout, r"ok +a program here sees: .+ MiB")
        warnings = len(re.findall("(?m)^warning ", result.stdout))  # of workers that are root, say
        self.assertRegex(result.stdout, rf"\nNo problem, {warnings} warnings?\.\n$" if warnings else r"\nAll is well\.\n$")
        host.wait_idle()

    def test_doctor_looks_as_a_tenant(self):
        """A host whose tenants all have names has no socket for programs that name none."""
        host = self.host({"alice": {"memory": "64MiB"}})
        result = self.doctor("--run-dir", host.run_dir)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("weir run --tenant alice", result.stdout)
        self.assertRegex(result.stdout, r"ok +a program here sees: .+ 64 MiB")
        host.wait_idle()


if __name__ == "__main__":
    lib.main()
