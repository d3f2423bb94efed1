"""Train a ResNet from random weights: torch_resnet.py {resnet18|resnet50} {fp32|bf16} BATCH STEPS.

fp32 asks for deterministic algorithms and is bit-equal from run to run; bf16 takes what cuDNN likes best.
"""
import sys

import result

model, precision, batch, steps = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
torch = result.torch_ready(deterministic=precision == "fp32")
import torchvision  # noqa: E402

net = getattr(torchvision.models, model)(num_classes=100).cuda().train()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
images = torch.randn(batch, 3, 224, 224).cuda()
labels = torch.randint(0, 100, (batch,)).cuda()
for step in range(steps):
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=precision == "bf16"):
        loss = torch.nn.functional.cross_entropy(net(images), labels)
    loss.backward()
    optimizer.step()
    result.number(f"loss_{step + 1}", loss.item())
for name in ("conv1.weight", "layer1.0.conv1.weight", "layer4.1.bn2.running_var", "fc.weight"):
    result.tensor(name, net.state_dict()[name])
net.eval()
with torch.no_grad():
    for size in (1, 4):
        result.tensor(f"inference_{size}", net(images[:size]))
result.done()
