"""The manners of libnvidia-ml.so.1: what it exports and needs, and how it behaves without a host."""

import os
import re
import subprocess
import sys
import unittest

LIBRARY, FUNCTIONS = sys.argv[1], sys.argv[2]
GLIBC_MAX = (2, 28)
NEEDED = {"libc.so.6", "libpthread.so.0", "libdl.so.2", "ld-linux-x86-64.so.2"}
DRIVER_580_FUNCTIONS = 404  # nm -D of the real library, 580.159.04


def readelf(*options):
    return subprocess.run(["readelf", "-W", *options, LIBRARY], check=True, text=True,
                          stdout=subprocess.PIPE).stdout


def rows():
    """{name: kind} of functions.def."""
    with open(FUNCTIONS) as f:
        text = re.sub(r"/\*.*?\*/", "", f.read(), flags=re.S)
    found = re.findall(r"^WEIR_NVML_(CARRY|OWN|DENY|NONE)\((nvml\w+)", text, re.M)
    assert len({name for _, name in found}) == len(found), "a name twice"
    return {name: kind for kind, name in found}


def run(code, **env):
    program = f"import ctypes, os, sys\nlib = ctypes.CDLL({LIBRARY!r})\n{code}"
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("WEIR_", "CUDA_"))}
    return subprocess.run([sys.executable, "-c", program], text=True, capture_output=True,
                          timeout=30,
                          env={**clean, "WEIR_HOST": "ipc:///nonexistent/weir.sock", **env})


class Elf(unittest.TestCase):
    def test_soname_and_needed(self):
        dynamic = readelf("-d")
        self.assertIn("Library soname: [libnvidia-ml.so.1]", dynamic)
        self.assertLessEqual(set(re.findall(r"Shared library: \[(.*?)\]", dynamic)), NEEDED)

    def test_no_symbol_newer_than_glibc_2_28(self):
        for name, version in re.findall(r"(\S+)@GLIBC_([\d.]+)", readelf("--dyn-syms")):
            self.assertLessEqual(tuple(map(int, version.split("."))), GLIBC_MAX + (99,), name)

    def test_exports_are_the_rows_and_nothing_else(self):
        exported = set()
        for line in readelf("--dyn-syms").splitlines():
            fields = line.split()
            if len(fields) > 7 and fields[4] in ("GLOBAL", "WEAK") and fields[6] != "UND":
                exported.add(fields[7])
        self.assertEqual(exported, set(rows()))
        self.assertEqual(len(exported), DRIVER_580_FUNCTIONS)

    def test_stack_is_not_executable(self):
        self.assertRegex(readelf("-l"), r"GNU_STACK.* RW +0x")


class WithoutHost(unittest.TestCase):
    def test_every_function_before_init(self):
        """With NULLs: none may crash, and all but a few say that the library is not initialised."""
        names = sorted(set(rows()) - {"nvmlErrorString"})
        done = run("".join(f"print('{n}', lib.{n}(None, None, None, None, None, None))\n"
                           for n in names))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        early = {"nvmlInit": 9, "nvmlInit_v2": 9, "nvmlInitWithFlags": 9,
                 "nvmlInternalGetExportTable": 2, "nvmlSystemGetCudaDriverVersion": 2,
                 "nvmlSystemGetCudaDriverVersion_v2": 2}
        for line in done.stdout.splitlines():
            name, result = line.split()
            self.assertEqual(int(result), early.get(name, 1), name)

    def test_versions_and_texts(self):
        done = run("""
v = ctypes.c_int()
print(lib.nvmlSystemGetCudaDriverVersion_v2(ctypes.byref(v)), v.value)
lib.nvmlErrorString.restype = ctypes.c_char_p
print(lib.nvmlErrorString(0).decode(), lib.nvmlErrorString(4242).decode(), sep="|")
print(lib.nvmlInitWithFlags(64), lib.nvmlInitWithFlags(1))
""")
        self.assertEqual(done.stderr, "")
        self.assertEqual(done.stdout.splitlines(), ["0 13000", "Success|Unknown Error", "2 9"])

    def test_export_tables(self):
        """nvidia-smi's is there, and large enough for every slot that it looks at."""
        done = run("""
smi = bytes.fromhex("c4fe3e6cc98f6c4ea327ee696e12f7c4")
p = ctypes.c_void_p()
print(lib.nvmlInternalGetExportTable(ctypes.byref(p), smi),
      ctypes.cast(p, ctypes.POINTER(ctypes.c_size_t))[0] > 0x838)
print(lib.nvmlInternalGetExportTable(ctypes.byref(p), bytes(16)), p.value)
""")
        self.assertEqual(done.stdout.splitlines(), ["0 True", "6 None"], done.stderr)

    def test_errno_is_preserved(self):
        done = run("""
lib = ctypes.CDLL(lib._name, use_errno=True)
ctypes.set_errno(77)
lib.nvmlInit_v2()
print(ctypes.get_errno())
""")
        self.assertEqual(done.stdout.strip(), "77", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
