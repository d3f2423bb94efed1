#!/usr/bin/env python3
"""The packages on a system with systemd: apt install ends with a running service, and purge leaves nothing.

The system is a container; with WEIR_E2E_FULL=1 it is a virtual machine, too. Its GPU is softgpu, installed as NVIDIA's
libcuda.so.1 would be: the packaged host takes it for NVIDIA's, and softgpu as such it must not serve unasked.
"""
import os
import shutil
import subprocess
import unittest

import containers
import kvm
import lib
import packages

PROGRAM = "e2e_minimal"
WORK = "e2e_steady"  # goes on until its input ends
# Where a folder of packages or of programs is in the system.
OLD, NEW, PROGRAMS, OUTSIDE = "/package", "/package-new", "/programs", "/outside"
DEB = "weir-host.deb"
INSTALL = "apt-get install --quiet=2 --yes --no-install-recommends -o Dpkg::Options::=--force-unsafe-io"  # no fsync: it waits for disks that others use
TENANT = r'\n[[tenant]]\nname = "mine"\n'
CONFIG = "/etc/weir/weir.toml"
GPU = (f"cp {PROGRAMS}/libweir-softgpu.so /usr/lib/$(uname -m)-linux-gnu/libcuda.so.1 && "
       "touch /dev/nvidiactl /dev/nvidia-uvm && chmod 666 /dev/nvidia*")
NO_GPU = "rm /usr/lib/$(uname -m)-linux-gnu/libcuda.so.1 /dev/nvidia*"

# A machine whose only Weir is the image of the host; the words are podman and its options, the image of a machine without
# Weir, and the folder of programs.
MACHINE = """set -e
mount -t tmpfs none /run && mkdir /run/weir /run/cdi && mount -t tmpfs none /var/lib/weir
podman="$1" bare=$2 programs=$3
host=$($podman run --detach --pid=host --network none --volume /run/weir:/run/weir --volume /run/cdi:/run/cdi \\
    --volume /var/lib/weir:/var/lib/weir localhost/weir-host %s)
guest() { $podman run --rm --network none --volume $programs:/programs:ro --device "$@"; }
tries=0
until [ -S /run/weir/containers/default/default.sock ]; do
    sleep 0.1
    tries=$((tries + 1))
    [ $tries -lt 300 ] && [ "$($podman inspect --format '{{.State.Status}}' $host)" = running ] || break
done
guest weir.dev/gpu=default $bare /programs/e2e_minimal 2>&1 || echo "rc $?"
guest weir.dev/gpu=default --device weir.dev/gpu=new $bare /programs/e2e_minimal 2>&1 || echo "rc of two devices $?"
$podman exec $host weir doctor || echo "rc $?"
$podman stop --time 20 $host >/dev/null
$podman logs $host 2>&1
echo "the host's exit status: $($podman inspect --format '{{.State.ExitCode}}' $host)"
$podman rm --force $host >/dev/null
"""

# Another machine has the run directory, the CDI file and /usr of a system in which the package is installed: with podman for
# its engine. The words are podman and its options, the image, the folder of what is shared, and the system's container.
ENGINE = """set -e
podman="$1" bare=$2 folder=$3 system=$4
mount -t tmpfs none /run && mkdir -p /run/weir /run/cdi /run/work /run/usr/bin /run/usr/lib
mount --bind $folder/weir /run/weir && mount --bind $folder/cdi /run/cdi
root=$($podman mount $system)
cp -a $root/usr/lib/weir /run/usr/lib && cp -a $root/usr/bin/nvidia-smi /run/usr/bin
mount -t overlay none -o lowerdir=/usr,upperdir=/run/usr,workdir=/run/work /usr
$podman run --rm --network none --volume $folder/programs:/programs:ro --device weir.dev/gpu=default $bare nvidia-smi
"""


