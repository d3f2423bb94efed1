#!/usr/bin/env python3
"""NVML in guests: the tenant's view of the device, and clients that are not ours.

NVIDIA_SMI names a real nvidia-smi, which is then run too.
"""
import os
import re
import signal
import subprocess
import sys
import unittest

import lib

QUOTA = 256 << 20
MIB = 1 << 20

# What pynvml does, through ctypes as pynvml does it.
CLIENT = r"""
import ctypes, os, sys
ml = ctypes.CDLL("libnvidia-ml.so.1")
def call(name, *args, want=0):
    got = getattr(ml, name)(*args)
    assert got == want, (name, got)
class Memory(ctypes.Structure):
    _fields_ = [(n, ctypes.c_ulonglong) for n in ("total", "free", "used")]
class Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("gi", ctypes.c_uint),
                ("ci", ctypes.c_uint)]
class Field(ctypes.Structure):
    _fields_ = [("id", ctypes.c_uint), ("scope", ctypes.c_uint), ("time", ctypes.c_longlong),
                ("latency", ctypes.c_longlong), ("type", ctypes.c_uint), ("result", ctypes.c_uint),
                ("value", ctypes.c_ulonglong)]
ml.nvmlErrorString.restype = ctypes.c_char_p
assert ml.nvmlErrorString(9) == b"Driver Not Loaded"
call("nvmlDeviceGetCount_v2", ctypes.byref(ctypes.c_uint()), want=1)
call("nvmlInitWithFlags", 0)
text = ctypes.create_string_buffer(96)
call("nvmlSystemGetDriverVersion", text, 80)
print("driver", text.value.decode())
call("nvmlSystemGetNVMLVersion", text, 80)
version = ctypes.c_int()
call("nvmlSystemGetCudaDriverVersion_v2", ctypes.byref(version))
print("cuda", version.value)
count = ctypes.c_uint()
call("nvmlDeviceGetCount_v2", ctypes.byref(count))
print("devices", count.value)
device = ctypes.c_void_p()
call("nvmlDeviceGetHandleByIndex_v2", 0, ctypes.byref(device))
index = ctypes.c_uint(9)
call("nvmlDeviceGetIndex", device, ctypes.byref(index))
assert index.value == 0
call("nvmlDeviceGetName", device, text, 96)
print("name", text.value.decode())
call("nvmlDeviceGetUUID", device, text, 96)
print("uuid", text.value.decode())
same = ctypes.c_void_p()
call("nvmlDeviceGetHandleByUUID", text, ctypes.byref(same))
assert same.value == device.value
memory = Memory()
call("nvmlDeviceGetMemoryInfo", device, ctypes.byref(memory))
print("memory", memory.total, memory.free, memory.used)
major, minor = ctypes.c_int(), ctypes.c_int()
call("nvmlDeviceGetCudaComputeCapability", device, ctypes.byref(major), ctypes.byref(minor))
print("capability", major.value, minor.value)
n = ctypes.c_uint(64)
infos = (Process * 64)()
call("nvmlDeviceGetComputeRunningProcesses_v3", device, ctypes.byref(n), infos)
for i in infos[:n.value]:
    call("nvmlSystemGetProcessName", i.pid, text, 96)
    print("process", i.pid, i.used, text.value.decode())
n = ctypes.c_uint(64)
call("nvmlDeviceGetGraphicsRunningProcesses_v3", device, ctypes.byref(n), infos)
assert n.value == 0
fields = (Field * 2)(Field(id=82), Field(id=0xffff))
call("nvmlDeviceGetFieldValues", device, 2, fields)
assert fields[1].result != 0, fields[1].result
for setter in ("nvmlDeviceSetPersistenceMode", "nvmlDeviceSetEccMode"):
    call(setter, device, 1, want=4)
call("nvmlDeviceGetNvLinkState", device, 0, ctypes.byref(n), want=3)
status = ctypes.c_uint(99)
call("nvmlDeviceGetP2PStatus", device, device, 0, ctypes.byref(status))
assert status.value == 5, "NCCL: no error, and no peer access"
bad = ctypes.c_void_p(0x1234)
call("nvmlDeviceGetName", bad, text, 96, want=2)
call("nvmlDeviceGetName", device, None, 96, want=2)
call("nvmlDeviceGetMemoryInfo", device, None, want=2)
events = ctypes.c_void_p()
call("nvmlEventSetCreate", ctypes.byref(events))
call("nvmlEventSetWait_v2", events, ctypes.create_string_buffer(64), 20, want=10)
call("nvmlEventSetFree", events)
call("nvmlShutdown")
call("nvmlShutdown", want=1)
print("done")
"""

