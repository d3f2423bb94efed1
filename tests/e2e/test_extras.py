#!/usr/bin/env python3
"""What a host serves beside the GPU, and cannot: that costs this, never the host, and comes when it can. A full disk is called so."""
import json
import os
import pathlib
import re
import signal
import socket
import stat
import subprocess
import urllib.error
import urllib.request

import lib

AGAIN_S = 5  # WEIR_EXTRAS_AGAIN_S
COMES_S = 6 * AGAIN_S


class Extras(lib.Case):
    def extras(self, host):
        return {e["name"]: (e["up"], e["why"]) for e in host.status().get("extra", [])}

    def goes_on(self, host, extra, why):
        """The host serves; a warning, status and doctor say what does not work, once each."""
        self.finished(host, "e2e_minimal")
        host.process.wait_log(rf"warn supervisor: {extra}: .*{why}")
        up, said = self.extras(host)[extra]
        self.assertEqual(up, 0)
        self.assertRegex(said, why)
        status = lib.run_weir("status", "--run-dir", host.run_dir).stdout
        self.assertRegex(status, rf"(?m)^{extra} does not work: .*{why}")
        doctor = lib.run_weir("doctor", "--run-dir", host.run_dir).stdout
        self.assertRegex(doctor, rf"(?m)^warning +{extra} does not work: .*{why}")

    def comes(self, host, extra, reload=True):
        """What was missing is there now: the host finds that out by itself, too, but a reload is sooner."""
        def works():
            if reload:
                host.process.signal(signal.SIGHUP)
            return self.extras(host)[extra] == (1, "")

        lib.until(works, COMES_S, f"{extra} works", 0.2)
        host.process.wait_log(rf"info supervisor: {extra}: works again")
        warnings = [line for line in host.process.errors if f"warn supervisor: {extra}: " in line]
        self.assertEqual(len(set(warnings)), len(warnings), "each reason is told once")

    def gauge(self, address, extra):
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith(f'weir_extra_up{{extra="{extra}"}} '):
                    return line.split()[-1]
        return None

    def test_a_port_of_metrics_in_use(self):
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            address = f"127.0.0.1:{other.getsockname()[1]}"
            host = self.host(args=["--metrics", address])
            self.goes_on(host, "metrics", "Address already in use")
        self.comes(host, "metrics", reload=False)
        self.assertEqual(self.gauge(address, "metrics"), "1")
        self.assertEqual(host.stop(), 0)

    def test_metrics_at_an_address_that_is_not_here(self):
        host = self.host(args=["--metrics", "192.0.2.1:9835"])
        self.goes_on(host, "metrics", "Cannot assign requested address")

    def test_metrics_in_a_folder_that_comes_later(self):
        folder = os.path.join(self.folder(), "later")
        host = self.host(args=["--metrics", f"unix:{folder}/metrics.sock"])
        self.goes_on(host, "metrics", "No such file or directory")
        os.mkdir(folder)
        self.comes(host, "metrics")
        self.assertTrue(stat.S_ISSOCK(os.stat(f"{folder}/metrics.sock").st_mode))
        self.assertEqual(host.stop(), 0)
        self.assertEqual(os.listdir(folder), [])

    def test_a_reload_takes_metrics_elsewhere(self):
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            host = self.host(host_lines=["", "[metrics]", f'listen = "127.0.0.1:{other.getsockname()[1]}"'])
            self.goes_on(host, "metrics", "Address already in use")
            for _ in range(2):
                address = f"127.0.0.1:{lib.free_port()}"
                host.host_lines[-1] = f'listen = "{address}"'
                host.write_config(host.tenants)
                host.process.signal(signal.SIGHUP)
                host.process.wait_log(f"metrics listen={address}")
                self.assertEqual(self.gauge(address, "metrics"), "1")
        host.host_lines[-1] = 'listen = ""'
        host.write_config(host.tenants)
        name, port = address.split(":")
        with socket.create_connection((name, int(port))) as silent:
            self.assertEqual(self.gauge(address, "metrics"), "1")  # the host has taken silent's connection, too
            host.process.signal(signal.SIGSTOP)  # so that it hears of the reload and of the connection's end at once
            silent.send(b"G")
        host.process.signal(signal.SIGHUP)
        host.process.signal(signal.SIGCONT)
        lib.until(lambda: "metrics" not in self.extras(host), 10, "metrics are not wanted any more")
        with self.assertRaises(urllib.error.URLError):
            self.gauge(address, "metrics")
        self.assertNotIn("change with a restart", host.process.err)
        self.assertEqual(host.stop(), 0)

    def test_nonsense_is_an_error(self):
        for words in (["--metrics", "9835"], ["--log", "loud"]):
            host = self.host(start=False, args=words)
            with self.assertRaisesRegex(lib.Stuck, r"the host ended \(2\)"):
                host.start()

    def test_a_reload_with_nonsense_changes_nothing(self):
        address = f"127.0.0.1:{lib.free_port()}"
        host = self.host(host_lines=["", "[metrics]", f'listen = "{address}"'])
        host.host_lines[-1] = 'listen = "9835"'
        host.write_config(host.tenants)
        host.process.signal(signal.SIGHUP)
        host.process.wait_log("not reloaded, the previous settings stay")
        self.assertEqual(self.gauge(address, "metrics"), "1")

    def test_a_port_for_remote_programs_in_use(self):
        remote = self.remote()
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(("127.0.0.1", int(remote.listen.split(":")[1])))
            other.listen()
            host = self.host(remote=remote)
            self.goes_on(host, "tcp", "Address already in use")
        self.comes(host, "tcp")
        self.finished(host, "e2e_minimal", arrangement=lib.TCP)
        host.wait_idle()
        self.assertEqual(host.stop(), 0)

    def test_a_key_that_comes_later(self):
        remote = self.remote()
        key = pathlib.Path(remote.server_secret)
        text = key.read_text()
        key.unlink()
        host = self.host(remote=remote)
        self.goes_on(host, "tcp", f"server_key '{key}': not found")
        key.write_text(text)
        key.chmod(0o600)
        self.comes(host, "tcp")
        self.finished(host, "e2e_minimal", arrangement=lib.TCP)

    def test_a_CDI_file_that_cannot_be_written(self):
        folder = self.folder()
        pathlib.Path(folder, "cdi").write_text("a file where a folder is wanted")
        host = self.host(args=["--cdi", f"{folder}/cdi/weir.json"])
        self.goes_on(host, "containers", r"no CDI file '\S+/cdi/weir.json'")
        os.unlink(f"{folder}/cdi")
        self.comes(host, "containers")
        self.assertIn('"name": "alice"', pathlib.Path(folder, "cdi/weir.json").read_text())

    def test_no_weir_libvirt(self):
        """It is a package of its own, which may be removed, and come again."""
        folder = self.folder()
        for name in ("bin", "lib/weir"):
            os.makedirs(os.path.join(folder, name))
        weir = os.path.join(folder, "bin/weir")
        os.link(lib.places.weir, weir) if os.stat(folder).st_dev == os.stat(lib.places.weir).st_dev else subprocess.run(
            ["cp", lib.places.weir, weir], check=True)
        guest, softgpu = os.path.join(folder, "lib/weir/guest"), os.path.join(folder, "lib/weir/libweir-softgpu.so")
        os.symlink(lib.places.guest_lib, guest)
        os.symlink(lib.places.softgpu, softgpu)
        host = self.host(host_lines=["", "[libvirt]", 'uri = "test:///default"'], start=False)
        host.prefix = ["sh", "-c", f'shift; exec {weir} "$@"', "sh"]
        host.start()
        self.goes_on(host, "libvirt", "this installation has no weir-libvirt")
        for name in ("lib", f"lib/{os.uname().machine}-linux-gnu"):
            os.makedirs(os.path.join(folder, name, "weir"), exist_ok=True)
            path = pathlib.Path(folder, name, "weir/weir-libvirt")
            path.write_text("#!/bin/sh\nexec sleep 600\n")
            path.chmod(0o755)
        self.comes(host, "libvirt")
        self.assertEqual(host.stop(), 0)

    def test_a_log_that_cannot_be_opened(self):
        folder = os.path.join(self.folder(), "later")
        host = self.host(log=f"info:{folder}/host.log")
        self.goes_on(host, "log", "cannot be opened for writing")
        os.mkdir(folder)
        host.process.signal(signal.SIGHUP)
        lib.until(lambda: self.extras(host)["log"] == (1, ""), COMES_S, "the log works", 0.2)
        self.assertIn("log: works again", pathlib.Path(folder, "host.log").read_text())
        self.assertEqual(host.stop(), 0)

    def test_no_shares_on_demand(self):
        run_dir = os.path.join(self.folder(), "run")
        os.mkdir(run_dir)
        pathlib.Path(run_dir, "shares").write_text("a file where a folder is wanted")
        host = self.host(run_dir=run_dir)
        self.goes_on(host, "shares", "'")
        os.unlink(os.path.join(run_dir, "shares"))
        self.comes(host, "shares")
        done = lib.run_weir("run", "--run-dir", run_dir, "--memory", "64M", "--", lib.places.program("e2e_minimal"))
        self.assertEqual(done.returncode, 0, done.stderr)


    def test_a_tenant_without_a_socket(self):
        run_dir = os.path.join(self.folder(), "run")
        os.mkdir(run_dir)
        pathlib.Path(run_dir, "bob.sock").write_text("no socket")
        host = self.host(run_dir=run_dir)
        self.finished(host, "e2e_minimal")
        self.assertIn("cannot listen tenant=bob", host.process.err)
        os.unlink(f"{run_dir}/bob.sock")
        host.process.signal(signal.SIGHUP)
        lib.until(lambda: os.path.exists(f"{run_dir}/bob.sock"), 10, "a reload tries again")
        self.finished(host, "e2e_minimal", tenant="bob")


    def test_each_is_explained(self):
        source = pathlib.Path(lib.places.source)
        page = (source / "docs/man/weir.toml.5.scd").read_text().split("# EXTRAS\n")[1].split("\n# ")[0]
        names = re.findall(r'^WEIR_EXTRA\(\w+, "(\w+)"\)', (source / "host_backend/supervisor/state/extras.def").read_text(), re.M)
        self.assertEqual(re.findall(r"(?m)^_(\w+)_$", page), names)


