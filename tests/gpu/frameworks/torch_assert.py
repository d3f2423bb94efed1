"""A device-side assertion comes back as an error, and stays."""
import result

torch = result.torch_ready()
table = torch.zeros(4, device="cuda")
result.number("before", table.sum().item())
try:
    bad = table[torch.tensor([10], device="cuda")]
    torch.cuda.synchronize()
    result.check(False, "an index out of range went unnoticed")
except RuntimeError as error:
    result.check("device-side assert" in str(error), f"the error names the assertion: {error}")
try:
    torch.ones(1, device="cuda").sum().item()
    result.check(False, "the context went on after an assertion")
except RuntimeError as error:
    result.check("device-side assert" in str(error), f"the error stays: {error}")
print("ok", flush=True)
import os  # noqa: E402

os._exit(0)  # destructors of a broken context are not what this is about
