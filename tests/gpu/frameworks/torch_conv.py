"""cuDNN: convolutions in both layouts and all dimensions, pooling, recurrent nets, losses."""
import result

torch = result.torch_ready(deterministic=True)
from torch import nn  # noqa: E402


def both_ways(name, module, x):
    module, x = module.cuda(), x.cuda().requires_grad_()
    out = module(x)
    out = out[0] if isinstance(out, tuple) else out
    out.square().mean().backward()
    result.tensor(f"{name}_forward", out)
    result.tensor(f"{name}_input_gradient", x.grad)
    for index, weights in enumerate(module.parameters()):
        result.tensor(f"{name}_gradient_{index}", weights.grad)


image = torch.randn(8, 16, 40, 40)
both_ways("conv2d", nn.Conv2d(16, 32, 3), image)
both_ways("channels_last", nn.Conv2d(16, 32, 3).to(memory_format=torch.channels_last),
          image.to(memory_format=torch.channels_last))
both_ways("half_channels_last", nn.Conv2d(16, 32, 3).half().to(memory_format=torch.channels_last),
          image.half().to(memory_format=torch.channels_last))
both_ways("strided_dilated", nn.Conv2d(16, 24, 5, stride=2, dilation=2, padding=3), image)
both_ways("grouped", nn.Conv2d(16, 32, 3, groups=4), image)
both_ways("depthwise", nn.Conv2d(16, 16, 3, groups=16), image)
both_ways("transposed", nn.ConvTranspose2d(16, 8, 4, stride=2), image)
both_ways("conv1d", nn.Conv1d(16, 32, 7), torch.randn(8, 16, 200))
both_ways("conv3d", nn.Conv3d(4, 8, 3), torch.randn(2, 4, 16, 16, 16))
both_ways("pool", nn.Sequential(nn.MaxPool2d(2), nn.BatchNorm2d(16), nn.AvgPool2d(2)), image)
both_ways("lstm", nn.LSTM(32, 64, num_layers=2, bidirectional=True, batch_first=True), torch.randn(4, 20, 32))
both_ways("gru", nn.GRU(32, 48), torch.randn(12, 4, 32))
both_ways("norms", nn.Sequential(nn.GroupNorm(4, 16), nn.SiLU(), nn.InstanceNorm2d(16, affine=True)), image)
torch.backends.cudnn.benchmark = True
torch.backends.cudnn.deterministic = False
benchmarked = nn.Conv2d(16, 32, 3).cuda()(image.cuda())  # which algorithm wins is a matter of time
result.check(bool(torch.isfinite(benchmarked).all()), "benchmark mode")
result.done()
