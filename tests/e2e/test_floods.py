#!/usr/bin/env python3
"""Programs that come without end, and hosts with few descriptors: other tenants go on, and nobody ends a worker."""
import os
import re
import socket
import subprocess
import sys

import lib

# Connects and goes again, until it is killed.
COMES_AND_GOES = """
import contextlib, socket, sys
while True:
    with socket.socket(socket.AF_UNIX, getattr(socket, sys.argv[2])) as s, contextlib.suppress(ConnectionError):
        s.connect(sys.argv[1])
        if sys.argv[3]:
            s.send(sys.argv[3].encode())
            s.recv(4096)
"""


class Floods(lib.Case):
    def flood(self, path, kind="SOCK_SEQPACKET", says="", processes=2):
        for _ in range(processes):
            process = subprocess.Popen([sys.executable, "-c", COMES_AND_GOES, path, kind, says],
                                       stderr=subprocess.DEVNULL, preexec_fn=lib.die_with_parent)
            self.addCleanup(process.wait)
            self.addCleanup(process.kill)
            yield process

    def died(self, host):
        return [line for line in list(host.process.errors) if re.search("link lost|worker died|killed", line)]

    def check(self, isolation, says):
        host = self.host({name: {"isolation": isolation} for name in ("alice", "bob")})
        steady = self.steady(host)
        floods = list(self.flood(host.socket("alice"), says=says))
        begin = lib.lived_s()
        for _ in range(40):
            self.finished(host, "e2e_minimal", tenant="bob")
        took_s = lib.lived_s() - begin
        self.assertTrue(all(f.poll() is None for f in floods), "the flood goes on")
        for f in floods:
            f.kill()
        self.assertLess(took_s, 20, "forty programs of another tenant")
        self.finished(host, "e2e_minimal", tenant="alice")
        self.steady_undisturbed(steady)
        host.wait_idle()
        self.assertEqual(self.died(host), [])
        self.assertEqual([w["restarts"] for w in host.status()["worker"] if w["restarts"]], [])
        self.assertLess(len(host.process.errors), 2000, "lines of the log")

    def test_connections_that_end_at_once_in_a_shared_worker(self):
        self.check("group", "")

    def test_connections_that_end_at_once_before_they_have_a_worker(self):
        self.check("program", "")

    def test_nonsense_in_a_shared_worker(self):
        self.check("group", "nonsense")

    def test_nonsense_before_there_is_a_worker(self):
        self.check("program", "nonsense")


class FewDescriptors(lib.Case):
    isolation = "group"

    def test_connections_to_the_zmq_socket_do_not_end_the_worker(self):
        """libzmq would: it aborts when accept() finds no descriptor."""
        host = self.host(descriptors=100)
        entry = next((name for name in os.listdir(host.run_dir) if re.fullmatch(r"zmq-.*\.sock", name)), None)
        if entry is None:
            self.skipTest("built without ZeroMQ")
        worker = host.worker_pid()
        steady = self.steady(host)
        sockets = []
        for _ in range(200):
            sockets.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            sockets[-1].connect(os.path.join(host.run_dir, entry))
            sockets[-1].settimeout(10)
        self.assertEqual(sum(self.is_greeted(s) for s in sockets), 0, "they bring no token")
        self.finished(host, "e2e_minimal", arrangement=lib.ZMQ)
        self.finished(host, "e2e_minimal")
        self.steady_undisturbed(steady)
        host.wait_idle()
        self.assertEqual(host.worker_pid(), worker)

    @staticmethod
    def is_greeted(client):
        try:
            return len(client.recv(1)) == 1
        except ConnectionError:
            return False


if __name__ == "__main__":
    lib.main()
