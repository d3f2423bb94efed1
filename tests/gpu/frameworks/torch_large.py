"""Tensors and copies past 4 GiB."""
import result

torch = result.torch_ready()
COUNT = (9 << 30) // 8 + 12345  # of 4 bytes: 4.5 GiB and a bit
device = torch.arange(COUNT, dtype=torch.int32, device="cuda")
result.same("last", int(device[-1]))
host = device.cpu()
result.check(host.numel() == COUNT, "size")
result.check(bool((host[::9973] == torch.arange(COUNT, dtype=torch.int32)[::9973]).all()), "device to host")
host[-1] = -7
host[(1 << 30) + 1] = -9  # past 4 GiB
again = host.cuda()
del host
result.same("changed", f"{int(again[-1])} {int(again[(1 << 30) + 1])}")
result.same("differences", int((again != device).sum()))
device.copy_(again)
result.same("device_to_device", bool((device == again).all()))
device.zero_()
result.same("zeroed", int(device.count_nonzero()))
result.same("sum", int(again.sum(dtype=torch.int64)))
pinned = torch.empty(COUNT - (1 << 29), dtype=torch.int32, pin_memory=True)
pinned.copy_(again[1 << 29:], non_blocking=True)
torch.cuda.synchronize()
result.same("pinned", f"{int(pinned[0])} {int(pinned[-1])}")
result.done()
