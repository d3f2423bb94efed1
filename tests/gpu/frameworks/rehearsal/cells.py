"""A little work on the driver that is there, with results like the framework programs': cells.py [noise]."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import driver  # noqa: E402
import result  # noqa: E402

cuda = driver.Driver()
data = bytes(range(256)) * 64
result.check(cuda.round_trip(data) == data, "memory keeps what it is given")
result.same("devices", cuda.count())
result.number("a_number", 1 / 3)
if "noise" in sys.argv:
    result.numbers("in_the_spread", [1.0 + int.from_bytes(os.urandom(2), "little") / 65536 * 1e-3 for _ in range(8)])
result.done()
