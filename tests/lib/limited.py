"""Run a Python test that says where it hangs.

    limited.py LIMIT_S SCRIPT [ARGUMENT ...]

ctest kills a test that hangs without a word. A little before that this prints where each thread of the test
is, and ends it.
"""
import faulthandler
import os
import runpy
import sys


def main():
    """Run the script as if Python had been started with it."""
    faulthandler.dump_traceback_later(float(sys.argv[1]), exit=True)
    del sys.argv[:2]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
