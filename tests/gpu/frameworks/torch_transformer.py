"""Train a transformer encoder layer and attention of each kind, fp32 and bf16."""
import result

torch = result.torch_ready(deterministic=True)
from torch import nn  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402

layer = nn.TransformerEncoderLayer(256, 8, 1024, dropout=0.1, batch_first=True).cuda()
head = nn.Linear(256, 32).cuda()
optimizer = torch.optim.AdamW([*layer.parameters(), *head.parameters()], lr=1e-3)
tokens = torch.randn(8, 128, 256).cuda()
labels = torch.randint(0, 32, (8, 128)).cuda()
for step in range(10):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(head(layer(tokens)).flatten(0, 1), labels.flatten())
    loss.backward()
    nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
    optimizer.step()
    result.number(f"loss_{step + 1}", loss.item())
result.tensor("in_proj_weight", layer.self_attn.in_proj_weight)
layer.eval()
with torch.inference_mode():  # the fused path
    result.tensor("fast_path", layer(tokens))

q, k, v = (torch.randn(2, 8, 256, 64).cuda().to(torch.bfloat16).requires_grad_() for _ in range(3))
for backend in (SDPBackend.MATH, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.FLASH_ATTENTION,
                SDPBackend.CUDNN_ATTENTION):
    try:
        with sdpa_kernel(backend):
            out = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            gradient, = torch.autograd.grad(out.float().square().mean(), q)
    except RuntimeError as error:
        if "No available kernel" not in str(error):
            raise
        result.same(f"attention_{backend.name}", "not available")
        continue
    result.tensor(f"attention_{backend.name}", out)
    result.tensor(f"attention_{backend.name}_gradient", gradient)
result.done()
