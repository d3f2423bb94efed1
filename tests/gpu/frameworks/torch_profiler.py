"""torch.profiler works or degrades: the program gets through, and sees its CPU side."""
import os
import tempfile

import result

torch = result.torch_ready()
from torch.profiler import ProfilerActivity, profile, record_function, schedule  # noqa: E402

x = torch.randn(256, 256).cuda()


def work():
    with record_function("work"):
        return (x @ x).relu().sum().item()


work()
with profile(activities=[ProfilerActivity.CPU]) as cpu:
    work()
result.check(any(e.key == "work" for e in cpu.key_averages()), "the CPU side is seen")
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True) as both:
    for _ in range(3):
        work()
    torch.cuda.synchronize()
averages = both.key_averages()
result.check(any(e.key == "work" for e in averages), "the CPU side is seen when CUDA is asked for")
on_device = sum(1 for e in both.events() if "CUDA" in str(e.device_type))
print(f"events of the device: {on_device}")  # for information: 0 where CUPTI cannot trace
result.check("work" in averages.table(sort_by="cpu_time_total", row_limit=5), "table")
with tempfile.TemporaryDirectory() as folder:
    both.export_chrome_trace(os.path.join(folder, "trace.json"))
    result.check(os.path.getsize(os.path.join(folder, "trace.json")) > 100, "the trace is written")
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
             schedule=schedule(wait=1, warmup=1, active=2)) as steps:
    for _ in range(5):
        work()
        steps.step()
torch.cuda.nvtx.range_push("a range")
torch.cuda.nvtx.mark("a mark")
torch.cuda.nvtx.range_pop()
with torch.autograd.profiler.emit_nvtx():
    work()
result.number("value", work())
result.done()
