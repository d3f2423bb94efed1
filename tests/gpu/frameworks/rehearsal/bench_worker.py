"""Speaks as bench_torch.py --serve and --first do; every sample is one copy there and back."""
import json
import sys
import time

import driver


def answer(**what):
    print(json.dumps(what), flush=True)


first = sys.argv[1] == "--first"
cuda = None if first else driver.Driver()
answer(ready=True)
for line in sys.stdin:
    start = time.perf_counter()
    if first or line.startswith("sample"):
        (cuda or driver.Driver()).round_trip(bytes(1 << 16))
        answer(value=(time.perf_counter() - start) * 1e3)
    else:
        answer(done=line.split()[0])
    if first:
        break
