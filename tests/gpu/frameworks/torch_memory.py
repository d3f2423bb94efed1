"""The caching allocator's statistics, and what the driver says about memory."""
import gc

import result

torch = result.torch_ready()
MIB = 1 << 20


def show(name):
    stats = torch.cuda.memory_stats()
    keys = ("allocated_bytes.all.current", "allocated_bytes.all.peak", "reserved_bytes.all.current",
            "reserved_bytes.all.peak", "active_bytes.all.current", "inactive_split_bytes.all.current",
            "allocation.all.allocated", "segment.all.current", "num_alloc_retries", "num_ooms",
            "num_device_alloc", "num_device_free")
    for key in keys:
        result.same(f"{name}.{key}", stats.get(key, "absent"))


free, total = torch.cuda.mem_get_info()
result.check(0 < free <= total, f"free {free} of {total}")
properties = torch.cuda.get_device_properties(0)
result.check(abs(properties.total_memory - total) <= total // 100, "two ways to ask for the total agree")
show("start")
held = [torch.empty(size, dtype=torch.uint8, device="cuda") for size in (512, 3 * MIB, 25 * MIB, 300 * MIB)]
show("held")
free_then, _ = torch.cuda.mem_get_info()
result.check(free - free_then >= 300 * MIB, f"free memory went down by {free - free_then}")
result.same("max_memory_allocated", torch.cuda.max_memory_allocated())
result.same("max_memory_reserved", torch.cuda.max_memory_reserved())
del held[3], held[1]
gc.collect()
show("some_freed")
torch.cuda.empty_cache()
show("cache_emptied")
free_now, _ = torch.cuda.mem_get_info()
result.check(free_now - free_then >= 300 * MIB, f"free memory came back: {free_now - free_then}")
torch.cuda.reset_peak_memory_stats()
result.same("peak_after_reset", torch.cuda.max_memory_allocated())
for turn in range(200):
    torch.empty((turn * 7919) % (8 * MIB) + 1, dtype=torch.uint8, device="cuda")
show("churn")
result.same("snapshot_segments", len(torch.cuda.memory_snapshot()))
result.check("Allocated memory" in torch.cuda.memory_summary(), "memory_summary")
x = torch.full((4 * MIB,), 3.0, device="cuda")
result.number("works", x.sum().item())
result.done()
