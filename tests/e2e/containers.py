"""Container engines and images for test_containers.py.

Images are made by mmdebstrap from the machine's own Debian or Ubuntu release, and kept in the build
tree with the engines' storage, so that only the first run pays for them. WEIR_E2E_IMAGES names
another folder. What is missing (root, an engine, mmdebstrap, the network) skips the cases.
"""
import hashlib
import os
import re
import resource
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

import lib

IMAGE_LIMIT_S = 400
# A shell and its tools; an ssh server and client and a program that makes containers, for the ways
# around limits. Since Debian 13 /bin and the others are links of base-files.
PACKAGES = "base-files,dash,coreutils,sed,grep,libc-bin,dropbear-bin,bubblewrap"
HOOKS = "/usr/share/mmdebstrap/hooks/merged-usr"
USERS = ('mkdir -p "$1/root"; echo root:x:0:0:root:/root:/bin/sh > "$1/etc/passwd"; '
         'echo /bin/sh > "$1/etc/shells"')
LEAN = "--dpkgopt=path-exclude=/usr/share/{doc,man,locale}/*"


def need(condition, why):
    if not condition:
        raise unittest.SkipTest(why)


def need_program(name):
    path = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    need(path, f"no {name} here")
    return path


def own_system():
    """(id, codename) of this machine's Debian or Ubuntu."""
    fields = {}
    with open("/etc/os-release") as f:
        for line in f:
            key, _, value = line.strip().partition("=")
            fields[key] = value.strip('"')
    need(fields.get("ID") in ("debian", "ubuntu"), "images are made on Debian and Ubuntu only")
    return fields["ID"], fields["VERSION_CODENAME"]


def own_release():
    """The codename of this machine's release: the programs were built for its libc."""
    return own_system()[1]


def own_components():
    """mmdebstrap's options for where the libraries of this release are: those of Ubuntu are in universe, too."""
    return ["--components=main,universe"] if own_system()[0] == "ubuntu" else []


def cache_folder():
    need(lib.places.build, "containers are tested from a build tree")
    folder = os.environ.get("WEIR_E2E_IMAGES", os.path.join(lib.places.build, "containers"))
    os.makedirs(folder, exist_ok=True)
    return folder


def cached(name, recipe, make):
    """The path of a file that make(path) makes, once for each text of the recipe."""
    tag = hashlib.sha256(recipe.encode()).hexdigest()[:12]
    path = os.path.join(cache_folder(), f"{name}-{tag}.tar")
    if not os.path.exists(path):
        part = path + ".part"
        make(part)
        os.rename(part, path)
    return path


def small_image():
    """A root filesystem of this machine's release as a tar file: unpacked, not configured."""
    return debian_image(own_release(), PACKAGES, ["--variant=extract", f"--hook-dir={HOOKS}",
                                                  f"--extract-hook={USERS}"])


def debian_image(release, packages, options=("--variant=essential",)):
    """A root filesystem of a release as a tar file."""
    command = [need_program("mmdebstrap"), "--mode=root", *options, f"--include={packages}", LEAN,
               "--format=tar", release]

    def make(path):
        begun = time.monotonic()
        made = subprocess.run([*command, path], capture_output=True, text=True,
                              timeout=IMAGE_LIMIT_S)
        if made.returncode != 0:
            lines = [line for line in made.stderr.splitlines() if line.startswith("E:")]
            raise unittest.SkipTest(f"mmdebstrap {release}: {(lines or ['failed'])[0]}")
        print(f"made an image of {release} in {time.monotonic() - begun:.0f} s", flush=True)

    return cached(release, " ".join(command[1:]), make)


