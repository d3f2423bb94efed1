"""What the framework programs print, so that two runs can be compared.

A result is one line, `= NAME TOKEN ...`. Tokens are compared as text, but hexadecimal floats and sha256
digests may differ where two native runs differ too (compare.py says how). Everything else that a program
prints is ignored. A program ends with the line `ok`; one that cannot run here ends with
`skipped: WHY` and exit status 77.
"""
import faulthandler
import hashlib
import os
import sys

SAMPLES = 8
if "SUITE_STACKS_AFTER_S" in os.environ:  # the runner ends a program soon after that
    faulthandler.dump_traceback_later(float(os.environ["SUITE_STACKS_AFTER_S"]))


def line(name, *tokens):
    print("=", name, *tokens, flush=True)


def same(name, value):
    """Something that must be equal everywhere."""
    line(name, *str(value).split())


def number(name, value):
    line(name, float(value).hex())


def numbers(name, values):
    line(name, *(float(v).hex() for v in values))


def array(name, values):
    """A numpy array: its shape, its digest, a sum and a few elements."""
    import numpy
    values = numpy.ascontiguousarray(values)
    digest = hashlib.sha256(values.tobytes()).hexdigest()[:32]
    shape = "x".join(map(str, values.shape)) or "scalar"
    if values.dtype.kind == "c":
        values = values.view(values.real.dtype)
    flat = values.reshape(-1).astype("float64")
    picks = sorted({i * (flat.size - 1) // (SAMPLES - 1) for i in range(SAMPLES)}) if flat.size else []
    line(name, values.dtype, shape, f"sha256:{digest}", float(numpy.abs(flat).mean() if flat.size else 0).hex(),
         *(float(flat[i]).hex() for i in picks))


def tensor(name, value):
    """A PyTorch tensor of any device and type."""
    import torch
    value = value.detach().cpu().contiguous()
    if value.dtype == torch.bfloat16:
        value = value.float()  # numpy has no bfloat16; this widening is exact
    array(name, value.numpy())


def check(condition, what):
    if not condition:
        print(f"check failed: {what}", flush=True)
        sys.exit(1)


def skip(why):
    print(f"skipped: {why}", flush=True)
    sys.exit(77)


def done():
    print("ok", flush=True)


def torch_ready(seed=1234, deterministic=False):
    """Import torch with a seed, and give it."""
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    import torch
    if not torch.cuda.is_available():
        print("torch.cuda.is_available() is False", file=sys.stderr)
        sys.exit(1)
    torch.manual_seed(seed)
    torch.set_num_threads(2)
    torch.backends.cudnn.benchmark = False
    if deterministic:
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.cudnn.deterministic = True
    return torch
