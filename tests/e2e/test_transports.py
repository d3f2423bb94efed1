#!/usr/bin/env python3
"""Which transport a guest gets, keys over tcp, and versions that do not fit."""
import os
import signal
import time

import lib


class Transports(lib.Case):
    def via(self, host, **kwargs):
        """The transport of a session as the host sees it."""
        guest = self.guest(host, "e2e_quota", "hold", 1 << 20, **kwargs)
        guest.wait_line("^held$")
        session = host.status()["session"][0]
        guest.close_stdin()
        self.assertEqual(guest.wait(), 0, guest.tail())
        host.wait_idle()
        return session["transport"]

    def test_chosen_by_the_handshake(self):
        host = self.host()
        path = lib.places.program("e2e_quota")
        env = dict(lib.clean_environment(), LD_LIBRARY_PATH=lib.places.guest_lib,
                   WEIR_HOST=f"ipc://{host.socket('alice')}")
        for more, transport in (({}, "shm"), ({"WEIR_TRANSPORT": "shm"}, "shm"),
                                ({"WEIR_TRANSPORT": "zmq"}, "zmq")):
            guest = lib.Process([path, "hold", str(1 << 20)], env={**env, **more})
            self.addCleanup(guest.kill)
            guest.wait_line("^held$")
            session = host.status()["session"][0]
            self.assertEqual(session["transport"], transport)
            self.assertEqual(session["tenant"], "alice")
            self.assertEqual(session["pid"], guest.pid)
            self.assertEqual(session["program"], "e2e_quota")
            guest.close_stdin()
            self.assertEqual(guest.wait(), 0)
        host.wait_idle()
        bad = lib.Process([path, "hold", "1"], env={**env, "WEIR_TRANSPORT": "pigeon",
                                                    "WEIR_LOG": "error"})
        self.addCleanup(bad.kill)
        self.assertEqual(bad.wait(), 1)
        self.assertIn(f"gave {lib.CUDA_ERROR_NO_DEVICE}", bad.out)

    def tcp_guest(self, host, **env):
        guest = self.guest(host, "e2e_minimal", arrangement=lib.TCP,
                           env={"WEIR_LOG": "error", **env})
        start = time.monotonic()
        code = guest.wait(20)
        return code, guest, time.monotonic() - start

    def refused(self, host, remote, tenant="alice", server_key=None, key=None):
        """A guest with these keys is refused clearly, and within the handshake's limit."""
        env = dict(lib.clean_environment(), LD_LIBRARY_PATH=lib.places.guest_lib, WEIR_HOST=remote.url,
                   WEIR_LOG="error")
        if key:
            env["WEIR_KEY"] = key
        if server_key:
            env["WEIR_SERVER_KEY"] = server_key
        argv = [lib.places.program("e2e_minimal")]
        start = lib.lived_s()
        guest = lib.Process(argv, env=env)
        self.addCleanup(guest.kill)
        self.assertEqual(guest.wait(15), 1, guest.tail())
        self.assertLess(lib.lived_s() - start, 8)
        self.assertIn(f"gave {lib.CUDA_ERROR_NO_DEVICE}", guest.out)
        self.assertTrue(guest.err, "the log says why")
        return guest.err

    def test_tcp_keys(self):
        remote = self.remote()
        host = self.host(remote=remote)
        self.assertEqual(self.via(host, arrangement=lib.TCP), "zmq")
        lib.keygen(os.path.join(remote.folder, "stranger"))
        stranger = os.path.join(remote.folder, "stranger")
        self.refused(host, remote, key=stranger + ".secret", server_key=remote.server_public)
        self.refused(host, remote, key=remote.secret_path("alice"), server_key=stranger + ".public")
        self.refused(host, remote, key=remote.secret_path("alice"))
        self.refused(host, remote, server_key=remote.server_public)
        self.refused(host, remote)
        self.refused(host, remote, key="/nonexistent", server_key=remote.server_public)
        self.finished(host, "e2e_minimal", arrangement=lib.TCP, tenant="bob")
        host.wait_idle()

    def test_tcp_without_a_host(self):
        remote = self.remote()
        host = self.host(start=False)
        self.refused(host, remote, key=remote.secret_path("alice"), server_key=remote.server_public)

    def test_tcp_addresses(self):
        remote = self.remote()
        self.host(remote=remote)
        for listen in ("gpuhost:7070", "127.0.0.1", "127.0.0.1:70700"):
            other = self.host(remote=remote, start=False, args=["--listen", listen])
            with self.assertRaisesRegex(lib.Stuck, "ADDRESS:PORT is wanted"):
                other.start()
        for listen in ("*:0", "tcp://127.0.0.1:0", ":0", *(["[::1]:0"] if os.path.exists("/proc/net/if_inet6") else [])):
            other = self.host(remote=remote, args=["--listen", listen])
            lib.until(lambda o=other: "listening endpoint=tcp://" in o.process.err, 5, f"it listens on {listen}")
            self.assertEqual(other.stop(), 0)

    def test_tcp_between_namespaces(self):
        remote = self.remote(namespaces=True)
        host = self.host(remote=remote)
        self.assertEqual(self.via(host, arrangement=lib.TCP), "zmq")
        steady = self.steady(host, arrangement=lib.TCP)
        self.finished(host, "e2e_minimal", arrangement=lib.TCP)
        self.steady_undisturbed(steady)

    def test_a_stopped_guest_is_not_lost(self):
        host = self.host(remote=self.remote())
        steady = self.steady(host, arrangement=lib.TCP)
        steady.signal(signal.SIGSTOP)
        time.sleep(7)  # ZeroMQ's heartbeat gave it up after 5 s
        steady.signal(signal.SIGCONT)
        self.steady_undisturbed(steady)

    def test_a_cut_network_ends_both_sides(self):
        remote = self.remote(namespaces=True)
        host = self.host(remote=remote)
        steady = self.steady(host, arrangement=lib.TCP)
        remote.namespaces.cut()
        self.assertNotEqual(steady.wait(40), 0)
        self.assertRegex(steady.out, r"gave 46")
        host.wait_idle(40)

    def test_versions(self):
        host = self.host()
        for scenario in ("no_operations", "wrong_protocol"):
            guest = self.finished(host, "e2e_hostile", f"ipc://{host.socket('alice')}", scenario,
                                  arrangement=lib.NATIVE)
            self.assertRegex(guest.out, r"refused: protocol versions differ: .*(is too old|same version)")
        for scenario in ("no_operations", "other_release") if lib.places.build else ():
            for transport in ("shm", "zmq"):
                self.finished(host, "e2e_hostile", f"ipc://{host.socket('alice')}", scenario, transport,
                              arrangement=lib.NATIVE)
        self.assertIn("refuses 2 operations", host.process.err)


if __name__ == "__main__":
    lib.main()
