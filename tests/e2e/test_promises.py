#!/usr/bin/env python3
"""Two promises of the README that no way of giving a container the GPU itself can make.

No guest holds a file of the GPU's driver, so nothing that is done to a container's device files takes its GPU away: not even
`systemctl daemon-reload`, which resets the device rules of containers to what systemd knows of them.
"""
import json
import os
import re
import shutil
import unittest

import containers
import lib

SYSTEM = "systemd-sysv,runc"
START_LIMIT_S = 60
NVIDIA_MAJOR = 195  # /dev/nvidia0, .., /dev/nvidiactl
NODE = "nvidiactl-of-the-test"
# All that a guest may have mapped: itself, the C library's files, Weir's two libraries, and memory that the host has made.
MAY_MAP = (r"/(usr/)?lib\S*/(ld-linux-x86-64|libc|libm|libdl|libpthread|librt)[-.]\S*", r"/memfd:\S+ \(deleted\)", r"\[[\w:]+\]")
MAY_OPEN = (r"pipe:\[\d+\]", r"socket:\[\d+\]", r"/dev/null", r"/memfd:\S+ \(deleted\)", r"anon_inode:\[eventfd\]")


def mapped(pid):
    """The names of all that a process has mapped."""
    with lib.looking_into(pid), open(f"/proc/{pid}/maps") as f:
        return {line.split(maxsplit=5)[5].strip() for line in f if len(line.split(maxsplit=5)) > 5}


def opened(pid):
    return set(lib.fds_of(pid).values())


def others(names, allowed):
    return sorted(name for name in names if not any(re.fullmatch(pattern, name) for pattern in allowed))


def own_hierarchies():
    """Options for a container whose systemd may make cgroups: on cgroup v1 this machine's hierarchies, one by one.

    systemd would also mount those that the machine does without, and runc would leave cgroups in them that keep them: something else lies in
    their places. On v2 a container has a part of its own.
    """
    if os.path.exists("/sys/fs/cgroup/cgroup.controllers"):
        return []
    options = ["--cgroupns=host"]
    for name in sorted(os.listdir("/sys/fs/cgroup")):
        place = f"/sys/fs/cgroup/{name}"
        if os.path.ismount(place) and not os.path.islink(place):
            options += ["--volume", f"{place}:{place}:rw"]
    with open("/proc/cgroups") as f:
        unused = {line.split()[0] for line in f if line.split()[1] == "0"}
    for name in sorted({"net_cls,net_prio" if name in ("net_cls", "net_prio") else name for name in unused}):
        options += ["--tmpfs", f"/sys/fs/cgroup/{name}"]
    return options


def comm(pid):
    with open(f"/proc/{pid}/comm") as f:
        return f.read().strip()


class Files(lib.Case):
    def check_guest(self, pid, program):
        """A guest's files are those of MAY_MAP and MAY_OPEN, its own and Weir's."""
        ours = [re.escape(os.path.realpath(os.path.join(lib.places.guest_lib, name))) for name in ("libcuda.so.1", "libnvidia-ml.so.1")]
        self.assertEqual(others(mapped(pid), [*MAY_MAP, *ours, re.escape(program)]), [])
        self.assertEqual(others(opened(pid), MAY_OPEN), [])
        self.assertIn(os.path.realpath(os.path.join(lib.places.guest_lib, "libcuda.so.1")), mapped(pid), "it is a guest")

    def test_no_guest_holds_a_file_of_the_driver(self):
        program = os.path.realpath(lib.places.program("e2e_steady"))
        for isolation in ("group", "program"):
            host = self.host({"alice": {"isolation": isolation}})
            guest = self.guest(host, "e2e_steady")
            guest.wait_line(r"^round [1-9]")
            self.check_guest(guest.pid, program)
            # The driver is where the same look finds it: in the worker that serves this guest.
            processes = {host.pid, *lib.children_of(host.pid)}
            rows = [w for w in host.status()["worker"] if w["pid"]]
            workers = [w["pid"] for w in rows if w["driver"]]  # others open it just now
            driver = os.path.basename(os.path.realpath(lib.places.softgpu)) if lib.DRIVER == "softgpu" else "libcuda.so"
            for pid in workers:
                self.assertTrue([name for name in mapped(pid) if driver in os.path.basename(name)], "a worker has the driver")
                if lib.DRIVER != "softgpu":
                    self.assertTrue([name for name in opened(pid) if name.startswith("/dev/nvidia")])
            for pid in processes - {w["pid"] for w in rows}:  # supervisor, gate
                if comm(pid).startswith("nvidia-cuda-mps"):
                    continue
                # The supervisor keeps the descriptors of memory that can outlive its worker; NVIDIA's driver gives this name to each.
                kept = {"/dev/nvidiactl"} if pid == host.pid else set()
                self.assertEqual([name for name in mapped(pid) | (opened(pid) - kept) if driver in name or "/dev/nvidia" in name], [])
            guest.close_stdin()
            self.assertEqual(guest.wait(), 0, guest.tail())