class Engine:
    """What podman and docker have in common: images by name, containers that end with the test."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="weir-e2e-")
        os.chmod(self.folder, 0o711)  # podman 5 mounts there what users of a mapping pass through
        self.env = dict(lib.clean_environment(), TMPDIR=self.folder)

    def command(self, *args, limit_s=300):
        return subprocess.run([*self.base, *args], env=self.env, capture_output=True, text=True,
                              timeout=limit_s)

    def must(self, *args, limit_s=300):
        done = self.command(*args, limit_s=limit_s)
        if done.returncode != 0:
            raise lib.Stuck(f"{' '.join(args)}: {done.stderr.strip()}")
        return done.stdout.strip()

    def image(self, tar):
        """The name of an image of a tar file, imported once."""
        name = "localhost/weir-e2e:" + os.path.basename(tar).removesuffix(".tar")
        if self.command("image", "inspect", name).returncode != 0:
            self.must("import", tar, name)
        return name

    def run(self, image, *program, options=(), tenant=None, limit_s=300):
        """One container, to its end."""
        return self.command("run", "--rm", *self.common, *self.tenant_options(tenant), *options,
                            image, *program, limit_s=limit_s)

    def start(self, image, *program, options=(), tenant=None):
        """A container in the background; gives its id."""
        return self.must("run", "--rm", "--detach", *self.common,
                         *self.tenant_options(tenant), *options, image, *program)

    def remove(self, container):
        self.command("kill", container)  # at once, where rm asks and waits first
        self.command("rm", "--force", container)


class Podman(Engine):
    """podman with a storage of its own; it knows CDI."""

    def __init__(self):
        self.base = [need_program("podman")]
        need(os.geteuid() == 0, "podman's containers need root here")
        super().__init__()
        root = os.path.join(cache_folder(), "podman")
        # One for each root, and short: podman remembers them, and sockets lie in them.
        self.place = "/tmp/weir-e2e-podman-" + hashlib.sha256(root.encode()).hexdigest()[:8]
        self.base += ["--root", root, "--runroot", f"{self.place}/run",
                      "--tmpdir", f"{self.place}/tmp"]
        runc = shutil.which("runc", path="/usr/sbin:/usr/bin:/sbin:/bin")
        self.base += ["--runtime", runc] if runc else []
        # Its defaults are more than a machine without CAP_SYS_RESOURCE may set.
        self.common = ["--network", "none"]
        for name, number in (("nofile", resource.RLIMIT_NOFILE), ("nproc", resource.RLIMIT_NPROC)):
            hard = resource.getrlimit(number)[1]
            limit = min(hard, 20000) if hard != resource.RLIM_INFINITY else 20000
            self.common += ["--ulimit", f"{name}={limit}:{limit}"]
        self.host = None
        works = self.command("info")
        if works.returncode != 0:
            shutil.rmtree(self.folder, True)
            raise unittest.SkipTest(f"podman does not work here: {works.stderr.strip()[-200:]}")

    def tenant_options(self, tenant):
        return ["--device", f"weir.dev/gpu={tenant}"] if tenant else []

    def close(self):
        self.command("rm", "--all", "--force")
        shutil.rmtree(self.place, True)
        shutil.rmtree(self.folder, True)


class RootlessPodman(Podman):
    """podman of an ordinary user, who is made for it and gone with it."""

    uid = 47110
    name = "weir-e2e-user"

    def __init__(self):
        for program in ("newuidmap", "setpriv", "useradd", "userdel"):
            need_program(program)
        need(os.geteuid() == 0, "making a user needs root")
        super().__init__()
        made = subprocess.run(["useradd", "--uid", str(self.uid), "--create-home", self.name],
                              capture_output=True, text=True)
        need(made.returncode == 0, f"no user can be made: {made.stderr.strip()}")
        home = os.path.expanduser(f"~{self.name}")
        runtime = os.path.join(self.folder, "runtime")
        os.mkdir(runtime, 0o700)
        os.chown(runtime, self.uid, self.uid)
        os.chown(self.folder, self.uid, self.uid)
        self.env |= {"HOME": home, "XDG_RUNTIME_DIR": runtime}
        runtime_options = [w for w in self.base if w.endswith("runc")]
        self.base = ["setpriv", f"--reuid={self.uid}", f"--regid={self.uid}", "--clear-groups", "sh", "-c",
                     'cd && exec "$@"', "sh", need_program("podman"), "--cgroup-manager", "cgroupfs", "--storage-driver",
                     "vfs"]  # where there is no fuse-overlayfs
        self.base += ["--runtime", runtime_options[0]] if runtime_options else []
        works = self.command("info")
        if works.returncode != 0:
            self.close()
            raise unittest.SkipTest(f"podman does not work for users here: {works.stderr.strip()[-200:]}")

    def image(self, tar):
        """A file that the user can read, imported."""
        copy = os.path.join(self.folder, "image.tar")
        shutil.copyfile(tar, copy)
        return super().image(copy)

    def close(self):
        subprocess.run([*self.base, "unshare", "rm", "-rf", f"{self.env['HOME']}/.local"], env=self.env,
                       capture_output=True, timeout=180)
        subprocess.run(["userdel", "--remove", "--force", self.name], capture_output=True, timeout=180)
        shutil.rmtree(self.place, True)
        shutil.rmtree(self.folder, True)


class Docker(Engine):
    """A dockerd of its own, with `weir docker-args`: before version 25 it does not know CDI."""

    storage = "docker"

    def dockerd(self):
        """The command that starts a dockerd, to which options are added."""
        need_program("containerd")
        return [need_program("dockerd")]

    def __init__(self):
        self.base = [need_program("docker")]
        need(os.geteuid() == 0, "dockerd needs root")
        super().__init__()
        try:
            dockerd = self.dockerd()
        except unittest.SkipTest:
            shutil.rmtree(self.folder, True)
            raise
        self.common = ["--network", "none"]
        self.host = None
        socket = os.path.join(self.folder, "docker.sock")
        self.env["DOCKER_HOST"] = f"unix://{socket}"
        self.daemon = lib.Process(
            [*dockerd, "--data-root", os.path.join(cache_folder(), self.storage), "--exec-root",
             os.path.join(self.folder, "exec"), "--pidfile", os.path.join(self.folder, "pid"),
             "--host", self.env["DOCKER_HOST"], "--bridge", "none", "--iptables=false"],
            env=self.env, name="dockerd", new_group=True)
        try:
            lib.until(lambda: not self.daemon.alive() or self.command("info").returncode == 0, 30,
                      "dockerd answers", pause_s=0.2)
            alive = self.daemon.alive()
        except lib.Stuck:
            alive = False
        if not alive:
            why = "".join(self.daemon.errors[-1:])
            self.close()
            raise unittest.SkipTest(f"dockerd does not work here: {why[-200:]}")

    def tenant_options(self, tenant):
        if not tenant:
            return []
        made = self.host.weir("docker-args", "--run-dir", self.host.run_dir, tenant)
        if made.returncode != 0:
            raise lib.Stuck(made.stderr)
        return made.stdout.split()  # as a shell would, for $(weir docker-args A)

    def close(self):
        self.daemon.signal(signal.SIGTERM)
        try:
            self.daemon.wait(15)
        except lib.Stuck:
            pass
        shutil.rmtree(self.folder, True)


class DockerWithCdi(Docker):
    """A dockerd that knows CDI: this machine's, or that of Debian 13 in a root tree of its own."""

    storage = "docker-cdi"
    packages = "docker.io,containerd,runc,iptables,ca-certificates,libjansson4"  # the last is of weir-oci-hook

    def dockerd(self):
        with open(os.path.join(self.folder, "daemon.json"), "w") as f:
            f.write('{"features": {"cdi": true}}\n')
        options = ["--config-file", f.name]
        own = shutil.which("dockerd", path="/usr/sbin:/usr/bin:/usr/local/bin")
        if own:
            text = subprocess.run([own, "--version"], capture_output=True, text=True).stdout
            if int(re.search(r"version (\d+)", text)[1]) >= 25:
                return [own, *options]
        tree = os.path.join(cache_folder(), "docker-tree")
        if not os.path.exists(f"{tree}/usr/lib/x86_64-linux-gnu/libjansson.so.4"):
            shutil.rmtree(tree, True)
            tar = debian_image("trixie", self.packages)
            os.makedirs(tree + ".part", exist_ok=True)
            subprocess.run(["tar", "-C", tree + ".part", "-xf", tar], check=True)
            os.rename(tree + ".part", tree)
        # The daemon sees its own programs and libraries, and this machine's files where it matters.
        # runc wants a root that is a mount: hence pivot_root.
        script = f"""set -e
mount --make-rprivate /
mount --bind {tree} {tree}
cd {tree}
mkdir -p before
for d in /proc /sys /dev /tmp /run/cdi {cache_folder()} {lib.places.build} {lib.places.guest_lib}; do
    mkdir -p .$d && mount --rbind $d .$d
done
pivot_root . before
exec chroot . dockerd "$@"
"""
        os.makedirs("/run/cdi", exist_ok=True)
        return [need_program("unshare"), "--mount", "sh", "-c", script, "sh", *options]

    def tenant_options(self, tenant):
        return ["--device", f"weir.dev/gpu={tenant}"] if tenant else []