class FullDisk(lib.Case):
    """A file system without room, of this process and what it starts."""

    def full(self):
        folder = self.folder()
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", folder], capture_output=True, text=True)
        if done.returncode != 0:
            self.skipTest(f"no tmpfs: {done.stderr}")
        self.addCleanup(subprocess.run, ["umount", "--lazy", folder])
        with open(os.path.join(folder, "filler"), "wb", buffering=0) as f:
            try:
                while True:
                    f.write(b"x" * 4096)
            except OSError:
                pass
        return folder

    def test_traces(self):
        host = self.host()
        steady = self.steady(host)
        folder = self.full()
        done = lib.run_weir("trace", "start", "--run-dir", host.run_dir, os.path.join(folder, "trace"))
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("no space left on the device", done.stderr)
        done = lib.run_weir("trace", "generate", "--out", os.path.join(folder, "made"), "tenants=2")
        self.assertNotEqual(done.returncode, 0)
        os.unlink(os.path.join(folder, "filler"))
        done = lib.run_weir("trace", "start", "--run-dir", host.run_dir, os.path.join(folder, "trace"))
        self.assertEqual(done.returncode, 0, done.stderr)
        busy = self.busy(host, "bob")
        host.process.wait_log("a recording cannot be written any more .*no space left", 30)
        done = lib.run_weir("trace", "stop", "--run-dir", host.run_dir)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("no space left on the device", done.stderr)
        busy.kill()
        self.steady_undisturbed(steady)
        host.wait_idle()
        self.assertEqual(host.stop(), 0)

    def test_a_CDI_file(self):
        folder = self.full()
        host = self.host(args=["--cdi", f"{folder}/weir.json"])
        self.finished(host, "e2e_minimal")
        host.process.wait_log(f"warn supervisor: containers: no CDI file '{folder}/weir.json': no space left on the device")
        os.unlink(os.path.join(folder, "filler"))
        host.process.signal(signal.SIGHUP)
        lib.until(lambda: os.path.exists(f"{folder}/weir.json"), COMES_S, "there is a CDI file", 0.2)
        json.loads(pathlib.Path(folder, "weir.json").read_text())


if __name__ == "__main__":
    lib.main()
