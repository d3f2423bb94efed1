#!/usr/bin/env python3
"""Users who name no tenant: each gets one ([default] user_tenants)."""
import json
import os
import signal
import subprocess

import lib

MIB = 1 << 20
ANN, BEN, EVE = 47120, 47121, 47122


def as_user(uid):
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]


# What somebody has who has logged in: a runtime directory, where a host of hers would be, and the machine's host in /run/weir.
LOGGED_IN = """set -e
mount -t tmpfs none /run && mkdir -m 755 /run/weir && mount --bind %s /run/weir
install -d -o %d /run/user/%d /run/user/%d/weir && export XDG_RUNTIME_DIR=/run/user/%d
"""


class Users(lib.Case):
    def setUp(self):
        super().setUp()
        if os.geteuid() != 0 or not lib.places.everybody_gets_there():
            self.skipTest("other users are needed, who get to the programs")

    def users_host(self, n=8, tenants=None, **kwargs):
        host = self.host(tenants or {"default": {}}, host_lines=["", "[default]", f"user_tenants = {n}"], start=False, **kwargs)
        os.chmod(host.folder, 0o755)
        return host.start()

    def start(self, host, uid, *args, program="e2e_quota", env=None):
        argv = [*as_user(uid), lib.places.weir, "run", "--run-dir", host.run_dir, "--", lib.places.program(program), *map(str, args)]
        guest = lib.Process(argv, env=dict(lib.clean_environment(), **(env or {})), name=program)
        self.addCleanup(guest.kill)
        return guest

    def hold(self, host, uid):
        guest = self.start(host, uid, "hold", MIB)
        guest.wait_line("^held$")
        return guest

    def tenants(self, host):
        return {t["name"]: t for t in host.status()["tenant"]}

    def sessions(self, host):
        return sorted(s["tenant"] for s in host.status()["session"])

    def test_each_user_is_a_tenant(self):
        host = self.users_host(tenants={"default": {"weight": 70, "memory": "64MiB"}, "bob": {}})
        self.assertEqual(os.stat(host.socket("default")).st_mode & 0o777, 0o666)
        self.assertEqual(os.stat(host.socket("bob")).st_mode & 0o777, 0o660)
        guests = [self.hold(host, uid) for uid in (ANN, ANN, BEN, 0)]
        self.assertEqual(self.sessions(host), ["default", f"uid-{ANN}", f"uid-{ANN}", f"uid-{BEN}"])
        tenants = self.tenants(host)
        for name in (f"uid-{ANN}", f"uid-{BEN}"):
            self.assertEqual((tenants[name]["weight"], tenants[name]["quota_bytes"], tenants[name]["source"]), (70, 64 * MIB, "user"))
        # Its user may ask why it waits, and is told of that tenant.
        done = subprocess.run([*as_user(ANN), lib.places.weir, "why", "--run-dir", host.run_dir, "--interval-ms", "0"],
                              capture_output=True, text=True, env=lib.clean_environment())
        self.assertRegex(done.stdout, rf"^tenant uid-{ANN}: ", done.stderr)
        # No other tenant is theirs for that.
        done = subprocess.run([*as_user(ANN), lib.places.weir, "run", "--tenant", "bob", "--run-dir", host.run_dir, "--", "true"],
                              capture_output=True, text=True, env=lib.clean_environment())
        self.assertIn("this user may not be that tenant", done.stderr)
        done = lib.run_weir("run", "--tenant", f"uid-{ANN}", "--run-dir", host.run_dir, "--", "true")
        self.assertIn(f"tenant 'uid-{ANN}' is for the programs of a user who names no tenant", done.stderr)
        # They go when their programs have gone, and come again.
        for guest in guests:
            guest.close_stdin()
            self.assertEqual(guest.wait(), 0, guest.tail())
        lib.until(lambda: set(self.tenants(host)) == {"default", "bob"}, 30, "users' tenants are gone", 0.3)
        self.hold(host, BEN)
        self.assertEqual(self.sessions(host), [f"uid-{BEN}"])

    def test_a_login_finds_the_machines_host(self):
        host = self.users_host()

        def logged_in(before, *command):
            script = LOGGED_IN % (host.run_dir, ANN, ANN, ANN, ANN) + before + '; exec "$@"'
            return subprocess.run(["unshare", "--mount", "sh", "-c", script, "sh", *as_user(ANN), lib.places.weir, *command],
                                  capture_output=True, text=True, env=lib.clean_environment(), timeout=180)

        done = logged_in("true", "run", "--", lib.places.program("e2e_minimal"))
        self.assertIn("PASS e2e_minimal", done.stdout, done.stderr)
        self.assertRegex(logged_in("true", "why", "--interval-ms", "0").stdout, rf"^tenant uid-{ANN}: ")
        # A host of her own goes first.
        done = logged_in(f"touch /run/user/{ANN}/weir/admin.sock", "run", "--", "true")
        self.assertIn(f"/run/user/{ANN}/weir/default.sock: ", done.stderr)

    def test_two_users_are_scheduled_against_each_other(self):
        host = self.users_host()
        if not host.tenant("default")["scheduled"]:
            self.skipTest("nothing is scheduled here")
        loads = [self.start(host, uid, "loop", "--blocks", 16, "--rounds", 300, "--us", 1000, "--seconds", 600, "--depth", 4, program="sched_load")
                 for uid in (ANN, ANN, ANN, BEN)]
        for load in loads:
            load.wait_line("^ready$")

        def used():
            tenants = self.tenants(host)
            return [tenants[f"uid-{uid}"]["service_sm_ns"] for uid in (ANN, BEN)]

        begin = used()
        lib.until(lambda: sum(used()) - sum(begin) > 20e9, 60, "both have worked", 0.2)
        ann, ben = (now - then for now, then in zip(used(), begin))
        self.assertLess(abs(ann - ben), 0.2 * (ann + ben), "one program of ben's against three of ann's")

    def test_their_number_is_bounded(self):
        host = self.users_host(n=2)
        guests = [self.hold(host, uid) for uid in (ANN, BEN)]
        third = self.start(host, EVE, "hold", MIB)
        self.assertNotEqual(third.wait(), 0)
        self.assertRegex(third.err, r"weir: e2e_quota gets no GPU from .*: the host has tenants for 2 users at a time, .*user_tenants")
        self.hold(host, ANN)  # who has one may have more programs
        guests[1].close_stdin()
        self.assertEqual(guests[1].wait(), 0)
        # Nobody waits until an idle one has gone by itself.
        def comes():
            guest = self.start(host, EVE, "shows", str(host.status()["device"][0]["memory_bytes"]))
            return guest.wait() == 0

        lib.until(comes, 8, "another user takes the place", 0.2)
        self.assertIn(f"uid-{EVE}", self.tenants(host))
        self.assertNotIn(f"uid-{BEN}", self.tenants(host))

    def test_without_the_key_everything_is_as_before(self):
        host = self.host({"default": {}}, start=False)
        os.chmod(host.folder, 0o755)
        host.start()
        self.assertEqual(os.stat(host.socket("default")).st_mode & 0o777, 0o660)
        self.assertEqual(self.start(host, ANN, "hold", MIB).wait(), 1)
        os.chmod(host.socket("default"), 0o666)
        self.hold(host, ANN)
        self.assertEqual(self.sessions(host), ["default"])
        # A reload turns it on, and off.
        host.config_text = open(host.config).read()
        with open(host.config, "a") as f:
            f.write("\n[default]\nuser_tenants = 3\n")
        host.process.signal(signal.SIGHUP)
        lib.until(lambda: "reloading" in host.process.err, 10, "the reload", 0.05)
        self.hold(host, BEN)
        self.assertEqual(self.sessions(host), ["default", f"uid-{BEN}"])
        with open(host.config, "w") as f:
            f.write(host.config_text)
        host.process.signal(signal.SIGHUP)
        lib.until(lambda: os.stat(host.socket("default")).st_mode & 0o777 == 0o660, 10, "the socket is closed again", 0.05)

    def test_names_that_an_administrator_has_used(self):
        host = self.users_host(tenants={"default": {}, f"uid-{ANN}": {"weight": 5}})
        self.hold(host, ANN)
        self.assertEqual(self.sessions(host), [f"uid-{ANN}.user"])
        # One that comes later takes its name, and the user's goes on under another.
        self.hold(host, BEN)
        host.write_config({"default": {"weight": 30}, f"uid-{ANN}": {"weight": 5}, f"uid-{BEN}": {"weight": 9}})
        host.process.signal(signal.SIGHUP)
        lib.until(lambda: self.tenants(host).get(f"uid-{BEN}", {}).get("source") == "weir.toml", 10, "the file's", 0.05)
        self.hold(host, BEN)
        tenants = self.tenants(host)
        self.assertEqual((tenants[f"uid-{BEN}"]["weight"], tenants[f"uid-{BEN}.user"]["weight"], tenants[f"uid-{ANN}.user"]["weight"]), (9, 30, 30))

    def test_a_user_who_has_a_tenant_is_no_other(self):
        """One person has one share: not that of weir.toml and another one beside it."""
        host = self.users_host(tenants={"default": {}, "ann": {"user": str(ANN), "weight": 5}, "train": {"user": str(BEN)}, "infer": {"user": str(BEN)}})
        guests = [self.hold(host, uid) for uid in (ANN, ANN, EVE)]
        self.assertEqual(self.sessions(host), ["ann", "ann", f"uid-{EVE}"])
        done = subprocess.run([*as_user(ANN), lib.places.weir, "why", "--run-dir", host.run_dir, "--interval-ms", "0"],
                              capture_output=True, text=True, env=lib.clean_environment())
        self.assertRegex(done.stdout, "^tenant ann: ", done.stderr)
        self.hold(host, BEN)  # of two, neither is meant
        self.assertEqual(self.sessions(host), ["ann", "ann", f"uid-{BEN}", f"uid-{EVE}"])
        for guest in guests:
            guest.close_stdin()
            self.assertEqual(guest.wait(), 0, guest.tail())

    def test_of_one_worker(self):
        """Where programs share workers they are counted, too."""
        hosts = [self.users_host(tenants={"default": {"isolation": isolation}}) for isolation in ("group", "tenant")]
        for host in hosts:
            guest = self.hold(host, ANN)
            self.assertEqual(self.sessions(host), [f"uid-{ANN}"])
            guest.close_stdin()
            self.assertEqual(guest.wait(), 0, guest.tail())
        for host in hosts:  # both wait for the same ten seconds
            lib.until(lambda host=host: set(self.tenants(host)) == {"default"}, 30, "it goes", 0.3)
            self.hold(host, ANN)
            self.assertEqual(host.stop(), 0)

    def test_namespaces_and_containers(self):
        """A user's own namespace changes nothing; what comes by a container's socket is the tenant default."""
        folder = self.folder()
        host = self.users_host(args=("--cdi", os.path.join(folder, "weir.json")))
        guest = lib.Process([*as_user(ANN), "unshare", "--user", "--map-root-user", lib.places.weir, "run", "--run-dir", host.run_dir, "--",
                             lib.places.program("e2e_quota"), "hold", str(MIB)], env=lib.clean_environment(), name="unshare")
        self.addCleanup(guest.kill)
        try:
            guest.wait_line("^held$")
        except lib.Stuck:
            if "unshare" in guest.err and "e2e_quota" not in guest.err:
                self.skipTest(f"no user namespaces here: {guest.err}")
            raise
        self.assertEqual(self.sessions(host), [f"uid-{ANN}"])
        os.chmod(os.path.join(host.run_dir, "containers"), 0o711)  # as if an engine had mounted it
        argv = [*as_user(BEN), lib.places.weir, "run", "--host", f"ipc://{host.run_dir}/containers/default/default.sock", "--",
                lib.places.program("e2e_quota"), "hold", str(MIB)]
        other = lib.Process(argv, env=lib.clean_environment(), name="in a container")
        self.addCleanup(other.kill)
        other.wait_line("^held$")
        self.assertEqual(self.sessions(host), ["default", f"uid-{ANN}"])
        with open(os.path.join(folder, "weir.json")) as f:
            self.assertEqual({d["name"] for d in json.load(f)["devices"]} - {"new"}, {"default", "all"})


if __name__ == "__main__":
    lib.main()
