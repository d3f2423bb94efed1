#!/usr/bin/env python3
"""The metrics endpoint: what it serves, and clients that mean it no good."""
import os
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request

import lib


class Metrics(lib.Case):
    def metrics_host(self, tenants=("alice", "bob"), **kwargs):
        host = self.host(tenants, args=["--metrics", "127.0.0.1:0"], **kwargs)
        return host, self.address(host)

    def address(self, host):
        def look():
            for line in host.process.errors:
                match = re.search(r"metrics listen=(\S+)", line)
                if match:
                    return match[1]
            return None

        return lib.until(look, 5, "the host says where")

    def connect(self, address):
        where, port = address.rsplit(":", 1)
        s = socket.create_connection((where, int(port)), timeout=180)
        self.addCleanup(s.close)
        return s

    def fetch(self, address, path="/metrics"):
        with urllib.request.urlopen(f"http://{address}{path}", timeout=180) as answer:
            return answer.headers, answer.read().decode()

    def values(self, text):
        samples = {}
        for line in text.splitlines():
            if not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                self.assertNotIn(name, samples)
                samples[name] = float(value)
        return samples

    def test_what_it_serves(self):
        host, address = self.metrics_host({"alice": {"weight": 300, "memory": "512MiB"}, "bob": {}})
        steady = self.steady(host)
        holder = self.guest(host, "e2e_quota", "hold", 64 << 20)
        holder.wait_line("^held$")
        headers, text = self.fetch(address)
        self.assertRegex(headers["Content-Type"], r"^text/plain; version=0\.0\.4")
        values = self.values(text)
        self.assertEqual(values['weir_tenant_weight{tenant="alice"}'], 300)
        self.assertGreaterEqual(values['weir_tenant_memory_bytes{tenant="alice"}'], 64 << 20)
        self.assertEqual(values['weir_tenant_memory_limit_bytes{tenant="alice"}'], 512 << 20)
        self.assertEqual(values['weir_tenant_sessions{tenant="bob"}'], 1)
        self.assertEqual(values['weir_worker_restarts_total{worker="0"}'], 0)
        self.assertAlmostEqual(values["weir_start_time_seconds"], time.time(), delta=60)
        lib.run_weir("tenant", "set", "alice", "weight=7", "--run-dir", host.run_dir)
        lib.until(lambda: self.values(self.fetch(address)[1])['weir_tenant_weight{tenant="alice"}']
                  == 7, 5, "the new weight", 0.05)
        if shutil.which("promtool"):
            lint = subprocess.run(["promtool", "check", "metrics"], input=text, text=True,
                                  capture_output=True, timeout=180)
            self.assertEqual((lint.returncode, lint.stdout + lint.stderr), (0, ""))
        for path in ("/", "/metricsx"):
            with self.assertRaises(urllib.error.HTTPError) as refused:
                self.fetch(address, path)
            self.assertEqual(refused.exception.code, 404)
            refused.exception.close()
        holder.close_stdin()
        self.assertEqual(holder.wait(), 0)
        self.steady_undisturbed(steady)
        self.assertEqual(host.stop(), 0)

    def test_shares(self):
        """weir top and the metrics show what the scheduler counts."""
        host, address = self.metrics_host({"alice": {"weight": 300}, "bob": {}, "idle": {}})
        guests = [self.busy(host, "alice"), self.busy(host, "bob")]
        name = 'weir_tenant_sm_seconds_total{tenant="%s"}'
        for tries_left in reversed(range(5)):  # programs that get no CPU have no work for a time
            before = self.values(self.fetch(address)[1])
            top = lib.run_weir("top", "--run-dir", host.run_dir, "--batch", "-n", "1", "--interval-ms",
                               "3000")
            after = self.values(self.fetch(address)[1])
            got = {t: after[name % t] - before[name % t] for t in ("alice", "bob", "idle")}
            self.assertEqual(got["idle"], 0)
            shares = {m[1]: float(m[2])
                      for m in re.finditer(r"(?m)^(\w+) +\d+ normal +([\d.]+)%", top.stdout)}
            self.assertEqual(sorted(shares), ["alice", "bob", "idle"], top.stdout)
            share = got["alice"] / max(got["alice"] + got["bob"], 1e-9)
            if abs(share - 0.75) < 0.1 and abs(shares["alice"] - 75) < 10:
                break
            self.assertGreater(tries_left, 0, f"alice had {share:.2f}\n{top.stdout}")
        self.assertAlmostEqual(sum(shares.values()), 100, delta=0.3)
        self.assertGreater(after['weir_tenant_items_total{tenant="alice"}'],
                           before['weir_tenant_items_total{tenant="alice"}'])
        self.assertGreater(after['weir_tenant_wait_seconds_total{tenant="bob"}'], 0)
        # By program, by session, by device: the same time.
        self.assertGreater(after['weir_program_sm_seconds_total{tenant="alice",program="sched_load"}'],
                           before['weir_program_sm_seconds_total{tenant="alice",program="sched_load"}'])
        self.assertAlmostEqual(after['weir_program_sm_seconds_total{tenant="bob",program="sched_load"}'],
                               after[name % "bob"], delta=0.5)
        self.assertAlmostEqual(after['weir_device_sm_seconds_total{device="0"}'],
                               after[name % "alice"] + after[name % "bob"], delta=0.5)
        waits = 'weir_tenant_gate_wait_seconds_%s{tenant="bob"%s}'
        self.assertEqual(after[waits % ("bucket", ',le="+Inf"')], after[waits % ("count", "")])
        self.assertGreater(after[waits % ("bucket", ',le="1.0"')], after[waits % ("bucket", ',le="1e-05"')])
        status = host.status()
        device, = status["device"]
        self.assertEqual((device["temperature_c"], device["utilization_pct"]), (None, None), "softgpu has none")
        self.assertTrue(0 < device["free_bytes"] < device["memory_bytes"])
        self.assertEqual({(s["tenant"], s["worker"]) for s in status["session"]},
                         {(w["tenant"], w["pid"]) for w in status["worker"] if w["state"] == "busy"})
        self.assertTrue(all(s["sm_ns"] > 0 for s in status["session"]))
        for guest in guests:
            guest.kill()
        host.wait_idle()

    def test_unix_socket(self):
        path = os.path.join(self.folder(), "metrics.sock")
        with open(path, "w") as f:
            f.write("mine")
        other = self.host(("alice",), args=["--metrics", f"unix:{path}"])
        other.process.wait_log(f"warn supervisor: metrics: 'unix:{path}': exists already")
        self.assertEqual(other.stop(), 0)
        with open(path) as f:
            self.assertEqual(f.read(), "mine")
        os.unlink(path)
        host = self.host(("alice",), args=["--metrics", f"unix:{path}"])
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o660)
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(path)
            s.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            answer = b"".join(iter(lambda: s.recv(65536), b""))
        self.assertTrue(answer.startswith(b"HTTP/1.1 200 OK\r\n"), answer[:100])
        self.assertIn(b'weir_tenant_weight{tenant="alice"} 100\n', answer)
        self.assertEqual(host.stop(), 0)
        self.assertFalse(os.path.exists(path))

    def test_wrong_addresses(self):
        for where in ("nonsense", "example.invalid:80", "127.0.0.1:http", "127.0.0.1:99999", "/long" + 40 * "/too"):
            with self.subTest(where=where):
                host = self.host(("alice",), start=False, args=["--metrics", where])
                with self.assertRaises(lib.Stuck) as error:
                    host.start()
                self.assertIn(where, str(error.exception))

    def test_hostile_clients(self):
        host, address = self.metrics_host()
        steady = self.steady(host)
        silent = [self.connect(address) for _ in range(40)]  # more than there are places
        for s in silent[:20]:
            s.setblocking(False)
            try:
                s.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
            except OSError:
                pass  # it has lost its place
        self.assertIn("weir_build_info", self.fetch(address)[1])
        for request in (b"\x00" * 100_000, b"A" * 100_000, b"POST /metrics HTTP/1.1\r\n\r\n",
                        b"GET /metrics HTTP/1.1\r\n\r\n" * 1000, b"\r\n\r\n", b""):
            s = self.connect(address)
            try:
                s.sendall(request)
                s.shutdown(socket.SHUT_WR)
                answer = b"".join(iter(lambda: s.recv(65536), b""))
            except OSError:
                answer = b""  # it was cut off in the middle of its flood
            self.assertTrue(answer == b"" or answer.startswith(b"HTTP/1.1 "), answer[:80])
            self.assertLessEqual(answer.count(b"HTTP/1.1 "), 1)
        # One that asks and does not read, and one that goes away at once.
        deaf = self.connect(address)
        deaf.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        gone = self.connect(address)
        gone.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        gone.close()
        self.assertIn("weir_build_info", self.fetch(address)[1])
        silent.append(self.connect(address))
        begin = lib.lived_s()
        silent[-1].settimeout(60)
        self.assertEqual(silent[-1].recv(1), b"", "who says nothing is dropped")
        self.assertLess(lib.lived_s() - begin, 9)
        self.steady_undisturbed(steady)
        host.wait_idle()
        for s in silent:
            s.close()
        self.assertEqual(host.stop(), 0)


if __name__ == "__main__":
    lib.main()
