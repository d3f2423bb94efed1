"""A test that never ends: ctest looks at what is said of it."""
import threading


def wait_for_what_never_comes():
    """Wait."""
    threading.Event().wait()


wait_for_what_never_comes()