# What NCCL asks of each device and each pair of them.
LINKS = r"""
import ctypes
ml = ctypes.CDLL("libnvidia-ml.so.1")
def call(name, *args):
    return getattr(ml, name)(*args)
def number(name, *args):
    value = ctypes.c_uint(77)
    result = call(name, *args, ctypes.byref(value))
    return value.value if result == 0 else -result
class Pci(ctypes.Structure):
    _fields_ = [("legacy", ctypes.c_char * 16), ("numbers", ctypes.c_uint * 5), ("id", ctypes.c_char * 32)]
class Field(ctypes.Structure):
    _fields_ = [("id", ctypes.c_uint), ("scope", ctypes.c_uint), ("time", ctypes.c_longlong),
                ("latency", ctypes.c_longlong), ("type", ctypes.c_uint), ("result", ctypes.c_uint),
                ("value", ctypes.c_ulonglong)]
assert call("nvmlInit_v2") == 0
count = number("nvmlDeviceGetCount_v2")
devices = [ctypes.c_void_p() for _ in range(count)]
for i, device in enumerate(devices):
    assert call("nvmlDeviceGetHandleByIndex_v2", i, ctypes.byref(device)) == 0
for i, device in enumerate(devices):
    links = [number("nvmlDeviceGetNvLinkState", device, link) for link in range(19)]
    p2p = number("nvmlDeviceGetNvLinkCapability", device, 0, 0)
    kind = number("nvmlDeviceGetNvLinkRemoteDeviceType", device, 0)
    pci = Pci()
    remote = pci.id.decode() if call("nvmlDeviceGetNvLinkRemotePciInfo_v2", device, 0, ctypes.byref(pci)) == 0 else "none"
    field = Field(id=165, scope=3)
    assert call("nvmlDeviceGetFieldValues", device, 1, ctypes.byref(field)) == 0
    field = field.value if field.result == 0 else -field.result
    pairs = ["".join("1" if number("nvmlDeviceGetP2PStatus", device, other, index) == 0 else "0" for index in range(5))
             for other in devices]
    print("device", i, sum(link == 1 for link in links), links[18], p2p, kind, remote, field, *pairs)
    # What nvidia-smi calls for "topo -m": a slot of a table that NVIDIA does not document.
    table, uuid = ctypes.c_void_p(), bytes.fromhex("c4fe3e6cc98f6c4ea327ee696e12f7c4")
    assert call("nvmlInternalGetExportTable", ctypes.byref(table), uuid) == 0
    slots = ctypes.cast(table, ctypes.POINTER(ctypes.c_size_t))
    distance = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p)(slots[0xb8 // 8])
    own, steps = [], ctypes.c_uint(77)
    for other in devices:
        assert call("nvmlDeviceGetPciInfo_v3", other, ctypes.byref(pci)) == 0
        own.append(pci.id)
    for other in (*own[:i], *own[i + 1:], b"0000FFFF:00:00.0"):
        assert distance(own[i], other, ctypes.byref(steps)) == 0
        print("steps", i, steps.value)
    switched = Field(id=147)
    assert call("nvmlDeviceGetFieldValues", device, 1, ctypes.byref(switched)) == 0
    print("switched", i, switched.value if switched.result == 0 else -switched.result)
    print("far", i, *[number("nvmlDeviceGetTopologyCommonAncestor", device, other) for other in devices])
    for level in (20, 30):
        count, near = ctypes.c_uint(8), (ctypes.c_void_p * 8)()
        assert call("nvmlDeviceGetTopologyNearestGpus", device, level, ctypes.byref(count), near) == 0
        print("near", i, level, *[[other.value for other in devices].index(found) for found in near[:count.value]])
    nodes = (ctypes.c_ulong * 4)(9, 9, 9, 9)
    assert call("nvmlDeviceGetMemoryAffinity", device, 4, nodes, 0) == 0
    assert nodes[0] & 1 and not any(nodes[1:])
"""

