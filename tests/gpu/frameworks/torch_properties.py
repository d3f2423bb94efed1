"""What torch.cuda says about the device is what it says natively."""
import result

torch = result.torch_ready()
p = torch.cuda.get_device_properties(0)
for field in ("name", "major", "minor", "multi_processor_count", "warp_size", "max_threads_per_multi_processor",
              "regs_per_multiprocessor", "shared_memory_per_block", "shared_memory_per_block_optin",
              "shared_memory_per_multiprocessor", "L2_cache_size", "is_integrated", "is_multi_gpu_board",
              "gcnArchName", "clock_rate", "memory_clock_rate", "memory_bus_width", "uuid"):
    if hasattr(p, field):
        result.same(field, getattr(p, field))
result.same("device_count", torch.cuda.device_count())
result.same("capability", torch.cuda.get_device_capability())
result.same("device_name", torch.cuda.get_device_name())
result.same("arch_list", torch.cuda.get_arch_list())
result.same("bf16", torch.cuda.is_bf16_supported())
result.same("current_device", torch.cuda.current_device())
result.same("current_blas_handle_is_set", bool(torch.cuda.current_blas_handle()))
result.same("cudnn", torch.backends.cudnn.version())
result.same("cuda", torch.version.cuda)
for name in ("preferred_linalg_library", "preferred_blas_library"):
    result.same(name, getattr(torch.backends.cuda, name)())
for index in range(torch.cuda.device_count()):
    for other in range(torch.cuda.device_count()):
        if index != other:
            result.same(f"peer_{index}_{other}", torch.cuda.can_device_access_peer(index, other))
runtime = torch.cuda.cudart()
result.same("cudaRuntime_success", int(runtime.cudaError.success))
result.done()
