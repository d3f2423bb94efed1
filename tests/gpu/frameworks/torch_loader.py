"""pin_memory, and DataLoader workers that fork before and after CUDA is in use."""
import result

torch = result.torch_ready(deterministic=True)
from torch.utils.data import DataLoader, Dataset  # noqa: E402


class Numbers(Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return torch.randn(3, 32, 32, generator=generator), index % 10


def epoch(workers, pin, context="fork"):
    loader = DataLoader(Numbers(), batch_size=64, num_workers=workers, pin_memory=pin,
                        multiprocessing_context=context if workers else None, shuffle=True,
                        generator=torch.Generator().manual_seed(5), persistent_workers=False)
    total = torch.zeros(3, 32, 32, device="cuda")
    count = torch.zeros((), device="cuda", dtype=torch.int64)
    for images, labels in loader:
        result.check(images.is_pinned() == pin, "pinned as asked")
        total += images.to("cuda", non_blocking=pin).sum(0)
        count += labels.to("cuda", non_blocking=pin).sum()
    return total, count


for workers, pin in ((0, False), (2, False), (2, True), (4, True), (0, True)):
    total, count = epoch(workers, pin)
    result.tensor(f"workers_{workers}_pin_{pin}", total)
    result.same(f"labels_{workers}_{pin}", count.item())
# The children of a fork leave the parent's CUDA as it was.
x = torch.randn(1000).cuda()
result.tensor("afterwards", x @ x)
pinned = torch.empty(16 << 20, dtype=torch.uint8, pin_memory=True)
pinned.random_(0, 255)
copy = pinned.to("cuda", non_blocking=True)
torch.cuda.synchronize()
result.check(torch.equal(copy.cpu(), pinned), "16 MiB from pinned memory")
result.done()
