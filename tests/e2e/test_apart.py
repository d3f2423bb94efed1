#!/usr/bin/env python3
"""What of Weir is installed or runs on the machine makes no difference to the end-to-end tests (namespaces.py)."""
import os
import pwd
import subprocess
import sys
import unittest

import lib
import namespaces

# What a package and its host leave where others look, in a mount namespace: the user of workers, a CDI file with the
# device that each host has, a folder of sockets. "$1" is the file of users; then comes what is run beside all that.
INSTALLED = """set -e
mount --bind "$1" /etc/passwd
mkdir -p /run/cdi && mount -t tmpfs none /run/cdi
echo '{"cdiVersion": "0.5.0", "kind": "weir.dev/gpu", "devices": [{"name": "new", "containerEdits": {}}]}' > /run/cdi/weir.json
shift
exec "$@"
"""


class Seen(lib.Case):
    def test_nobody_elses_settings(self):
        names = [name for name in os.environ if name.startswith(("WEIR_", "CUDA_", "LD_LIBRARY_PATH"))]
        self.assertEqual([name for name in names if not name.startswith("WEIR_E2E_") and name != "WEIR_LIBZMQ"], [])

    @unittest.skipUnless(os.geteuid() == 0, "only root has mounts of its own")
    def test_nobody_elses_files_and_users(self):
        for folder in filter(os.path.isdir, namespaces.OTHERS):
            self.assertEqual(os.listdir(folder), [], folder)
        self.assertNotIn(namespaces.USER, [user.pw_name for user in pwd.getpwall()])
        host = self.host()
        host.process.wait_log("workers run as " + ("this host's own user" if lib.WORKER_USER == "root" else f"user={lib.WORKER_USER}"))
        self.finished(host, "e2e_minimal")


class Beside(lib.Case):
    @unittest.skipUnless(os.geteuid() == 0, "only root has mounts of its own")
    def test_an_installed_weir(self):
        users = os.path.join(self.folder(), "passwd")
        with open("/etc/passwd") as f, open(users, "w") as to:
            to.write(f.read() + f"{namespaces.USER}:x:61235:61235::/nonexistent:/usr/sbin/nologin\n")
        beside = ["unshare", "--mount", "sh", "-c", INSTALLED, "sh", users]
        if subprocess.run([*beside, "true"], capture_output=True, timeout=180).returncode != 0:
            self.skipTest("no mount namespaces here")
        env = dict(os.environ, WEIR_HOST="ipc:///run/weir/default.sock", WEIR_TRANSPORT="zmq", CUDA_VISIBLE_DEVICES="7")
        here = os.path.dirname(os.path.abspath(__file__))
        for case in (("test_apart.py", "Seen"), ("test_devices.py", "Exclusive")):
            done = subprocess.run([*beside, sys.executable, "-B", os.path.join(here, case[0]), case[1]], env=env,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=180)
            self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == "__main__":
    lib.main()
