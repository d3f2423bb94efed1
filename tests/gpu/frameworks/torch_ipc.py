"""CUDA tensors and events between processes, through torch.multiprocessing."""
import result

torch = result.torch_ready()
import torch.multiprocessing as mp  # noqa: E402


def child(inbox, outbox):
    tensor = inbox.get(timeout=60)
    outbox.put(float(tensor.sum()))
    tensor.mul_(3)
    torch.cuda.synchronize()
    outbox.put("changed")
    own = torch.full((1 << 20,), 5.0, device="cuda")
    torch.cuda.synchronize()
    outbox.put(own)
    inbox.get(timeout=60)  # own lives until the parent has read it
    view = inbox.get(timeout=60)
    outbox.put(float(view[-1]))
    del tensor, own, view


if __name__ == "__main__":
    context = mp.get_context("spawn")
    to_child, from_child = context.Queue(), context.Queue()
    process = context.Process(target=child, args=(to_child, from_child))
    process.start()
    shared = torch.arange(1 << 20, dtype=torch.float32, device="cuda")
    to_child.put(shared)
    result.number("sum_in_the_child", from_child.get(timeout=60))
    result.same("said", from_child.get(timeout=60))
    result.tensor("changed_by_the_child", shared)
    theirs = from_child.get(timeout=60)
    result.number("of_the_child", theirs.sum().item())
    theirs.add_(1)
    torch.cuda.synchronize()
    result.number("of_the_child_changed", theirs[7].item())
    del theirs
    to_child.put("read")
    to_child.put(shared[100:200])
    result.number("a_view", from_child.get(timeout=60))
    process.join(60)
    result.same("exit", process.exitcode)
    result.done()
