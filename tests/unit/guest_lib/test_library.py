"""The manners of libcuda.so.1: what it exports and needs, and how it behaves without a host."""

import ctypes
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

LIBRARY, MAP = sys.argv[1], sys.argv[2]
SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../..")
GLIBC_MAX = (2, 28)
NEEDED = {"libc.so.6", "libpthread.so.0", "libdl.so.2", "ld-linux-x86-64.so.2"}
NO_DEVICE, NOT_INITIALIZED, INVALID_VALUE = 100, 3, 1


def readelf(*options):
    return subprocess.run(["readelf", "-W", *options, LIBRARY], check=True, text=True,
                          stdout=subprocess.PIPE).stdout


def run(code, **env):
    """Run Python that has the library as `lib`; gives its output."""
    program = f"import ctypes, os, sys\nlib = ctypes.CDLL({LIBRARY!r})\n{code}"
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("WEIR_", "CUDA_"))}
    done = subprocess.run([sys.executable, "-c", program], text=True, capture_output=True, timeout=60,
                          env={**clean, "WEIR_HOST": "ipc:///nonexistent/weir.sock", **env})
    return done


class Elf(unittest.TestCase):
    def test_soname_and_needed(self):
        dynamic = readelf("-d")
        self.assertIn("Library soname: [libcuda.so.1]", dynamic)
        self.assertLessEqual(set(re.findall(r"Shared library: \[(.*?)\]", dynamic)), NEEDED)

    def test_no_symbol_newer_than_glibc_2_28(self):
        for name, version in re.findall(r"(\S+)@GLIBC_([\d.]+)", readelf("--dyn-syms")):
            self.assertLessEqual(tuple(map(int, version.split("."))), GLIBC_MAX + (99,), name)

    def test_exports_are_the_map_and_nothing_else(self):
        wanted = set(re.findall(r"^\s+(cu\w+);", open(MAP).read(), re.M))
        exported = set()
        for line in readelf("--dyn-syms").splitlines():
            fields = line.split()
            if len(fields) > 7 and fields[4] in ("GLOBAL", "WEAK") and fields[6] != "UND":
                exported.add(fields[7])
        self.assertEqual(exported, wanted)

    def test_stack_is_not_executable(self):
        self.assertRegex(readelf("-l"), r"GNU_STACK.* RW +0x")


class WithoutHost(unittest.TestCase):
    def test_init_says_no_device_and_why_if_a_host_is_expected(self):
        done = run("sys.exit(lib.cuInit(0) + lib.cuInit(0) - 100)")
        self.assertEqual((done.returncode, done.stdout), (NO_DEVICE, ""))
        self.assertRegex(done.stderr, r"^weir: python\S* gets no GPU from ipc:///nonexistent/weir.sock: not found \(the host is down, or has no such tenant\)\n$")

    @unittest.skipIf(os.path.exists("/run/weir"), "a host is expected on this machine")
    def test_init_says_no_device_silently_if_none_is(self):
        done = run("sys.exit(lib.cuInit(0))", WEIR_HOST="")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (NO_DEVICE, "", ""))

    def test_init_tells_why_when_asked(self):
        done = run("sys.exit(lib.cuInit(0))", WEIR_LOG="error")
        self.assertEqual(done.returncode, NO_DEVICE)
        self.assertIn("/nonexistent/weir.sock", done.stderr)

    def test_an_older_host_is_told_of(self):
        """It does not know how an upgrade goes on; one that does is not repeated."""
        with open(os.path.join(SOURCE, "base/status.def")) as f:
            version = re.findall(r"(?m)^WEIR_STATUS\((\w+),", f.read()).index("VERSION") + 1
        for said, more in (("protocol 0 here", " (after an upgrade, weir restart has the new version serve)"),
                           ("after an upgrade, weir restart", "")):
            with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as host:
                path = os.path.join(folder, "host.sock")
                host.bind(path)
                host.listen()

                def refuse(said=said):
                    connection, _ = host.accept()
                    connection.recv(4096)
                    connection.sendall(bytes([0x08, version, 0x10, 100, 0x1a, len(said)]) + said.encode())

                threading.Thread(target=refuse, daemon=True).start()
                done = run("sys.exit(lib.cuInit(0))", WEIR_HOST=f"ipc://{path}")
                self.assertEqual(done.returncode, NO_DEVICE)
                self.assertRegex(done.stderr, rf"^weir: python\S* gets no GPU from ipc://{path}: {re.escape(said + more)}\n$")

    def test_init_refuses_flags_and_hidden_devices(self):
        self.assertEqual(run("sys.exit(lib.cuInit(1))").returncode, INVALID_VALUE)
        hidden = run("sys.exit(lib.cuInit(0))", CUDA_VISIBLE_DEVICES="")
        self.assertEqual(hidden.returncode, NO_DEVICE)

    def test_calls_before_init(self):
        done = run("""
v = ctypes.c_int()
p = ctypes.c_void_p()
print(lib.cuDriverGetVersion(ctypes.byref(v)), v.value)
print(lib.cuCtxGetCurrent(ctypes.byref(p)), lib.cuDeviceGetCount(ctypes.byref(v)))
print(lib.cuMemAlloc_v2(ctypes.byref(p), 4), lib.cuCtxSynchronize())
s = ctypes.c_int(9)
print(lib.cuGetProcAddress_v2(b"cuMemAlloc", ctypes.byref(p), 12000, ctypes.c_uint64(0),
                              ctypes.byref(s)),
      p.value == ctypes.cast(lib.cuMemAlloc_v2, ctypes.c_void_p).value, s.value)
t = ctypes.c_char_p()
print(lib.cuGetErrorName(700, ctypes.byref(t)), t.value.decode())
print(lib.cuGetErrorName(12345, ctypes.byref(t)), t.value)
""")
        self.assertEqual(done.stderr, "")
        self.assertEqual(done.stdout.splitlines(), [
            "0 13000", "3 3", "3 3", "0 True 0", "0 CUDA_ERROR_ILLEGAL_ADDRESS", "1 None"])

    def test_forked_child_of_a_fresh_process_is_fresh(self):
        done = run("""
pid = os.fork()
if pid == 0:
    os._exit(lib.cuInit(0))
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
""")
        self.assertEqual(done.returncode, NO_DEVICE)

    def test_errno_is_preserved(self):
        done = run("""
lib = ctypes.CDLL(lib._name, use_errno=True)
ctypes.set_errno(77)
lib.cuInit(0)
print(ctypes.get_errno())
""")
        self.assertEqual(done.stdout.strip(), "77")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