SMI = (["-L"], ["-q"], ["-q", "-x"], [], ["--query-gpu=name,memory.total,memory.used,utilization.gpu",
                                          "--format=csv"],
       ["--query-compute-apps=pid,name,used_memory", "--format=csv,noheader"], ["pmon", "-c", "1"],
       ["dmon", "-c", "1"], ["topo", "-m"])


class Nvml(lib.Case):
    def host(self, *args, **kwargs):
        """On one device, however many there are: test_devices has the others."""
        return super().host(*args, host_lines=("devices = 0",), **kwargs)

    def quota_host(self):
        return self.host({"alice": {"memory": "256MiB"}, "bob": {"memory": "1GiB"}},
                         remote=self.remote())

    def hold(self, host, tenant, mib):
        guest = self.guest(host, "e2e_quota", "hold", mib * MIB, tenant=tenant)
        guest.wait_line("^held$")
        return guest

    def client(self, host, tenant="alice", **kwargs):
        guest = self.finished(host, sys.executable, "-c", CLIENT, tenant=tenant, **kwargs)
        self.assertIn("done", guest.lines)
        return guest

    def test_agrees_with_the_driver_api(self):
        host = self.quota_host()
        self.hold(host, "bob", 64)  # nobody else's business
        for arrangement in (lib.SHM, lib.ZMQ, lib.TCP):
            self.finished(host, "e2e_nvml", "agree", QUOTA, arrangement=arrangement)

    def test_without_cuda_and_in_a_child(self):
        host = self.quota_host()
        for arrangement in (lib.SHM, lib.TCP):
            self.finished(host, "e2e_nvml", "alone", arrangement=arrangement)
        host.wait_idle(20)

    def test_hidden_devices_are_shown(self):
        """As the real library, which knows nothing of CUDA_VISIBLE_DEVICES."""
        host = self.quota_host()
        self.assertIn("devices 1", self.client(host, env={"CUDA_VISIBLE_DEVICES": ""}).lines)

    def test_a_tenant_sees_its_own_processes(self):
        host = self.quota_host()
        alices = [self.hold(host, "alice", 64), self.hold(host, "alice", 96)]
        bobs = self.hold(host, "bob", 64)
        for tenant, want, total in (("alice", alices, QUOTA), ("bob", [bobs], 1 << 30)):
            out = self.client(host, tenant).out
            found = re.findall(r"^process (\d+) (\d+) (.*)$", out, re.M)
            self.assertEqual({int(pid) for pid, _, _ in found}, {g.pid for g in want})
            for _, used, name in found:
                self.assertGreaterEqual(int(used), 64 * MIB)
                self.assertEqual(os.path.basename(name), "e2e_quota")
            memory = re.search(r"^memory (\d+) (\d+) (\d+)$", out, re.M)
            self.assertEqual(int(memory[1]), total)
            self.assertEqual(int(memory[2]) + int(memory[3]), total)
            self.assertGreaterEqual(int(memory[3]), 64 * MIB * len(want))
        for guest in (*alices, bobs):
            guest.close_stdin()
            self.assertEqual(guest.wait(), 0)
        self.assertNotIn("process", self.client(host).out)

    def test_monitors_are_not_sessions(self):
        """A tenant at its limit of sessions can still be looked at."""
        host = self.host({"alice": {"sessions": 1}})
        holder = self.hold(host, "alice", 8)
        self.client(host)
        holder.close_stdin()
        self.assertEqual(holder.wait(), 0)

    def test_links_between_the_tenants_devices(self):
        """All of a device's links lead to what NCCL takes for a switch, and pairs are told by what they can do."""
        if lib.DRIVER != "softgpu":
            raise unittest.SkipTest("what is told of a GPU is its own")
        for n in (1, 2, 4, 8):
            host = super().host({"alice": {}, "bob": {"devices": "0"}}, env={"WEIR_SOFTGPU_DEVICES": str(n)})
            for tenant, seen in (("alice", n), ("bob", 1)):
                guest = self.finished(host, sys.executable, "-c", LINKS, tenant=tenant)
                linked = "18 -2 1 2 fffffff:ffff:ff 1" if seen > 1 else "0 -3 -3 -3 none -3"
                want = [f"device {i} {linked} " + " ".join("00000" if i == other else "11110" for other in range(seen))
                        for i in range(seen)]
                self.assertEqual([line for line in guest.lines if line.startswith("device")], want)
                want = ["far " + " ".join([str(i), *["-3" if i == other else "30" for other in range(seen)]]) for i in range(seen)]
                self.assertEqual([line for line in guest.lines if line.startswith("far")], want)
                want = [f"steps {i} {far}" for i in range(seen) for far in (*([2] * (seen - 1)), 4)]
                self.assertEqual([line for line in guest.lines if line.startswith("steps")], want)
                want = [f"switched {i} {18 if seen > 1 else -3}" for i in range(seen)]
                self.assertEqual([line for line in guest.lines if line.startswith("switched")], want)
                want = ["near " + " ".join([str(i), level, *[str(o) for o in range(seen) if o != i and level == "30"]])
                        for i in range(seen) for level in ("20", "30")]
                self.assertEqual([line for line in guest.lines if line.startswith("near")], want)
            host.stop()

    def test_without_a_host(self):
        env = lib.clean_environment()
        env["LD_LIBRARY_PATH"] = lib.places.guest_lib
        env["WEIR_HOST"] = "ipc:///nonexistent/weir.sock"
        code = "import ctypes; print(ctypes.CDLL('libnvidia-ml.so.1').nvmlInit_v2())"
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True,
                              timeout=180)
        self.assertEqual((done.stdout, done.stderr), ("9\n", ""))

    def test_without_weirs_libcuda(self):
        """Alone in its folder it has nobody to ask."""
        folder = self.folder()
        os.symlink(os.path.realpath(os.path.join(lib.places.guest_lib, "libnvidia-ml.so.1")),
                   os.path.join(folder, "libnvidia-ml.so.1"))
        env = lib.clean_environment()
        code = (f"import ctypes; print(ctypes.CDLL('{folder}/libnvidia-ml.so.1').nvmlInit_v2())")
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True,
                              timeout=180)
        self.assertEqual((done.stdout, done.stderr), ("12\n", ""))

    def test_a_lost_host(self):
        host = self.host()
        guest = self.guest(host, "e2e_nvml", "lost")
        guest.wait_line("^ready$")
        host.stop()
        guest.say("")
        self.assertEqual(guest.wait(20), 0, guest.tail())

    def test_a_replaced_worker(self):
        host = self.host()
        guest = self.guest(host, "e2e_nvml", "again")
        guest.wait_line("^ready$")
        os.kill(host.worker_pid(), signal.SIGKILL)
        guest.say("")
        self.assertEqual(guest.wait(30), 0, guest.tail())

    def test_nvidia_smi(self):
        smi = os.environ.get("NVIDIA_SMI")
        if not smi:
            self.skipTest("NVIDIA_SMI does not name a real nvidia-smi")
        host = self.quota_host()
        mine = self.hold(host, "alice", 64)
        others = self.hold(host, "bob", 64)
        out = {}
        for args in SMI:
            out[" ".join(args)] = self.finished(host, smi, *args).out
        for shows in ("", "-q", "pmon -c 1", " ".join(SMI[5])):
            self.assertRegex(out[shows], rf"\b{mine.pid}\b")
            self.assertNotRegex(out[shows], rf"\b{others.pid}\b")
        self.assertRegex(out[""], r"\d+MiB /\s+256MiB")
        self.assertRegex(out["-q"], r"Total +: 256 MiB")
        self.assertNotIn("Unknown Error", "".join(out.values()))

    def test_the_matrix_of_nvidia_smi(self):
        smi = os.environ.get("NVIDIA_SMI")
        if not smi or lib.DRIVER != "softgpu":
            self.skipTest("NVIDIA_SMI does not name a real nvidia-smi, or softgpu is not asked")
        host = super().host(("alice",), env={"WEIR_SOFTGPU_DEVICES": "4"})
        out = self.finished(host, smi, "topo", "-m").out
        self.assertEqual(len(re.findall(r"^GPU\d(?=.*\bX\b)(?:.*\bNV18\b){3}", out, re.M)), 4, out)


if __name__ == "__main__":
    lib.main()
