"""Out of memory is an error that a program can catch and go on after."""
import gc

import result

torch = result.torch_ready()
total = torch.cuda.get_device_properties(0).total_memory
kept = torch.arange(1000, device="cuda")


def refused(size):
    try:
        torch.empty(size, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError as error:
        return "out of memory" in str(error)
    return False


result.check(refused(total + (1 << 30)), "more than there is")
result.check(refused(1 << 46), "64 TiB")
result.tensor("still_there", kept)
torch.cuda.set_per_process_memory_fraction((1 << 30) / total)
blocks = []
try:
    while len(blocks) < 100:
        blocks.append(torch.empty(100 << 20, dtype=torch.uint8, device="cuda"))
except torch.OutOfMemoryError:
    pass
result.same("blocks_of_100_MiB_in_1_GiB", len(blocks))
del blocks
gc.collect()
torch.cuda.set_per_process_memory_fraction(1.0)
x = torch.ones(1 << 28, device="cuda")
result.number("one_GiB_afterwards", x.sum().item())
result.same("num_ooms", torch.cuda.memory_stats()["num_ooms"])
result.done()