def download(packages, folder, architecture=None):
    """Unpack Debian packages of this machine's release into a folder, with lists of their own."""
    state = tempfile.mkdtemp(prefix="weir-e2e-apt-")
    options = ["-qq", "-o", f"Dir::State::Lists={state}/lists", "-o", f"Dir::Cache={state}/cache",
               "-o", "Dir::State::status=/dev/null", "-o", "APT::Sandbox::User=root"]
    if architecture:
        options += ["-o", f"APT::Architecture={architecture}",
                    "-o", f"APT::Architectures::={architecture}"]
    try:
        for part in ("lists/partial", "cache/archives/partial"):
            os.makedirs(os.path.join(state, part))
        subprocess.run(["apt-get", *options, "update"], capture_output=True, timeout=600)
        got = subprocess.run(["apt-get", *options, "download", *packages], cwd=state,
                             capture_output=True, text=True, timeout=600)
        need(got.returncode == 0, f"cannot download {' '.join(packages)}: {got.stderr.strip()}")
        for name in sorted(os.listdir(state)):
            if name.endswith(".deb"):
                subprocess.run(["dpkg-deb", "-x", name, folder], cwd=state, check=True)
    finally:
        shutil.rmtree(state)


def unpacked(name, packages):
    """A folder with these packages, unpacked once and not installed."""
    folder = os.path.join(cache_folder(), f"{name}-{own_release()}")
    if not os.path.exists(folder):
        part = tempfile.mkdtemp(prefix=f"{name}-", dir=cache_folder())
        try:
            download(packages, part)
            os.rename(part, folder)
        except BaseException:
            shutil.rmtree(part)
            raise
    return folder


