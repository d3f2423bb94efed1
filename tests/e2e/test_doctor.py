#!/usr/bin/env python3
"""weir doctor finds what breaks users, and is silent about what does not: each case breaks one thing of a host and mends it."""
import contextlib
import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import unittest

import lib

USER = 12345  # nobody's
WORKER = "nobody"
WORKER_ID = pwd.getpwnam(WORKER).pw_uid
ROOT = os.geteuid() == 0


@contextlib.contextmanager
def moved(path):
    os.rename(path, path + ".away")
    yield
    os.rename(path + ".away", path)


@contextlib.contextmanager
def mode(path, bits):
    before = os.stat(path).st_mode & 0o7777
    os.chmod(path, bits)
    yield
    os.chmod(path, before)


@contextlib.contextmanager
def text(path, old, new):
    """Another text; with old None in place of all."""
    with open(path, encoding="latin-1", newline="") as f:
        before = f.read()
    assert old is None or old in before
    with open(path, "w", encoding="latin-1", newline="") as f:
        f.write(new if old is None else before.replace(old, new, 1))
    yield
    with open(path, "w", encoding="latin-1", newline="") as f:
        f.write(before)


@contextlib.contextmanager
def file(path, content):
    with open(path, "w") as f:
        f.write(content)
    yield
    os.unlink(path)


