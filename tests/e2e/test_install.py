#!/usr/bin/env python3
"""Installed and packaged: weir works from a prefix of its own, from the TGZ and as a DEB."""
import os
import re
import shutil
import subprocess
import tarfile

import lib
import packages


class Install(lib.Case):
    def setUp(self):
        super().setUp()
        if not lib.places.build:
            self.skipTest("only in a build tree")
        if not shutil.which("cmake"):
            self.skipTest("no cmake")

    def prefix_works(self, prefix):
        """A host and a guest of this prefix alone."""
        weir = os.path.join(prefix, "bin/weir")
        saved = lib.places.weir, lib.places.guest_lib
        lib.places.weir = weir
        self.addCleanup(lambda: setattr(lib.places, "weir", saved[0]))
        run_dir = os.path.join(self.folder(), "run")
        host = lib.Host(run_dir=run_dir)
        self.addCleanup(host.discard)
        host.start()
        guest = subprocess.run([weir, "run", "--run-dir", run_dir, "--tenant", "alice", "--", "sh",
                                "-c", f"echo $LD_LIBRARY_PATH; {lib.places.program('e2e_minimal')}"],
                               env=lib.clean_environment(), capture_output=True, text=True, timeout=60)
        self.assertEqual(guest.returncode, 0, guest.stdout + guest.stderr)
        self.assertTrue(guest.stdout.startswith(os.path.realpath(prefix)), guest.stdout)
        self.assertIn("PASS e2e_minimal", guest.stdout)
        worker = host.worker_pid()
        with lib.looking_into(worker), open(f"/proc/{worker}/maps") as f:
            softgpu = re.search(r"\S*libweir-softgpu.so", f.read())[0]
        self.assertTrue(softgpu.startswith(os.path.realpath(prefix)), softgpu)
        self.assertEqual(host.stop(), 0)
        lib.places.weir = saved[0]

    def install(self, prefix):
        subprocess.run(["cmake", "--install", lib.places.build, "--prefix", prefix], check=True,
                       stdout=subprocess.DEVNULL, timeout=60)

    def test_cmake_install(self):
        prefix = os.path.join(self.folder(), "prefix")
        self.install(prefix)
        for path in ("bin/weir", "share/man/man1/weir.1", "share/man/man5/weir.toml.5"):
            if path.startswith("share/man") and not shutil.which("scdoc"):
                continue
            self.assertTrue(os.path.exists(os.path.join(prefix, path)), path)
        found = [f for _, _, files in os.walk(prefix) for f in files]
        self.assertIn("libnvidia-ml.so.1", found)
        if os.path.exists(os.path.join(lib.places.build, "slurm/weir_spank.so")):
            beside = [path for path, _, files in os.walk(prefix) if "weir_spank.so" in files]
            self.assertTrue(os.path.exists(os.path.join(beside[0], "guest/libcuda.so.1")), beside)
        self.prefix_works(prefix)

    def find_prefix(self, folder):
        for path, _, files in os.walk(folder):
            if path.endswith("/bin") and "weir" in files:
                return os.path.dirname(path)
        self.fail("no bin/weir in the package")

    def test_tgz(self):
        package = packages.cpack("TGZ", self.folder())
        folder = self.folder()
        with tarfile.open(package) as tar:
            tar.extractall(folder)
        self.prefix_works(self.find_prefix(folder))

    def test_the_unit_is_confined(self):
        """systemd's own measure of what a service could do to a machine: 0 nothing, 10 everything."""
        if not shutil.which("systemd-analyze"):
            self.skipTest("no systemd-analyze")
        unit = os.path.join(lib.places.source, "packaging/weir.service")
        said = subprocess.run(["systemd-analyze", "security", "--offline=true", "--no-pager", unit],
                              capture_output=True, text=True, timeout=60)
        exposure = re.search(r"Overall exposure level for weir.service: ([0-9.]+)", said.stdout)
        if not exposure:
            self.skipTest(f"this systemd-analyze looks at no files: {said.stderr.strip()}")
        self.assertLessEqual(float(exposure[1]), 3.0, said.stdout)

    def test_deb(self):
        if not shutil.which("dpkg-deb"):
            self.skipTest("no dpkg")
        package = packages.cpack("DEB", self.folder())
        info = subprocess.run(["dpkg-deb", "--info", package], capture_output=True, text=True,
                              check=True).stdout
        self.assertRegex(info, r"Package: weir")
        self.assertRegex(info, r"Depends: .*libc6")
        folder = self.folder()
        subprocess.run(["dpkg-deb", "--extract", package, folder], check=True)
        self.prefix_works(self.find_prefix(folder))
        units = [os.path.join(p, f) for p, _, fs in os.walk(folder) for f in fs
                 if f == "weir.service"]
        self.assertEqual(len(units), 1, "the systemd unit")
        self.assertTrue(os.path.exists(os.path.join(folder, "etc/weir/weir.toml")))
        if shutil.which("scdoc"):
            self.assertTrue(os.path.exists(os.path.join(folder, "usr/share/man/man1/weir.1")))


if __name__ == "__main__":
    lib.main()
