"""500 Adam steps of a small MLP: losses and all the weights."""
import result

torch = result.torch_ready(deterministic=True)
from torch import nn  # noqa: E402

net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).cuda()
optimizer = torch.optim.Adam(net.parameters())
inputs = torch.randn(32, 64).cuda()
labels = torch.randint(0, 10, (32,)).cuda()
for step in range(500):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(net(inputs), labels)
    loss.backward()
    optimizer.step()
    if step % 50 == 49:
        result.number(f"loss_{step + 1}", loss.item())
result.check(loss.item() < 0.1, f"the loss went down: {loss.item()}")
for name, weights in net.named_parameters():
    result.tensor(name, weights)
result.done()
