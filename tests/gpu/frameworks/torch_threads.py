"""Eight threads, each with a stream of its own, autograd in each."""
import threading

import result

torch = result.torch_ready(deterministic=True)
nets = [torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.Tanh(), torch.nn.Linear(128, 8)).cuda()
        for _ in range(8)]
inputs = [torch.randn(32, 64).cuda() for _ in range(8)]
torch.cuda.synchronize()
losses, errors = {}, []


def work(number):
    try:
        with torch.cuda.stream(torch.cuda.Stream()):
            optimizer = torch.optim.SGD(nets[number].parameters(), lr=0.1)
            for _ in range(60):
                optimizer.zero_grad()
                loss = nets[number](inputs[number]).square().mean()
                loss.backward()
                optimizer.step()
                host = torch.empty(1000).pin_memory() if number % 2 else torch.empty(1000)
                host.copy_(torch.full((1000,), float(number), device="cuda"))
                if float(host[999]) != number:
                    raise RuntimeError(f"thread {number} read {float(host[999])}")
            losses[number] = loss.item()
    except Exception as error:
        errors.append(f"{type(error).__name__}: {error}")


threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
result.check(not errors, "; ".join(errors))
for number in range(8):
    result.number(f"loss_{number}", losses[number])
    result.tensor(f"weights_{number}", nets[number][0].weight)
result.done()