def lib64_image():
    """A root filesystem whose loader looks into /lib64 and /usr/lib64, as RHEL's does.

    Debian has such a loader: that of amd64 programs on i386.
    """
    need(own_release() and shutil.which("dpkg-deb"), "no dpkg-deb here")

    def make(path):
        with tempfile.TemporaryDirectory(prefix="weir-e2e-lib64-") as root:
            for folder in ("usr/bin", "usr/lib", "usr/lib64", "tmp", "proc", "sys", "dev", "etc"):
                os.makedirs(os.path.join(root, folder))
            for link in ("bin", "lib", "lib64"):
                os.symlink(f"usr/{link}", os.path.join(root, link))
            download(["libc6-amd64"], os.path.join(root, "unpacked"), "i386")
            download(["busybox-static"], os.path.join(root, "unpacked"))
            for unpacked in (os.path.join(root, "unpacked"), os.path.join(root, "unpacked/usr")):
                if os.path.exists(f"{unpacked}/lib64"):  # since Debian 13 all is in /usr
                    shutil.copytree(f"{unpacked}/lib64", os.path.join(root, "usr/lib64"),
                                    symlinks=True, dirs_exist_ok=True)
                if os.path.exists(f"{unpacked}/bin/busybox"):
                    shutil.copy(f"{unpacked}/bin/busybox", os.path.join(root, "usr/bin/sh"))
            shutil.rmtree(os.path.join(root, "unpacked"))
            subprocess.run(["tar", "-C", root, "-cf", path, "."], check=True)

    return cached("lib64", own_release() + " libc6-amd64 busybox-static 1", make)