class Package(lib.Case):
    @classmethod
    def setUpClass(cls):
        containers.need(lib.places.build, "packages are made from a build tree")
        for tool in ("cpack", "dpkg-deb", "dpkg-shlibdeps"):
            containers.need_program(tool)
        cls.engine = containers.Podman()
        cls.addClassCleanup(cls.engine.close)
        cls.mounts = {}
        for place in (OLD, NEW, PROGRAMS):
            cls.mounts[place] = os.path.join(cls.engine.folder, place[1:])
            os.mkdir(cls.mounts[place])
        for generator in ("DEB", *(["RPM"] if shutil.which("rpmbuild") else [])):
            made = packages.cpack(generator, os.path.join(cls.engine.folder, "cpack"), "-R", "0.0.1")
            for component, path in made.items():
                os.rename(path, os.path.join(cls.mounts[OLD], f"weir-{component}.{generator.lower()}"))
        packages.later(os.path.join(cls.mounts[OLD], DEB), os.path.join(cls.mounts[NEW], DEB), "0.0.2")
        programs = cls.mounts[PROGRAMS]
        shutil.copy(lib.places.program(PROGRAM), programs)
        shutil.copy(lib.places.program(WORK), programs)
        shutil.copy(lib.places.softgpu, programs)
        os.mkdir(os.path.join(cls.engine.folder, OUTSIDE[1:]))
        cls.tar = packages.root_image(os.path.join(cls.mounts[OLD], DEB))
        cls.image = cls.engine.image(cls.tar)

    def setUp(self):
        super().setUp()
        self.limit(6 * lib.CASE_LIMIT_S)

    def boot(self, image=None, mounts=None):
        self.system = packages.booted_container(self.engine, image or self.image, mounts or self.mounts)
        self.addCleanup(self.system.discard)

    def on(self, line, expect=0, limit_s=60):
        """The output of a command line there."""
        status, output = self.system.run(line, limit_s)
        if status != expect:
            _status, journal = self.system.run("journalctl --no-pager --unit weir | tail -n 30")
            self.fail(f"{line}: {status}\n{output}\n--- journal\n{journal}")
        return output

    def install(self, path):
        return self.on(f"{INSTALL} {path}", limit_s=240)

    def service(self, name):
        return self.on(f"systemctl show --property={name} --value weir")

    def serves(self, tenant="default", restarts=0):
        """The service runs, and a program of the tenant works. None: systemd may have restarted it any number of times."""
        self.assertEqual(self.service("ActiveState"), "active")
        if restarts is not None:
            self.assertEqual(self.service("NRestarts"), str(restarts))
        self.assertRegex(self.on("weir status"), rf"(?m)^{tenant} ")
        of_tenant = "" if tenant == "default" else f"--tenant {tenant} "
        self.assertIn(f"PASS {PROGRAM}", self.on(f"weir run {of_tenant}-- {PROGRAMS}/{PROGRAM}"))

    def nothing_is_left(self):
        places = "/etc /run /usr /var /dev/shm"
        self.assertEqual(self.on(f"find {places} -name '*weir*' -not -path '/run/systemd/*'"), "")

    def said(self, pattern):
        return self.on(f"journalctl --no-pager --output=cat --unit weir | grep -E '{pattern}' || true").splitlines()

    def without_a_gpu(self):
        """As on a machine that builds images, or before NVIDIA's driver is installed."""
        cache = "0" * 32 + ".twins"  # as an older version leaves it: root's
        self.on(f"mkdir -m 700 /var/cache/weir && touch /var/cache/weir/{cache}")
        self.assertIn("journalctl -u weir", self.install(f"{OLD}/{DEB}"))
        self.assertEqual((self.service("ActiveState"), self.service("ExecMainStatus"), self.service("NRestarts")),
                         ("failed", "69", "0"))
        errors = self.said("serve error")
        self.assertEqual(len(errors), 1, errors)
        self.assertIn("no NVIDIA GPU to serve: NVIDIA's driver is not loaded", errors[0])
        self.assertEqual(self.on("stat --format=%U /var/cache/weir"), "weir-worker")
        self.assertEqual(self.said("the cache is not"), [])
        self.on(f"sed -i 's/^#.host.$/[host]/; s/^#driver = /driver = /' {CONFIG} && systemctl start weir")
        self.assertIn("libweir-so", self.on("weir status"))
        self.serves()
        self.on("apt-get purge --quiet=2 --yes weir-host", limit_s=120)
        self.nothing_is_left()

    def with_a_gpu(self):
        self.on(GPU)
        self.install(f"{OLD}/{DEB}")
        self.serves()
        self.assertRegex(self.on("weir status"), r"(?m) libcuda\.so\.1 ")
        self.assertIn('"name": "default"', self.on("cat /var/run/cdi/weir.json"))
        self.assertEqual(self.on("systemctl is-enabled weir"), "enabled")
        doctor = self.on("weir doctor")
        self.assertIn("All is well.", doctor)
        self.assertRegex(doctor, r"ok +workers run as weir-worker\n")
        self.assertNotIn("warning  workers", doctor)
        # It sees what root does not notice.
        for breaks, mends in (("chmod 600 /usr/lib/weir/guest/libcuda.so.1", "chmod 644 /usr/lib/weir/guest/libcuda.so.1"),
                              ("mv /run/cdi/weir.json /run", "mv /run/weir.json /run/cdi"),
                              ("rm /run/weir/default.sock", "systemctl reload weir"),
                              ("chmod 700 /run/weir", "chmod 755 /run/weir"),
                              ("chmod 000 /run/weir/containers", "systemctl reload weir"),
                              ("chmod 700 /usr/lib/weir/weir-oci-hook", "chmod 755 /usr/lib/weir/weir-oci-hook"),
                              ("sed -i s,/usr/lib/weir/guest,/usr/lib/weir-0.0.1, /run/cdi/weir.json", "systemctl reload weir")):
            found = self.on(f"{breaks}; weir doctor", expect=1)
            self.assertRegex(found, "(?m)^problem ", breaks)
            self.on(mends)
        lib.until(lambda: "All is well." in self.on("weir doctor || true"), 20, "all is mended", 0.5)
        self.assertEqual(self.on("stat --format=%U /var/cache/weir"), "weir-worker")
        journal = "test -S /run/systemd/journal/socket"  # who reaches it writes lines in the service's name
        self.on(journal)
        self.on(f"nsenter --mount --target {self.service('MainPID')} {journal}", expect=1)
        self.assertTrue(self.said("worker info worker: "), "what workers say comes there by the host")
        completion = (". /usr/share/bash-completion/completions/weir; COMP_WORDS=(weir run --tenant d) COMP_CWORD=3; "
                      "_weir weir d --tenant; echo $COMPREPLY")
        self.assertEqual(self.on(f"bash -c '{completion}'"), "default")

    def runs(self):
        """What happens to a service: reload, restart, crash, a wrong configuration, rotation of its log."""
        self.on(f"printf '{TENANT}' >> {CONFIG} && systemctl reload weir")
        lib.until(lambda: "mine" in self.on("weir status"), 20, "the new tenant is there", 0.2)
        self.serves("mine")
        before = self.service("MainPID")
        self.on("systemctl restart weir")
        self.assertNotEqual(self.service("MainPID"), before)
        self.serves("mine")
        before = self.service("MainPID")
        self.on(f"kill -9 {before}")
        lib.until(lambda: self.service("MainPID") not in (before, "0") and self.service("ActiveState") == "active", 20,
                  "systemd has started it again", 0.2)
        self.serves("mine", restarts=1)

        self.on(f"cp {CONFIG} /root/good && echo 'wieght = 1' >> {CONFIG}")
        self.on("systemctl restart weir", expect=1)
        self.assertEqual((self.service("ActiveState"), self.service("ExecMainStatus"), self.service("NRestarts")),
                         ("failed", "2", "0"))
        self.assertEqual(len(self.said("unknown key .wieght.")), 1)
        self.on(f"mv /root/good {CONFIG} && systemctl restart weir")

        before = self.service("MainPID")
        self.on(f"cp {CONFIG} /root/good && echo 'wieght = 1' >> {CONFIG}")
        self.on("systemctl reload weir", expect=1)
        self.on(f"mv /root/good {CONFIG} && systemctl reload weir")
        self.assertEqual((self.service("ActiveState"), self.service("MainPID")), ("active", before))

        self.on("journalctl --rotate --vacuum-time=1s")
        self.on("systemctl reload weir")
        lib.until(lambda: self.said("reloading"), 20, "the log goes on", 0.2)
        self.assertEqual(self.on("find /var/log -name '*weir*'"), "")
        self.serves("mine")

    def work_begins(self):
        """A program that goes on until work_ends()."""
        self.on("systemd-run --quiet --unit=hold sleep 600")
        self.on(f"systemd-run --quiet --unit=work sh -c 'while systemctl --quiet is-active hold; do sleep 0.2; done | "
                f"weir run -- {PROGRAMS}/{WORK} >/root/said 2>&1; echo status $? >>/root/said'")
        lib.until(lambda: "round 1" in self.on("cat /root/said || true"), 20, "the program works", 0.2)

    def work_ends(self):
        """Its results are right, and it has noticed nothing."""
        self.on("systemctl stop hold")
        lib.until(lambda: "status" in self.on("cat /root/said"), 20, "the program has ended", 0.2)
        self.assertRegex(self.on("cat /root/said"), rf"PASS {WORK}[^\n]*\nstatus 0$")

    def upgrade_under_work(self, line):
        """The new version serves at once, and the program that runs notices nothing."""
        self.work_begins()
        before = self.service("MainPID")
        self.on(line, limit_s=240)
        lib.until(lambda: self.service("MainPID") not in (before, "0") and self.service("ActiveState") == "active", 20,
                  "the new version serves", 0.2)
        self.assertIn(f"PASS {PROGRAM}", self.on(f"weir run -- {PROGRAMS}/{PROGRAM}"))
        self.work_ends()
        self.serves(restarts=None)

    def upgrade(self):
        self.upgrade_under_work(f"{INSTALL} {NEW}/{DEB}")
        self.on("weir drain")
        self.assertIn("restarted: ", self.install(f"--allow-downgrades {OLD}/{DEB}"))
        self.assertIn("is drained", self.on(f"weir run -- {PROGRAMS}/{PROGRAM}", expect=1))
        self.on("weir undrain")
        self.on("printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d && chmod 755 /usr/sbin/policy-rc.d")
        before = self.service("MainPID")
        self.install(f"{NEW}/{DEB}")
        self.assertEqual(self.service("MainPID"), before)
        self.on("rm /usr/sbin/policy-rc.d")
        self.install(f"--allow-downgrades {OLD}/{DEB}")
        user = self.on("getent passwd weir-worker")
        before = self.service("MainPID"), self.on(f"md5sum {CONFIG}")
        self.install(f"{NEW}/{DEB}")
        self.assertEqual(self.on("dpkg-query --show --showformat='${Version}' weir-host"), "0.0.2")
        self.assertNotEqual(self.service("MainPID"), before[0])
        self.assertEqual(self.on(f"md5sum {CONFIG}"), before[1])
        self.assertEqual(self.on("getent passwd weir-worker"), user)
        self.serves("mine", restarts=None)
        self.on("systemctl disable --now weir")
        self.install(f"--allow-downgrades {OLD}/{DEB}")
        self.assertEqual(self.on("systemctl is-enabled weir", expect=1), "disabled")
        self.assertEqual(self.on("systemctl is-active weir", expect=3), "inactive")
        self.on("systemctl enable --now weir")

    def remove(self):
        user = self.on("getent passwd weir-worker")
        self.on("apt-get remove --quiet=2 --yes weir-host", limit_s=120)
        self.assertEqual(self.on("systemctl is-active weir", expect=3), "inactive")
        self.assertNotIn("/usr/bin/weir", self.on("readlink /proc/[0-9]*/exe || true"))
        self.on(f"grep mine {CONFIG}")
        self.assertEqual(self.on("getent passwd weir-worker"), user)
        self.on("apt-get purge --quiet=2 --yes weir-host", limit_s=120)
        self.nothing_is_left()
        self.assertEqual(self.on("getent passwd weir-worker; getent group weir-worker", expect=2), "")
        self.assertEqual(self.on("systemctl list-units --all --no-legend 'weir*'"), "")

    def live(self):
        """Everything that happens to a host's package, on the system that is up."""
        self.without_a_gpu()
        self.with_a_gpu()
        self.runs()
        self.upgrade()
        self.remove()

    def rpm(self):
        """The RPM's scripts, on the same system: they ask systemd, and nothing of the distribution."""
        self.on(f"rpm --force-debian -i --nodeps {OLD}/weir-host.rpm")
        self.serves()
        self.on(f"printf '{TENANT}' >> {CONFIG}")
        before = self.service("MainPID")
        self.on(f"rpm --force-debian -U --nodeps --replacepkgs {OLD}/weir-host.rpm")
        self.assertNotEqual(self.service("MainPID"), before)
        self.upgrade_under_work(f"rpm --force-debian -U --nodeps --replacepkgs {OLD}/weir-host.rpm")
        self.serves("mine", restarts=None)
        self.on("rpm --force-debian -e --nodeps weir-host")
        self.assertEqual(self.on("systemctl is-active weir", expect=3), "inactive")
        self.on(f"grep mine {CONFIG}.rpmsave && test ! -e /usr/bin/weir")

    def guest(self):
        """A machine without a host: programs there load the guest library by themselves."""
        self.on(NO_GPU)
        self.install(f"{OLD}/weir-guest.deb")
        self.assertIn("/usr/lib/weir/guest/libcuda.so.1", self.on("ldconfig -p"))
        at = f"WEIR_HOST=ipc://{OUTSIDE}/default.sock"
        self.assertIn(f"PASS {PROGRAM}", self.on(f"{at} {PROGRAMS}/{PROGRAM}"))
        self.assertIn(f"PASS {PROGRAM}", self.on(f"weir run --host ipc://{OUTSIDE}/default.sock -- {PROGRAMS}/{PROGRAM}"))
        doctor = self.on(f"{at} weir doctor")
        self.assertIn("programs load it by themselves\n", doctor)
        self.assertRegex(doctor, r"ok +a program here sees: .* MiB")
        self.assertIn("Conflicts", self.on(f"dpkg --simulate --install {OLD}/{DEB} || true").replace("conflicts", "Conflicts"))
        self.on("apt-get purge --quiet=2 --yes weir-guest", limit_s=120)
        self.assertEqual(self.on("ldconfig -p | grep weir || true"), "")
        self.on(f"{at} {PROGRAMS}/{PROGRAM}", expect=1)

    def test_their_life(self):
        outside = os.path.join(self.engine.folder, OUTSIDE[1:])
        host = lib.Host(("default",), run_dir=outside)
        self.addCleanup(host.discard)
        host.start()
        self.boot(mounts={**self.mounts, OUTSIDE: outside})
        self.live()
        if os.path.exists(os.path.join(self.mounts[OLD], "weir-host.rpm")):
            self.rpm()
            self.on(f"rm -r {CONFIG}.rpmsave /etc/weir /run/weir /var/cache/weir /var/cache/weir.times /dev/shm/weir*; userdel weir-worker")
        self.guest()
        self.nothing_is_left()

    def test_installed_where_no_systemd_runs_it_starts_with_the_machine(self):
        self.system = packages.Container(self.engine, self.image, "sleep", "infinity", mounts=self.mounts)
        self.addCleanup(self.system.discard)
        self.on(GPU.replace("touch /dev", ": /dev").replace("chmod", ":"))
        self.install(f"{OLD}/{DEB}")
        self.on("test ! -e /run/weir")
        name = f"localhost/weir-e2e-installed:{os.getpid()}"
        self.engine.must("commit", "--quiet", self.system.id, name)
        self.addCleanup(self.engine.command, "rmi", "--force", name)
        self.on("apt-get purge --quiet=2 --yes weir-host")
        self.nothing_is_left()
        self.boot(name)
        self.serves()

    def machine(self, script, *words):
        """What a script says on a machine of its own. Its containers get what all get here."""
        podman = " ".join([*self.engine.base, "--cgroup-manager=cgroupfs"])
        script = script.replace("--network none", " ".join(self.engine.common))
        with open(os.path.join(self.engine.folder, "said"), "w+") as said:  # no pipe: who keeps containers would keep it
            done = subprocess.run(["unshare", "--mount", "sh", "-c", script, "sh", podman, self.image, *words],
                                  env=self.engine.env, stdin=subprocess.DEVNULL, stdout=said, stderr=said, timeout=600)
            said.seek(0)
            text = said.read()
        self.assertEqual(done.returncode, 0, text)
        return text

    def test_from_nothing_to_a_container(self):
        """As the README prints it: the package, then a container, with nothing in between."""
        folder = os.path.join(self.engine.folder, "shared")
        for name in ("weir", "cdi", "programs"):
            os.makedirs(os.path.join(folder, name))
        shutil.copy(lib.places.program("e2e_nvml"), os.path.join(folder, "programs"))
        self.system = packages.booted_container(
            self.engine, self.image, self.mounts,
            ["--volume", f"{folder}/weir:/run/weir", "--volume", f"{folder}/cdi:/run/cdi"])
        self.addCleanup(self.system.discard)
        # The real one is NVIDIA's: what it asks NVML is what e2e_nvml asks.
        self.on(f"{GPU} && printf '#!/bin/sh\\nexec /programs/e2e_nvml alone\\n' > /usr/bin/nvidia-smi && "
                "chmod 755 /usr/bin/nvidia-smi")
        self.install(f"{OLD}/{DEB}")
        self.assertIn("PASS e2e_nvml", self.machine(ENGINE, folder, self.system.id))

    def test_the_host_as_a_container(self):
        context = os.path.join(self.engine.folder, "context")
        os.mkdir(context)
        shutil.copy(os.path.join(self.mounts[OLD], DEB), os.path.join(context, "weir-host_0.0.1_amd64.deb"))
        self.engine.must("build", "--quiet", "--network", "none", "--build-arg", f"BASE={self.image}", "--tag",
                         "localhost/weir-host", "--file", os.path.join(lib.places.source, "packaging/Containerfile"), context)
        self.addCleanup(self.engine.command, "rmi", "--force", "localhost/weir-host")
        self.addCleanup(lambda: os.rmdir("/var/lib/weir"))
        os.makedirs("/var/lib/weir", exist_ok=True)
        said = self.machine(MACHINE % "--driver softgpu", self.mounts[PROGRAMS])
        self.assertIn(f"PASS {PROGRAM}", said)
        self.assertRegex(said, "All is well|No problem, ")
        self.assertIn("a container has one device of Weir, and not both weir.dev/gpu=", said)
        self.assertRegex(said, "rc of two devices 12[67]")
        self.assertEqual(said.count(f"PASS {PROGRAM}"), 1)
        self.assertIn("the host's exit status: 0", said)
        said = self.machine(MACHINE % "", self.mounts[PROGRAMS])
        self.assertIn("no NVIDIA GPU to serve", said)
        self.assertIn("the host's exit status: 69", said)

    @unittest.skipUnless(kvm.FULL, "only with WEIR_E2E_FULL=1")
    def test_its_life_in_a_virtual_machine(self):
        self.limit(900)
        self.system = packages.booted_machine(self.folder(), self.tar, self.mounts)
        self.addCleanup(self.system.discard)
        self.live()


if __name__ == "__main__":
    lib.main()
