#!/usr/bin/env python3
"""The Debian package on a system with systemd: apt install ends with a running service, and purge leaves nothing.

The system is a container; with WEIR_E2E_FULL=1 it is a virtual machine, too.
"""
import os
import shutil
import unittest

import containers
import kvm
import lib
import packages

PROGRAM = "e2e_minimal"
# Where a folder of a package or of programs is in the system.
OLD, NEW, PROGRAMS = "/package", "/package-new", "/programs"
INSTALL = "apt-get install --quiet=2 --yes --no-install-recommends"
TENANT = r'\n[[tenant]]\nname = "mine"\n'
CONFIG = "/etc/weir/weir.toml"


class Package(lib.Case):
    @classmethod
    def setUpClass(cls):
        containers.need(lib.places.build, "packages are made from a build tree")
        for tool in ("cpack", "dpkg-deb", "dpkg-shlibdeps"):
            containers.need_program(tool)
        cls.engine = containers.Podman()
        cls.addClassCleanup(cls.engine.close)
        cls.mounts = {}
        for place, version in ((OLD, "0.0.1"), (NEW, "0.0.2")):
            folder = cls.mounts[place] = os.path.join(cls.engine.folder, place[1:])
            made = packages.cpack("DEB", os.path.join(cls.engine.folder, "cpack-" + version), "-R", version)
            os.mkdir(folder)
            os.rename(made, os.path.join(folder, "weir.deb"))
        programs = cls.mounts[PROGRAMS] = os.path.join(cls.engine.folder, "programs")
        os.mkdir(programs)
        shutil.copy(lib.places.program(PROGRAM), programs)
        cls.tar = packages.root_image(os.path.join(cls.mounts[OLD], "weir.deb"))
        cls.image = cls.engine.image(cls.tar)

    def setUp(self):
        super().setUp()
        self.limit(6 * lib.CASE_LIMIT_S)

    def boot(self, image=None):
        self.system = packages.booted_container(self.engine, image or self.image, self.mounts)
        self.addCleanup(self.system.discard)

    def on(self, line, expect=0, limit_s=60):
        """The output of a command line there."""
        status, output = self.system.run(line, limit_s)
        if status != expect:
            _status, journal = self.system.run("journalctl --no-pager --unit weir | tail -n 30")
            self.fail(f"{line}: {status}\n{output}\n--- journal\n{journal}")
        return output

    def service(self, name):
        return self.on(f"systemctl show --property={name} --value weir")

    def serves(self, tenant="default"):
        """The service runs, has never failed, and a program of the tenant works."""
        self.assertEqual(self.service("ActiveState"), "active")
        self.assertEqual(self.service("NRestarts"), "0")
        self.assertRegex(self.on("weir status"), rf"(?m)^{tenant} ")
        of_tenant = "" if tenant == "default" else f"--tenant {tenant} "
        self.assertIn(f"PASS {PROGRAM}", self.on(f"weir run {of_tenant}-- {PROGRAMS}/{PROGRAM}"))

    def nothing_is_left(self):
        places = "/etc /run /usr /var /dev/shm"
        self.assertEqual(self.on(f"find {places} -name '*weir*' -not -path '/run/systemd/*'"), "")

    def live(self):
        """Everything that happens to a package, on the system that is up."""
        self.on(f"{INSTALL} {OLD}/weir.deb", limit_s=240)
        self.serves()
        self.assertEqual(self.on("systemctl is-enabled weir"), "enabled")
        doctor = self.on("weir doctor")
        self.assertIn("All is well.", doctor)
        self.assertRegex(doctor, r"ok +workers run as weir-worker\n")
        self.assertNotIn("warning  workers", doctor)
        user = self.on("getent passwd weir-worker")
        self.assertEqual(self.on("stat --format=%U /var/cache/weir"), "weir-worker")

        self.on(f"printf '{TENANT}' >> {CONFIG} && systemctl reload weir")
        lib.until(lambda: "mine" in self.on("weir status"), 20, "the new tenant is there", 0.2)
        self.serves("mine")

        before = self.service("MainPID")
        self.on(f"{INSTALL} {NEW}/weir.deb", limit_s=240)
        self.assertEqual(self.on("dpkg-query --show --showformat='${Version}' weir"), "0.0.2")
        self.assertNotEqual(self.service("MainPID"), before)
        self.assertEqual(self.on("getent passwd weir-worker"), user)
        self.serves("mine")

        self.on("apt-get remove --quiet=2 --yes weir", limit_s=120)
        self.assertEqual(self.on("systemctl is-active weir", expect=3), "inactive")
        self.assertNotIn("/usr/bin/weir", self.on("readlink /proc/[0-9]*/exe || true"))
        self.on(f"grep mine {CONFIG}")
        self.assertEqual(self.on("getent passwd weir-worker"), user)
        self.on("apt-get purge --quiet=2 --yes weir", limit_s=120)
        self.nothing_is_left()
        self.assertEqual(self.on("getent passwd weir-worker; getent group weir-worker", expect=2), "")
        self.assertEqual(self.on("systemctl list-units --all --no-legend 'weir*'"), "")

    def test_a_cache_of_roots_becomes_the_workers(self):
        """As an older version leaves it."""
        self.boot()
        name = "0" * 32 + ".twins"
        self.on(f"mkdir -m 700 /var/cache/weir && touch /var/cache/weir/{name}")
        self.on(f"{INSTALL} {OLD}/weir.deb", limit_s=240)
        self.serves()
        self.assertEqual(self.on("stat --format=%U /var/cache/weir"), "weir-worker")
        self.assertNotIn("the cache is not", self.on("journalctl --no-pager --unit weir"))

    def test_its_life(self):
        self.boot()
        self.live()

    def test_what_the_administrator_has_disabled_stays_so(self):
        self.boot()
        self.on(f"{INSTALL} {OLD}/weir.deb && systemctl disable --now weir")
        self.on(f"{INSTALL} {NEW}/weir.deb")
        self.assertEqual(self.on("systemctl is-enabled weir", expect=1), "disabled")
        self.assertEqual(self.on("systemctl is-active weir", expect=3), "inactive")

    def test_installed_where_no_systemd_runs_it_starts_with_the_machine(self):
        self.system = packages.Container(self.engine, self.image, "sleep", "infinity", mounts=self.mounts)
        self.addCleanup(self.system.discard)
        self.on(f"{INSTALL} {OLD}/weir.deb")
        self.on("test ! -e /run/weir")
        name = f"localhost/weir-e2e-installed:{os.getpid()}"
        self.engine.must("commit", "--quiet", self.system.id, name)
        self.addCleanup(self.engine.command, "rmi", "--force", name)
        self.on("apt-get purge --quiet=2 --yes weir")
        self.nothing_is_left()
        self.boot(name)
        self.serves()

    @unittest.skipUnless(kvm.FULL, "only with WEIR_E2E_FULL=1")
    def test_its_life_in_a_virtual_machine(self):
        self.limit(900)
        self.system = packages.booted_machine(self.folder(), self.tar, self.mounts)
        self.addCleanup(self.system.discard)
        self.live()


if __name__ == "__main__":
    lib.main()
