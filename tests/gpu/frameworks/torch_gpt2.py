"""GPT-2 of random weights generates in fp16: greedy, sampled, and with a static cache."""
import os

os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
import result  # noqa: E402

torch = result.torch_ready()
from transformers import GPT2Config, GPT2LMHeadModel  # noqa: E402

model = GPT2LMHeadModel(GPT2Config()).cuda().half().eval()
ids = torch.randint(0, 1000, (1, 16)).cuda()
mask = torch.ones_like(ids)
with torch.no_grad():
    logits = model(ids, attention_mask=mask).logits
    result.tensor("logits", logits)
    greedy = model.generate(ids, attention_mask=mask, max_new_tokens=48, do_sample=False, pad_token_id=0)
    result.tensor("greedy", greedy)
    torch.manual_seed(7)
    sampled = model.generate(ids, attention_mask=mask, max_new_tokens=32, do_sample=True, top_k=50,
                             pad_token_id=0)
    result.tensor("sampled", sampled)
    batch = ids.repeat(4, 1)
    result.tensor("batch_of_4", model(batch).logits[:, -1])
result.done()
