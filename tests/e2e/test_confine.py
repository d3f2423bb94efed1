#!/usr/bin/env python3
"""What workers are to the kernel: their user, privileges, system calls and descriptors; and what they write.

test_confine.c tries the refused calls. The other end-to-end tests run with WEIR_E2E_WORKER_USER, too
(tests/e2e/CMakeLists.txt): what workers do must work for that user.
"""
import os
import pathlib
import pwd
import re
import subprocess
import sys
import unittest

import lib

USER = "nobody"
# Gives a command a terminal of its own, of which it keeps the other end.
WITH_TERMINAL = """
import fcntl, os, pty, sys, termios
end, terminal = pty.openpty()
os.setsid()
fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
os.set_inheritable(end, True)
os.execvp(sys.argv[1], sys.argv[1:])
"""
DEFAULT_USER = "weir-worker"
NO_CAPABILITIES = "0" * 16
OTHERS = os.geteuid() == 0 and lib.places.everybody_gets_there()
as_root = unittest.skipUnless(OTHERS, "only root can have workers of another user, and that user must get to the build tree")


class Confine(lib.Case):
    def status_of(self, pid):
        text = pathlib.Path(f"/proc/{pid}/status").read_text()
        return dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)

    def workers(self, host):
        """Those that have come up: before its exec a process has what the keeper has."""
        lib.until(lambda: all(w["state"] != "starting" for w in host.status()["worker"]), 10, "all workers are up")
        return sorted(w["pid"] for w in host.status()["worker"])

    def confined(self, pid, uid):
        status = self.status_of(pid)
        self.assertEqual(set(status["Uid"].split()), {str(uid)})
        for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
            self.assertEqual(status[name], NO_CAPABILITIES, name)
        if os.geteuid() == 0:
            self.assertEqual(status["CapBnd"], NO_CAPABILITIES)
        self.assertEqual(status["NoNewPrivs"], "1")
        self.assertEqual(status["Seccomp"], "2")
        limits = pathlib.Path(f"/proc/{pid}/limits").read_text()
        self.assertRegex(limits, r"Max core file size +0 +0 ")

    def programs(self, lines=(), **kwargs):
        """A host with a worker that is shared, two spares, and one of a program."""
        host = self.host({"alice": {"isolation": "program"}, "bob": {"isolation": "group"}}, host_lines=["spare_workers = 2", *lines],
                         **kwargs)
        self.steady(host, tenant="alice")
        lib.until(lambda: len(self.workers(host)) == 4, 20, "the spares are there again")
        return host

    @as_root
    def test_workers_have_a_user_and_nothing_else(self):
        host = self.programs([f'worker_user = "{USER}"'])
        entry = pwd.getpwnam(USER)
        for pid in self.workers(host):
            self.confined(pid, entry.pw_uid)
            self.assertEqual(set(self.status_of(pid)["Gid"].split()), {str(entry.pw_gid)})
            groups = set(map(int, self.status_of(pid)["Groups"].split()))
            self.assertLessEqual(groups, set(os.getgrouplist(USER, entry.pw_gid)))
        host.process.wait_log(f"workers run as user={USER}")

    def test_without_another_user_the_rest_holds(self):
        lines = ['worker_user = "root"'] if os.geteuid() == 0 else []
        host = self.programs(lines)
        for pid in self.workers(host):
            self.confined(pid, os.geteuid())
        host.process.wait_log("supervisor: ready")
        self.assertEqual(host.process.err.count("workers run as"), 1)

    def of_default(self, uid=None):
        """A host that finds the default user on its machine, or does not, in a mount namespace of its own."""
        passwd = os.path.join(self.folder(), "passwd")
        with open("/etc/passwd") as machines, open(passwd, "w") as f:
            f.writelines(line for line in machines if not line.startswith(f"{DEFAULT_USER}:"))
            f.write(f"{DEFAULT_USER}:x:{uid}:{uid}::/nonexistent:/usr/sbin/nologin\n" if uid else "")
        prefix = ["unshare", "--mount", "sh", "-c", f'mount --bind {passwd} /etc/passwd && exec "$@"', "sh"]
        if subprocess.run([*prefix, "true"], capture_output=True).returncode != 0:
            self.skipTest("no mount namespaces here")
        return self.host(prefix=prefix, worker_user="")

    @as_root
    def test_the_user_is_weir_worker_where_there_is_one(self):
        host = self.of_default(61234)
        self.confined(host.worker_pid(), 61234)
        self.finished(host, "e2e_minimal", tenant="alice")

    @as_root
    def test_where_there_is_none_the_log_says_so_once(self):
        host = self.of_default()
        self.confined(host.worker_pid(), 0)
        said = [line for line in host.process.errors if "workers run as root" in line]
        self.assertEqual(len(said), 1)
        self.assertIn(DEFAULT_USER, said[0])

    @as_root
    def test_the_log_says_when_workers_cannot_open_the_gpu(self):
        """With files that stand for the driver's, in a /dev of the host's own."""
        def said(mode, files):
            make = "".join(f"mknod -m {mode} /dev/{name} c 1 3 && " for name in files)
            prefix = ["unshare", "--mount", "sh", "-c", "mount -t tmpfs none /mnt && cp -a /dev/null /dev/urandom /mnt && "
                      f'mkdir /mnt/shm && mount --rbind /dev/shm /mnt/shm && mount --move /mnt /dev && {make}exec "$@"', "sh"]
            if subprocess.run([*prefix, "true"], capture_output=True).returncode != 0:
                self.skipTest("no mount namespaces, or devices, here")
            lines = [f'worker_user = "{USER}"', f'softgpu = "{lib.places.softgpu}"']
            host = self.host(host_lines=lines, prefix=prefix, driver=lib.places.softgpu)
            host.process.wait_log("supervisor: ready")  # and all that it says before
            return host.process.err

        self.assertIn("workers may not open /dev/nvidiactl", said("600", ["nvidiactl", "nvidia-uvm"]))
        self.assertIn("there is no /dev/nvidia-uvm", said("666", ["nvidiactl"]))
        self.assertNotIn("/dev/nvidia", said("666", ["nvidiactl", "nvidia-uvm"]))

    def refused(self, user, why):
        host = self.host(host_lines=[f'worker_user = "{user}"'], start=False)
        with self.assertRaisesRegex(lib.Stuck, rf"the host ended \(2\)[^$]*{why}"):  # no restart would help
            host.start()
        checked = lib.run_weir("serve", "--check", "--config", host.config, "--driver", "softgpu")
        self.assertEqual((checked.returncode, why in checked.stderr), (2, True))

    def test_a_user_that_cannot_be_is_refused(self):
        self.refused("no-such-user", "there is no such user")
        if os.geteuid() != 0:
            self.refused("root", "only a host that root runs")

    def descriptors(self, pid):
        """What a process has open and another could share: (device, inode) of files and sockets."""
        found = {}
        for fd, target in lib.fds_of(pid).items():
            if fd > 2 and not target.startswith("anon_inode:"):
                info = os.stat(f"/proc/{pid}/fd/{fd}")
                found[info.st_dev, info.st_ino] = f"{fd} -> {target}"
        return found

    @unittest.skipUnless(os.geteuid() == 0, "the descriptors of a process that is not dumpable are root's to see")
    def test_workers_share_no_descriptors(self):
        host = self.programs()
        pids = self.workers(host)
        of = {pid: self.descriptors(pid) for pid in [*pids, host.pid]}
        self.assertTrue(all(of.values()))
        for i, pid in enumerate(pids):
            for other in [*pids[i + 1:], host.pid]:
                shared = of[pid].keys() & of[other].keys()
                # The supervisor keeps the tenants' device memory: that of the program's own worker.
                left = [of[pid][key] for key in shared if other != host.pid or "memfd:" not in of[pid][key]]
                self.assertEqual(left, [], f"{pid} and {other}")

    def test_workers_have_no_terminal(self):
        def terminal(pid):
            return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[4])

        host = self.programs(prefix=[sys.executable, "-c", WITH_TERMINAL])
        self.assertNotEqual(terminal(host.pid), 0)
        children = lib.children_of(host.pid)
        self.assertGreaterEqual(len(children), 4)
        self.assertEqual({terminal(pid) for pid in children}, {0})

    @as_root
    def test_what_roots_alone_is_gets_to_workers(self):
        """A worker can open neither the folder of the log nor that of the run directory."""
        private = self.folder()
        os.chmod(private, 0o700)
        log = os.path.join(private, "log")
        host = self.host(host_lines=[f'worker_user = "{USER}"'], log=f"info:{log}",
                         run_dir=os.path.join(private, "run"))
        self.finished(host, "e2e_minimal", tenant="alice")
        self.finished(host, "e2e_minimal", tenant="bob", arrangement=lib.ZMQ)
        self.assertRegex(pathlib.Path(log).read_text(), r"(?m)^\S+ worker info ")
        self.assertEqual(host.stop(), 0)

    def cached(self, folder):
        """The owners of the files that a host keeps there."""
        lines = [f'worker_user = "{USER}"', *lib.forms_lines(folder), "", "[scheduler]", 'policy = "fair"']
        host = self.host(host_lines=lines)
        self.finished(host, "drv_vector_add", tenant="alice")
        self.assertEqual(host.stop(), 0)
        cache = os.path.join(folder, "cache")
        return {os.stat(os.path.join(cache, name)).st_uid for name in os.listdir(cache)}, host.process.err

    @as_root
    def test_caches_are_the_workers_also_what_root_has_left(self):
        folder = self.folder()
        cache = os.path.join(folder, "cache")
        os.mkdir(cache, 0o700)
        pathlib.Path(cache, "0" * 32 + ".twins").write_text("of a host that had no such user")
        owners, said = self.cached(folder)
        self.assertEqual(owners, {pwd.getpwnam(USER).pw_uid}, said)
        self.assertGreater(len(os.listdir(cache)), 1)

    @as_root
    def test_a_folder_that_is_no_cache_is_not_given_away(self):
        folder = self.folder()
        cache = os.path.join(folder, "cache")
        os.mkdir(cache, 0o711)
        pathlib.Path(cache, "precious").write_text("root's")
        owners, said = self.cached(folder)
        self.assertEqual((owners, os.listdir(cache), os.stat(cache).st_uid), ({0}, ["precious"], 0))
        self.assertRegex(said, "warn supervisor: cache: .*it is the host's, and has other files")

    def test_doctor_says_what_is_not_confined(self):
        def doctor(host):
            return lib.run_weir("doctor", "--run-dir", host.run_dir).stdout

        own = self.host(host_lines=['worker_user = "root"'] if os.geteuid() == 0 else [])
        self.assertRegex(doctor(own), r"warning +workers run as " + ("root" if os.geteuid() == 0 else "the host's own"))
        self.assertIn("system calls are refused to them", doctor(own))
        if OTHERS:
            said = doctor(self.host(host_lines=[f'worker_user = "{USER}"']))
            self.assertRegex(said, rf"ok +workers run as {USER}\n")
            self.assertNotIn("warning  workers", said)
        self.assertIsNone(re.search("workers have privileges", doctor(own)))


if __name__ == "__main__":
    lib.main()