class Reload(lib.Case):
    """A container of runc's that systemd keeps, as Docker and podman have them where systemd runs."""

    def setUp(self):
        super().setUp()
        self.limit(3 * lib.CASE_LIMIT_S)

    def boot(self, volumes):
        """A system with systemd as the first process, which may make cgroups and rule over devices in them."""
        engine = containers.Podman()
        self.addCleanup(engine.close)
        components = ["--variant=essential", *containers.own_components()]
        image = engine.image(containers.debian_image(containers.own_release(), SYSTEM, components))
        options = ["--systemd=always", "--cap-add", "all", "--security-opt", "seccomp=unconfined",
                   "--device-cgroup-rule", f"c {NVIDIA_MAJOR}:* rwm", *own_hierarchies()]
        for place, way in volumes.items():
            options += ["--volume", f"{place}:{place}:{way}"]
        try:
            system = engine.start(image, "/sbin/init", options=options)
        except lib.Stuck as error:
            raise unittest.SkipTest(f"no container may have cgroups here: {error}") from None
        self.addCleanup(engine.remove, system)
        with open("/proc/self/cgroup") as f:
            before = f.read()
        self.base = [*engine.base, "exec", "--interactive", system]
        self.engine, self.system, said = engine, system, [""]

        def up():
            said[0] = engine.command("exec", system, "systemctl", "is-system-running").stdout.strip()
            return said[0] in ("running", "degraded")

        try:
            lib.until(up, START_LIMIT_S, "systemd is up", 0.1)
        except lib.Stuck:
            raise unittest.SkipTest(f"systemd does not run in a container here: {said[0]}") from None
        with open("/proc/self/cgroup") as f:
            self.assertEqual(f.read(), before, "systemd has mounted no hierarchy that this machine did without")
        self.on("mount --make-rprivate /")

    def on(self, line):
        done = self.engine.command("exec", self.system, "sh", "-c", line)
        self.assertEqual(done.returncode, 0, f"{line}\n{done.stdout}{done.stderr}")
        return done.stdout.strip()

    def bundle(self, folder, name, args, edits):
        """A container for runc whose root is the system's, with what a CDI file says."""
        path = os.path.join(folder, name)
        os.makedirs(os.path.join(path, "rootfs"))
        self.on(f"cd {path} && runc spec && mount --rbind / rootfs")
        with open(os.path.join(path, "config.json")) as f:
            config = json.load(f)
        process = config["process"]
        process.update(terminal=False, args=args)
        config["root"]["readonly"] = False  # places for mounts are made in it
        for edit in edits:
            self.assertLessEqual(set(edit), {"env", "mounts", "hooks"}, "no device node")
            process["env"] += edit.get("env", [])
            config["mounts"] += [{"source": m["hostPath"], "destination": m["containerPath"], "options": m["options"]}
                                 for m in edit.get("mounts", [])]
        config["hostname"] = name
        config["mounts"] = [m for m in config["mounts"] if m.get("type") != "cgroup"]  # nobody looks there
        with open(os.path.join(path, "config.json"), "w") as f:
            json.dump(config, f)
        return path

    def contained(self, folder, name, args, edits=()):
        """The container, running; systemd has a scope for it, with rules for devices that runc has asked for."""
        path = self.bundle(folder, name, args, edits)
        process = lib.Process([*self.base, "runc", "--systemd-cgroup", "run", "--bundle", path, name], env=dict(os.environ),
                              name=f"runc {name}")
        self.addCleanup(process.kill)
        return process

    def scope(self, name):
        """The folder of a container's cgroup for devices, or its only one."""
        pid = self.on(f"runc state {name} | sed -n 's/.*\"pid\": \\([0-9]*\\),/\\1/p'")
        lines = dict(line.split(":", 2)[1:] for line in self.on(f"cat /proc/{pid}/cgroup").splitlines())
        self.assertIn(f"runc-{name}.scope", lines.get("devices", lines.get("", "")), "systemd has made it")
        return "/sys/fs/cgroup" + (f"/devices{lines['devices']}" if "devices" in lines else lines[""])

    def test_a_container_keeps_its_gpu_over_daemon_reload(self):
        folder = self.folder()
        os.chmod(folder, 0o755)
        programs = os.path.dirname(lib.places.program("e2e_steady"))
        shutil.copy(lib.places.program("e2e_steady"), folder)
        host = self.host(("alice",), host_lines=[f'cdi = "{folder}/cdi.json"'])
        self.boot({folder: "rw", os.path.realpath(lib.places.guest_lib): "ro", host.run_dir: "ro", programs: "ro"})
        with open(f"{folder}/cdi.json") as f:
            cdi = json.load(f)
        edits = [cdi["containerEdits"], *(device["containerEdits"] for device in cdi["devices"] if device["name"] == "alice")]

        # The fault, with NVIDIA's device number: a rule is added for a container as NVIDIA's hook adds it, behind systemd's back.
        self.on(f"mknod -m 666 /{NODE} c {NVIDIA_MAJOR} 255")
        look = f"while :; do (: < /{NODE}) 2>&1 | grep -q 'not permitted' && echo denied || echo allowed; sleep 0.1; done"
        native = self.contained(folder, "native", ["sh", "-c", look])
        try:
            native.wait_line(r"^denied$")
        except lib.Stuck:
            if native.alive():
                raise
            raise unittest.SkipTest(f"runc and systemd make no container here: {native.errors[-1]}") from None
        rules = self.scope("native")
        has_rules = self.on(f"ls {rules}").split().count("devices.allow")
        if has_rules:  # cgroup v2 has a program of the kernel in their place, which only its maker replaces
            self.on(f"echo 'c {NVIDIA_MAJOR}:* rw' > {rules}/devices.allow")
            native.wait_line(r"^allowed$")

        guest = self.contained(folder, "guest", [f"{folder}/e2e_steady"], edits)
        guest.wait_line(r"^round 0$")
        listed = host.status()["session"]
        self.assertEqual([(s["tenant"], s["program"]) for s in listed], [("alice", "e2e_steady")])
        for command in ("daemon-reload", "daemon-reload", "daemon-reexec"):
            self.on(f"systemctl {command}")
            rounds = len(guest.lines)
            lib.until(lambda: len(guest.lines) > rounds + 5, 20, f"the guest works after {command}")
        if has_rules:
            denied = len(native.lines)
            lib.until(lambda: native.lines[denied:].count("denied"), 20, "the reload has reset the rules of containers")
            self.assertNotIn(str(NVIDIA_MAJOR), self.on(f"cat {rules}/devices.list"))
        self.assertEqual(host.status()["session"][0]["id"], listed[0]["id"], "it is the same session")

        # And no file of a driver in it, as seen from outside.
        pid = int(self.on("runc state guest | sed -n 's/.*\"pid\": \\([0-9]*\\),/\\1/p'"))
        self.assertEqual(self.on(f"ls -l /proc/{pid}/fd | grep -c nvidia || true"), "0")
        self.assertEqual(self.on(f"grep -E 'nvidia|softgpu' /proc/{pid}/maps || true"), "")
        self.assertRegex(self.on(f"cat /proc/{pid}/maps"), r"libcuda.so")
        guest.close_stdin()
        self.assertEqual(guest.wait(), 0, guest.tail())


if __name__ == "__main__":
    lib.main()
