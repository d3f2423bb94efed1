"""NVML, cuMemGetInfo and PyTorch tell one story about the device and its memory."""
import ctypes
import shutil
import subprocess

import result

torch = result.torch_ready()
try:
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
except OSError as error:
    result.skip(f"no libnvidia-ml.so.1: {error}")


class Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


def must(status, what):
    result.check(status == 0, f"{what}: {status}")


must(nvml.nvmlInit_v2(), "nvmlInit_v2")
count = ctypes.c_uint()
must(nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)), "nvmlDeviceGetCount_v2")
result.same("devices", count.value)
result.check(count.value == torch.cuda.device_count(), "as many devices as torch sees")
device = ctypes.c_void_p()
must(nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)), "nvmlDeviceGetHandleByIndex_v2")
name = ctypes.create_string_buffer(96)
must(nvml.nvmlDeviceGetName(device, name, 96), "nvmlDeviceGetName")
result.same("name", name.value.decode())
result.check(name.value.decode() == torch.cuda.get_device_name(), "the name that torch knows")
block = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
memory = Memory()
must(nvml.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory)), "nvmlDeviceGetMemoryInfo")
free, total = torch.cuda.mem_get_info()
print(f"nvml total {memory.total} free {memory.free}; cuda total {total} free {free}")
result.check(abs(memory.total - total) <= total // 50, "the totals agree within what the driver reserves")
result.check(memory.used >= 1 << 30, f"what is held counts as used: {memory.used}")
del block
try:
    import pynvml
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    result.check(pynvml.nvmlDeviceGetMemoryInfo(handle).total == memory.total, "pynvml says the same")
    result.same("compute_capability", pynvml.nvmlDeviceGetCudaComputeCapability(handle))
    print("pynvml", pynvml.nvmlSystemGetDriverVersion())
except ImportError:
    print("no pynvml")
if shutil.which("nvidia-smi"):
    said = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True,
                          timeout=30)
    result.check(said.returncode == 0, f"nvidia-smi: {said.stdout} {said.stderr}")
    result.same("nvidia_smi", said.stdout.strip())
result.done()
