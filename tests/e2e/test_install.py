#!/usr/bin/env python3
"""Installed and packaged: weir works from a prefix of its own, from the TGZ, the DEB and the RPM."""
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
                               env=lib.clean_environment(), capture_output=True, text=True, timeout=180)
        self.assertEqual(guest.returncode, 0, guest.stdout + guest.stderr)
        self.assertTrue(guest.stdout.startswith(os.path.realpath(prefix)), guest.stdout)
        self.assertIn("PASS e2e_minimal", guest.stdout)
        worker = host.worker_pid()
        with lib.looking_into(worker), open(f"/proc/{worker}/maps") as f:
            softgpu = re.search(r"\S*libweir-softgpu.so", f.read())[0]
        self.assertTrue(softgpu.startswith(os.path.realpath(prefix)), softgpu)
        self.assertEqual(host.stop(), 0)
        lib.places.weir = saved[0]
        # As README has it: softgpu is a program's driver, too.
        folder = os.path.join(os.path.dirname(softgpu), "softgpu")
        plain = subprocess.run([lib.places.program("e2e_minimal")], env=dict(lib.clean_environment(), LD_LIBRARY_PATH=folder),
                               capture_output=True, text=True, timeout=180)
        self.assertEqual(plain.returncode, 0, plain.stdout + plain.stderr)
        self.assertIn("PASS e2e_minimal", plain.stdout)

    def install(self, prefix):
        subprocess.run(["cmake", "--install", lib.places.build, "--prefix", prefix], check=True,
                       stdout=subprocess.DEVNULL, timeout=180)

    def test_cmake_install(self):
        prefix = os.path.join(self.folder(), "prefix")
        self.install(prefix)
        for path in ("bin/weir", "share/man/man1/weir.1", "share/man/man5/weir.toml.5"):
            if path.startswith("share/man") and not shutil.which("scdoc"):
                continue
            self.assertTrue(os.path.exists(os.path.join(prefix, path)), path)
        found = [f for _, _, files in os.walk(prefix) for f in files]
        self.assertLessEqual({"libnvidia-ml.so.1", "libcupti.so", "libcupti.so.12", "libcupti.so.13"}, set(found))
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
        package = packages.cpack("TGZ", self.folder())[""]
        folder = self.folder()
        with tarfile.open(package) as tar:
            names = tar.getnames()
            tar.extractall(folder)
        self.assertEqual([name for name in names if "ld.so.conf" in name or "rules.d" in name], [],
                         "what makes a machine a guest")
        self.prefix_works(self.find_prefix(folder))

    def test_the_unit_is_confined(self):
        """systemd's own measure of what a service could do to a machine: 0 nothing, 10 everything."""
        if not shutil.which("systemd-analyze"):
            self.skipTest("no systemd-analyze")
        for name in ("weir", "weir-keep"):
            with self.subTest(unit=name):
                self.unit_is_confined(name)

    def unit_is_confined(self, name):
        unit = os.path.join(lib.places.source, f"packaging/{name}.service")
        with open(unit) as f:
            self.assertRegex(f.read(), r"(?m)^OOMPolicy=continue$", "a worker that the kernel ends does not end the service")
        said = subprocess.run(["systemd-analyze", "security", "--offline=true", "--no-pager", unit],
                              capture_output=True, text=True, timeout=180)
        exposure = re.search(rf"Overall exposure level for {name}.service: ([0-9.]+)", said.stdout)
        if not exposure:
            self.skipTest(f"this systemd-analyze looks at no files: {said.stderr.strip()}")
        self.assertLessEqual(float(exposure[1]), 3.0, said.stdout)

    def has(self, folder, *paths):
        for path in paths:
            self.assertTrue(os.path.exists(os.path.join(folder, path)), path)

    def components(self):
        """As CMake has decided."""
        with open(os.path.join(lib.places.build, "CPackConfig.cmake")) as f:
            return set(re.search(r'CPACK_COMPONENTS_ALL "(.*)"', f.read())[1].split(";"))

    def test_what_is_left_out_is_told(self):
        """ci/package, with tools that make the packages of a machine without libvirt's, Slurm's and other headers."""
        tools, out = self.folder(), self.folder()
        for name, line in (("cmake", ":"), ("ninja", ":"), ("cpack", 'touch "$6/weir-host_0_amd64.deb" "$6/weir-guest_0_amd64.deb"')):
            path = os.path.join(tools, name)
            with open(path, "w") as f:
                f.write(f"#!/bin/sh\n{line}\n")
            os.chmod(path, 0o755)
        done = subprocess.run([os.path.join(lib.places.source, "ci/package"), out], capture_output=True, text=True, timeout=180,
                              env=dict(os.environ, PATH=f"{tools}:{os.environ['PATH']}", WEIR_SKIP_INSTALL="1"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([line for line in done.stderr.splitlines() if ".rpm" not in line],
                         ["left out: weir-libvirt, which needs libvirt-dev and libxml2-dev when it is built",
                          "left out: weir-slurm, which needs libslurm-dev when it is built",
                          "left out: weir-kubernetes, which needs libnghttp2-dev, libcurl4-openssl-dev and libjansson-dev when it is built"])

    def guest_needs_libc_alone(self, folder):
        for path in ("usr/bin/weir", "usr/lib/weir/guest/libcuda.so.1", "usr/lib/weir/guest/libnvidia-ml.so.1",
                     "usr/lib/weir/guest/libcupti.so.12", "usr/lib/weir/guest/libcupti.so.13"):
            said = subprocess.run(["readelf", "--dynamic", "--dyn-syms", "--wide", os.path.join(folder, path)],
                                  capture_output=True, text=True, check=True).stdout
            needed = set(re.findall(r"\(NEEDED\).*\[(.+)\]", said))
            self.assertLessEqual(needed, {"libc.so.6", "libdl.so.2", "libpthread.so.0", "ld-linux-x86-64.so.2"}, path)
            newest = max(tuple(map(int, version)) for version in re.findall(r"GLIBC_(\d+)\.(\d+)", said))
            self.assertLessEqual(newest, (2, 28), path)

    def test_deb(self):
        if not shutil.which("dpkg-deb"):
            self.skipTest("no dpkg")
        made = packages.cpack("DEB", self.folder())
        self.assertEqual(set(made), self.components())
        folder = self.folder()
        for component, package in made.items():
            info = subprocess.run(["dpkg-deb", "--info", package], capture_output=True, text=True, check=True).stdout
            self.assertRegex(info, rf"(?m)^ Package: weir-{component}$")
            subprocess.run(["dpkg-deb", "--extract", package, os.path.join(folder, component)], check=True)
            self.has(folder, f"{component}/usr/share/doc/weir-{component}/copyright")
        host = os.path.join(folder, "host")
        self.has(host, "usr/lib/systemd/system/weir.service", "usr/lib/systemd/system/weir-keep.service", "etc/weir/weir.toml", "etc/needrestart/conf.d/weir.conf", "usr/lib/weir/take-over")
        self.assertEqual(self.find_prefix(host), os.path.join(host, "usr"))
        self.prefix_works(os.path.join(host, "usr"))
        self.has(folder, "guest/etc/ld.so.conf.d/weir-guest.conf")
        hook = os.path.join(host, "usr/lib/weir/weir-oci-hook")
        if os.path.exists(hook):
            headers = subprocess.run(["readelf", "--program-headers", hook], capture_output=True, text=True, check=True).stdout
            self.assertNotIn("INTERP", headers, "a machine whose host is a container has no libraries for the hook")
        self.assertEqual(packages.dependencies(made["guest"]), ["libc6"])
        self.guest_needs_libc_alone(os.path.join(folder, "guest"))
        self.assertFalse({"libvirt0", "libxml2"} & set(packages.dependencies(made["host"])))
        if "libvirt" in made:
            self.assertLessEqual({"weir-host", "libvirt0", "libxml2"}, set(packages.dependencies(made["libvirt"])))
        if shutil.which("scdoc"):
            self.has(host, "usr/share/man/man1/weir.1", "usr/share/man/man5/weir.toml.5")
            self.has(folder, "guest/usr/share/man/man1/weir-run.1")

    def test_rpm(self):
        """test_package.py runs what is installed; here is what the file says of itself."""
        if not shutil.which("rpmbuild"):
            self.skipTest("no rpmbuild")
        made = packages.cpack("RPM", self.folder())
        self.assertEqual(set(made), self.components())

        def ask(component, *query):
            return subprocess.run(["rpm", "--query", "--package", *query, made[component]], capture_output=True,
                                  text=True, check=True).stdout.splitlines()

        self.assertEqual(ask("host", "--configfiles"), ["/etc/needrestart/conf.d/weir.conf", "/etc/weir/weir.toml"])
        self.assertIn("libzmq.so.5()(64bit)", ask("host", "--requires"))
        self.assertNotIn("libcuda.so.1()(64bit)", ask("host", "--provides"))
        self.assertIn("libcuda.so.1()(64bit)", ask("guest", "--provides"))
        libraries = {line.split("(")[0] for line in ask("guest", "--requires") if ".so" in line}
        self.assertLessEqual(libraries, {"libc.so.6", "libdl.so.2", "libpthread.so.0", "ld-linux-x86-64.so.2"})
        root = self.folder()
        subprocess.run(["rpm", "--root", root, "--install", "--nodeps", "--noscripts", made["host"]], check=True,
                       capture_output=True)
        self.has(root, "etc/weir/weir.toml", "usr/lib/systemd/system/weir.service")
        self.prefix_works(os.path.join(root, "usr"))


if __name__ == "__main__":
    lib.main()
