"""Just enough of the Driver API, through ctypes, to rehearse the suite without any framework."""
import ctypes


class Driver:
    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.must("cuInit", 0)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.must("cuDeviceGet", ctypes.byref(device), 0)
        self.must("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.must("cuCtxSetCurrent", context)

    def must(self, function, *args):
        status = getattr(self.cuda, function)(*args)
        if status != 0:
            raise RuntimeError(f"{function}: {status}")

    def count(self):
        found = ctypes.c_int()
        self.must("cuDeviceGetCount", ctypes.byref(found))
        return found.value

    def round_trip(self, data):
        """What comes back of bytes that went to the device."""
        memory, back = ctypes.c_uint64(), ctypes.create_string_buffer(len(data))
        self.must("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(len(data)))
        self.must("cuMemcpyHtoD_v2", memory, data, ctypes.c_size_t(len(data)))
        self.must("cuMemcpyDtoH_v2", back, memory, ctypes.c_size_t(len(data)))
        self.must("cuMemFree_v2", memory)
        return back.raw
