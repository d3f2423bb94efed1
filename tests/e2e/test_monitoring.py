#!/usr/bin/env python3
"""The dashboard and the alert rules: by promtool, and with a real Prometheus that scrapes a host at work."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request

import lib

FOLDER = pathlib.Path(lib.places.source) / "packaging/monitoring"
TEST = pathlib.Path(lib.places.source) / "tests/data/monitoring/alerts_test.yml"
# Served where NVML knows them (tests/unit/host_backend/test_metrics.c), so not by a host on softgpu.
OF_NVML = {"weir_device_utilization_ratio", "weir_device_temperature_celsius", "weir_device_power_watts"}


def expressions():
    """Of the dashboard, with Grafana's variables filled in as it would."""
    board = json.loads((FOLDER / "weir-dashboard.json").read_text())
    found = [t["expr"] for p in board["panels"] for t in p["targets"]]
    return [e.replace("$__rate_interval", "5s").replace("$instance", ".*") for e in found]


def names(text):
    return set(re.findall(r"\bweir_\w+", text))


class Monitoring(lib.Case):
    def promtool(self, *args):
        if not shutil.which("promtool"):
            self.skipTest("there is no promtool")
        result = subprocess.run(["promtool", *args], capture_output=True, text=True, timeout=180, cwd=FOLDER)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_rules(self):
        self.promtool("check", "rules", str(FOLDER / "weir-alerts.yml"))
        folder = self.folder()
        for path in (FOLDER / "weir-alerts.yml", TEST):
            shutil.copy(path, folder)
        self.promtool("test", "rules", os.path.join(folder, TEST.name))

    def test_commands_in_the_rules(self):
        text = (FOLDER / "weir-alerts.yml").read_text()
        for command in set(re.findall(r"\bweir (events|top|status)\b", text)):
            self.assertEqual(lib.run_weir(command, "--help").returncode, 0)

    def prometheus(self, target):
        if not shutil.which("prometheus"):
            self.skipTest("there is no prometheus")
        folder = self.folder()
        port = lib.free_port()
        with open(os.path.join(folder, "prometheus.yml"), "w") as f:
            json.dump({"global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                       "rule_files": [str(FOLDER / "weir-alerts.yml")],
                       "scrape_configs": [{"job_name": "weir", "static_configs": [{"targets": [target]}]}]}, f)
        server = lib.Process(["prometheus", f"--config.file={folder}/prometheus.yml",
                              f"--storage.tsdb.path={folder}/data", f"--web.listen-address=127.0.0.1:{port}"],
                             env=lib.clean_environment())
        self.addCleanup(server.kill)

        def ask(path, **query):
            url = f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
            try:
                with urllib.request.urlopen(url, timeout=10) as answer:
                    return json.load(answer)["data"]
            except urllib.error.HTTPError as error:
                if error.code == 503:
                    return None  # it is there, but not ready yet
                raise AssertionError(f"{query}: {error.read().decode()}") from None
            except OSError:
                return None  # it is not there yet

        return ask

    def test_a_prometheus_that_scrapes_a_host(self):
        host = self.host({"alice": {"weight": 300, "memory": "64MiB"}, "bob": {}},
                         args=["--metrics", "127.0.0.1:0"])
        address = lib.until(lambda: next((m[1] for line in host.process.errors
                                          if (m := re.search(r"metrics listen=(\S+)", line))), None), 5, "the address")
        ask = self.prometheus(address)
        self.busy(host, "alice")
        self.busy(host, "bob")

        def value(query):
            data = ask("query", query=query)
            return data["result"] if data else []

        lib.until(lambda: value("rate(weir_device_sm_seconds_total[5s]) > 0"), 20, "it has seen work", 0.2)
        self.finished(host, "e2e_quota", "fails", 128 << 20)
        served = set(ask("label/__name__/values"))
        self.assertEqual({s for s in served if s.startswith("weir_") and s in OF_NVML}, set())
        for expression in expressions():
            with self.subTest(expression=expression):
                self.assertTrue(names(expression))
                self.assertLessEqual(names(expression) - OF_NVML, served)
                if not names(expression) & OF_NVML:
                    lib.until(lambda: value(expression), 8, "a value", 0.2)
        busy = float(lib.until(lambda: value(expressions()[0]), 5, "a value")[0]["value"][1])
        self.assertTrue(0 < busy < 1.3, busy)
        groups = ask("rules")["groups"]
        rules = {r["name"]: r for g in groups for r in g["rules"]}
        self.assertEqual({r["health"] for r in rules.values()}, {"ok"})
        for rule in rules.values():
            self.assertLessEqual(names(rule["query"]) - OF_NVML, served)
        fires = {}

        def refused():
            fires.update({r["name"]: r for g in ask("rules")["groups"] for r in g["rules"]})
            return fires["WeirAllocationsRefused"]["state"] == "firing"

        lib.until(refused, 15, "the refused allocation is an alert", 0.2)
        alert, = fires["WeirAllocationsRefused"]["alerts"]
        self.assertEqual(alert["labels"]["tenant"], "alice")
        self.assertEqual(fires["WeirHostDown"]["state"], "inactive")


if __name__ == "__main__":
    lib.main()
