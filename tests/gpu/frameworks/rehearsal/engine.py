"""Stands for bench_llm.py where there is no PyTorch: sched_load in its place. engine.py SCHED_LOAD OPTION..."""
import json
import re
import subprocess
import sys

print("ready", flush=True)
for line in sys.stdin:
    requests, seconds = line.split()
    said = subprocess.run([sys.argv[1], "pulse", *sys.argv[2:], "--seconds", seconds, "--gap-us", "0"], capture_output=True,
                          text=True, timeout=60, check=True).stdout
    total = re.search(r"total (\d+) ([\d.]+)", said)
    p50, p99, most = (float(us) * 1e-3 for us in re.search(r"p50 ([\d.]+) p99 ([\d.]+) max ([\d.]+)", said).groups())
    print(json.dumps({"requests": int(requests), "tokens_s": int(requests) * int(total[1]) / float(total[2]), "p50": p50,
                      "p99": p99, "max": most, "n": int(total[1])}), flush=True)