class Doctor(lib.Case):
    def serve(self, tenants, *lines, **options):
        """A host that containers and users reach, with a guest library of its own."""
        host = self.host(tenants, start=False, **options)
        os.chmod(host.folder, 0o711)
        self.lib = os.path.join(host.folder, "guest")
        os.mkdir(self.lib, 0o755)
        for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
            shutil.copy(os.path.join(lib.places.guest_lib, name), os.path.join(self.lib, name))
            os.chmod(os.path.join(self.lib, name), 0o755)
        os.mkdir(os.path.join(host.folder, "cdi"), 0o755)
        self.cdi = os.path.join(host.folder, "cdi", "weir.json")
        host.env["WEIR_LIB_DIR"] = self.lib
        host.host_lines += [f"cdi = {json.dumps(self.cdi)}", *lines]
        host.write_config(tenants)
        return host.start()

    def ask(self, host, *args, expect=0, prefix=()):
        env = dict(lib.clean_environment(), WEIR_LIB_DIR=self.lib)
        done = subprocess.run([*prefix, lib.places.weir, "doctor", "--run-dir", host.run_dir, *args], env=env,
                              capture_output=True, text=True, timeout=600)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done.stdout

    def finds(self, host, broken, *patterns, kind="problem"):
        """One thing is broken: each pattern is in a line of this kind, and when it is mended all is well again."""
        with broken:
            said = self.ask(host, expect=kind == "problem")
        for pattern in patterns:
            self.assertRegex(said, rf"(?m)^{kind} +.*{pattern}", said)
        for line in re.findall(rf"(?m)^{kind} .*\n.*", said):
            self.assertIn("\n           -> ", line, "it says what mends it")

    @unittest.skipUnless(ROOT, "only root sees with others' eyes")
    @unittest.skipUnless(lib.places.everybody_gets_there(), "other users do not get to this build")
    def test_what_breaks_users(self):
        host = self.serve({"alice": {}, "bob": {"user": str(USER)}, "open": {}}, "socket_mode = 0o666",
                          remote=self.remote(("alice", "bob", "open")))
        run, cdi = host.run_dir, self.cdi
        said = self.ask(host)
        self.assertNotRegex(said, "(?m)^problem")
        for word in (r"sockets of 3 tenants: there", r"CDI file: .*weir.json", r"listen_tcp: ", r"containers: folders and sockets"):
            self.assertRegex(said, rf"(?m)^ok +{word}")
        library = os.path.join(self.lib, "libcuda.so.1")
        folder = os.path.join(run, "containers")
        for broken, patterns in (
                (mode(library, 0o600), [r"programs of users cannot load libcuda.so.1", rf"programs of user {USER} cannot load"]),
                (mode(self.lib, 0o700), [r"programs of users cannot load libcuda.so.1"]),
                (mode(os.path.join(self.lib, "libnvidia-ml.so.1"), 0o600), [r"users cannot load libnvidia-ml.so.1"]),
                (mode(run, 0o700), [r"the run directory .* is closed \(mode 700\)"]),
                (mode(host.folder, 0o700), [r"tenant alice: users cannot pass", rf"tenant bob: user {USER} cannot pass"]),
                (mode(host.socket("alice"), 0o600), [r"tenant alice: .*alice.sock has mode 600 instead of 666"]),
                (mode(host.socket("bob"), 0o000), [r"tenant bob: .*bob.sock has mode 0 instead of 600"]),
                (moved(host.socket("bob")), [r"tenant bob: its socket .*bob.sock is gone"]),
                (moved(os.path.join(run, "new.sock")), [r"shares on demand: its socket .*new.sock is gone"]),
                (mode(os.path.join(run, "shares"), 0o700), [r"the folder of shares .* is closed"]),
                (mode(folder, 0o000), [r"containers: .*containers is closed \(mode 0 instead of 711\)"]),
                (mode(folder, 0o710), [r"containers: .*containers is closed \(mode 710 instead of 711\)"]),
                (moved(folder), [r"containers: .*containers is gone"]),
                (mode(os.path.join(folder, "alice"), 0o700), [r"containers of tenant alice: the folder has mode 700"]),
                (moved(os.path.join(folder, "bob", "default.sock")), [r"containers of tenant bob: the socket .* is gone"]),
                (mode(os.path.join(folder, "open", "default.sock"), 0o660), [r"containers of tenant open: the socket has mode 660"]),
                (moved(os.path.join(run, "vm", "alice.sock")), [r"virtual machines of tenant alice: the socket .* is gone"]),
                (mode(os.path.join(run, "vm"), 0o700), [r"the folder of machines' sockets .* is closed"]),
                (moved(cdi), [r"containers: the CDI file .*weir.json cannot be read: No such file"]),
                (mode(cdi, 0o600), [r"containers: users cannot read .*weir.json"]),
                (mode(os.path.dirname(cdi), 0o700), [r"containers: users cannot read .*weir.json"]),
                (text(cdi, '"name": "bob"', '"name": "carol"'), [r"has a device carol, and there is no such tenant",
                                                                r"has no device for tenant bob"]),
                (text(cdi, f"{self.lib}/libcuda.so.1", "/usr/lib/weir-0.0.9/libcuda.so.1"),
                 [r"names /usr/lib/weir-0.0.9/libcuda.so.1, which is not there"]),
                (text(cdi, '"options"', '"option'), [r"is not what this installation writes: changed"]),
                (mode(host.remote.server_secret, 0o644), [r"server_key .*server.secret has mode 644: others can read"]),
                (moved(host.remote.server_secret), [r"server_key .*server.secret: No such file"]),
                (text(host.config, "socket_mode", "socket_mood"), [r"weir.toml:\d+:\d+: "]),
                (moved(host.config), [r"the host's configuration cannot be read: not found"])):
            with self.subTest(patterns[0]):
                self.finds(host, broken, *patterns)
        self.assertNotRegex(self.ask(host), "(?m)^problem")
        rows = [json.loads(line) for line in self.ask(host, "--json").splitlines()]
        self.assertEqual({row["row"] for row in rows}, {"check"})

    @unittest.skipUnless(ROOT, "only root sees with others' eyes")
    @unittest.skipUnless(lib.places.everybody_gets_there(), "other users do not get to this build")
    def test_what_workers_and_machines_need(self):
        folder = self.folder()
        compiler, cache = os.path.join(folder, "ptxas"), os.path.join(folder, "deep", "cache")
        with open(compiler, "w") as f:
            f.write("#!/bin/sh\necho of a test\n")
        os.chmod(compiler, 0o755)
        os.mkdir(os.path.dirname(cache), 0o711)
        host = self.serve({"default": {"user": str(USER)}}, 'vm_user = "nobody"', f'worker_user = "{WORKER}"', "", "[forms]",
                          f'compiler = "{compiler}"', f'cache_dir = "{cache}"')
        self.assertNotRegex(self.ask(host), "(?m)^(problem|warning +(compiler|cache|machines|.forms))")
        library = os.path.join(self.lib, "libcuda.so.1")
        for broken, kind, *patterns in (
                (moved(compiler), "warning", r"compiler does not work: '.*ptxas': no such program"),
                (mode(compiler, 0o644), "warning", r"compiler does not work: '.*ptxas': no such program"),
                (mode(compiler, 0o700), "warning", rf"compiler .*ptxas does not run as user {WORKER_ID}"),
                (text(compiler, "#!/bin/sh", "#!/nonexistent"), "warning", "ptxas does not run as"),
                (text(compiler, "echo", "exit 3 # "), "warning", "ptxas does not run as"),
                (mode(cache, 0o777), "warning", "cache does not work: '.*cache': others may write to it"),
                (mode(os.path.dirname(cache), 0o700), "warning", rf"cache_dir .*: user {WORKER_ID} cannot use it: Permission denied"),
                (text(library, None, "\x7fELF"), "problem", "cannot load libcuda.so.1: .*\n +-> install Weir anew"),
                (text(library, None, ""), "problem", "cannot load libcuda.so.1: .*\n +-> install Weir anew"),
                (mode(library, 0o600), "problem", "cannot load libcuda.so.1: .*\n +-> chmod a\\+rX"),
                (text(host.config, f'worker_user = "{WORKER}"', 'worker_user = "no-such-user"'), "problem", "worker_user 'no-such-user': there is no such user")):
            with self.subTest(patterns[0]):
                self.finds(host, broken, *patterns, kind=kind)
        self.assertNotRegex(self.ask(host), "(?m)^(problem|warning +(compiler|cache|machines|.forms))")

    def test_what_is_not_there_at_the_start(self):
        """Each costs itself, is told by --check too, and works when it comes."""
        folder = self.folder()
        compiler, plain = os.path.join(folder, "ptxas"), os.path.join(folder, "plain")
        with open(plain, "w"):
            pass
        lines = ['vm_user = "no-such-user"'] if ROOT else []
        host = self.serve(["default"], *lines, "", "[forms]", f'compiler = "{compiler}"', f'cache_dir = "{plain}"')
        found = {"compiler": "no such program", "cache": "Not a directory", **({"machines": "there is no such user"} if ROOT else {})}
        said, checked = self.ask(host), lib.run_weir("serve", "--check", "--config", host.config, "--driver", "softgpu")
        self.assertEqual(checked.returncode, 1)
        for name, why in found.items():
            self.assertRegex(said, rf"(?m)^warning +{name} does not work: .*{why}")
            self.assertRegex(checked.stderr, rf"(?m)^weir serve: .*{why}")
        shutil.copy("/bin/true", compiler)
        self.assertNotRegex(self.ask(host), "compiler")
        self.finished(host, "e2e_minimal", tenant="default")

    def test_the_host_s_program_and_driver(self):
        folder = self.folder()
        weir, driver = os.path.join(folder, "weir"), os.path.join(folder, "libcuda.so")
        shutil.copy(lib.places.weir, weir)
        shutil.copy(lib.places.softgpu, driver)
        host = self.serve(["default"], driver=driver, prefix=["sh", "-c", f'shift; exec {weir} "$@"', "sh"])
        said = lib.run_weir("doctor", "--run-dir", host.run_dir).stdout  # the CDI file is of the copy: a problem of its own
        self.assertNotRegex(said, "(?m)^(problem +new workers|(problem|warning) +the host's program)")
        with moved(driver):
            self.assertRegex(self.ask(host, expect=1), "(?m)^problem +new workers cannot load the driver .*libcuda.so")
        os.unlink(weir)
        self.assertRegex(self.ask(host, expect=1), "(?m)^problem +the host's program .*weir was removed")
        shutil.copy(lib.places.weir, weir)
        self.assertRegex(self.ask(host, expect=1), "(?m)^warning +the host's program .*weir was replaced")

    @unittest.skipUnless(ROOT and shutil.which("setpriv"), "wants root and setpriv")
    @unittest.skipUnless(lib.places.everybody_gets_there(), "other users do not get to this build")
    def test_an_ordinary_user_sees_their_own(self):
        host = self.serve({"default": {}}, "socket_mode = 0o666")
        user = ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups")
        self.assertRegex(self.ask(host, prefix=user), r"(?m)^ok +a program here sees")
        with mode(os.path.join(self.lib, "libcuda.so.1"), 0o600):
            self.assertRegex(self.ask(host, prefix=user, expect=1), r"(?m)^problem +.*libcuda.so.1.*[Pp]ermission denied")
        with mode(host.run_dir, 0o700):
            self.assertRegex(self.ask(host, prefix=user, expect=1), r"(?m)^problem +no host at .*: Permission denied")

    @unittest.skipUnless(ROOT, "wants root")
    @unittest.skipUnless(lib.places.everybody_gets_there(), "other users do not get to this build")
    def test_the_hook(self):
        hook = os.path.join(lib.places.build or "/", "container/oci/weir-oci-hook")
        if not os.path.exists(hook):
            self.skipTest("weir-oci-hook is not built (libjansson-dev)")
        host = self.serve(["alice"])
        self.finds(host, mode(hook, 0o700), "containers do not start: .*weir-oci-hook cannot be executed by users")

    def test_what_lies_beside_the_host(self):
        host = self.serve(["default"], f'[metrics]\nlisten = "127.0.0.1:{lib.free_port()}"')
        folder = self.folder()
        open(os.path.join(folder, "control"), "w").close()
        with open(os.path.join(folder, "nvidia-cuda-mps-control.pid"), "w") as f:
            f.write("999999999\n")  # nobody's
        env = dict(lib.clean_environment(), WEIR_LIB_DIR=self.lib)
        for more, kind, found in (({"LD_LIBRARY_PATH": self.lib}, "(warning|problem)", "libcuda.so.1 is Weir's guest library here"),
                                  ({"CUDA_MPS_PIPE_DIRECTORY": folder}, "problem", "the machine's MPS daemon is dead")):
            done = lib.run_weir("doctor", "--run-dir", host.run_dir, env=dict(env, **more))
            self.assertRegex(done.stdout, rf"(?m)^{kind} +{found}")
        self.assertRegex(self.ask(host), r"(?m)^ok +metrics: 127.0.0.1:\d+$")
        self.assertRegex(self.ask(host), r"(?m)^warning +containers: engines do not look into .*cdi, where the CDI file is$")
        with text(host.config, "127.0.0.1:", "127.0.0.2:"):
            self.assertRegex(self.ask(host, expect=1), r"(?m)^problem +metrics: nobody listens at 127.0.0.2:")
        with text(host.config, host.host_lines[-1], '[metrics]\nlisten = "127.0.0.1:0"'):
            self.assertRegex(self.ask(host), r"(?m)^warning +metrics 127.0.0.1:0: the port is another after each start")

    @unittest.skipUnless(ROOT, "wants root")
    def test_why_no_host_is_up(self):
        host = self.serve(["alice"])
        host.process.kill()
        said = self.ask(host, expect=1)
        self.assertRegex(said, r"(?m)^problem +no host at .*(Connection refused|No such file)")
        self.assertRegex(said, r"(?m)^ok +weir serve --check: finds nothing that keeps it from starting")
        with file(os.path.join(host.folder, "plain"), ""):
            broken = lib.run_weir("doctor", "--run-dir", os.path.join(host.folder, "plain"))
        self.assertEqual(broken.returncode, 1)
        self.assertRegex(broken.stdout, r"(?m)^problem +weir serve --check: weir serve: run_dir .*: Not a directory")

    def test_a_host_without_its_admin_socket(self):
        host = self.serve(["default"])
        os.unlink(os.path.join(host.run_dir, "admin.sock"))
        self.assertRegex(self.ask(host, expect=1), r"(?m)^problem +nobody listens at the host's admin.sock.*\n +-> systemctl reload weir")
        host.process.signal(signal.SIGHUP)
        lib.until(lambda: os.path.exists(os.path.join(host.run_dir, "admin.sock")), 5, "it is made again")
        self.assertNotRegex(self.ask(host), "(?m)^problem")


if __name__ == "__main__":
    lib.main()
