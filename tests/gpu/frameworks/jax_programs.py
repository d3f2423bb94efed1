"""JAX: jit, grad, vmap, scan, pmap, random, float64, a convolutional training loop."""
import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ.setdefault("XLA_FLAGS", "--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0")
os.environ.setdefault("JAX_PLATFORMS", "cuda")
import numpy  # noqa: E402

import result  # noqa: E402
import jax  # noqa: E402

jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp  # noqa: E402

device = jax.devices()[0]
result.check(device.platform in ("gpu", "cuda"), f"the device is a GPU: {device.platform}")
result.same("kind", device.device_kind)
result.same("devices", len(jax.devices()))
rng = numpy.random.default_rng(11)


def show(name, value):
    result.array(name, numpy.asarray(value))


x = jnp.asarray(rng.standard_normal((256, 256)), dtype=jnp.float32)
show("jit", jax.jit(lambda v: jnp.tanh(v @ v.T).sum(0))(x))
show("grad", jax.grad(lambda v: (jnp.sin(v) ** 2).mean())(x))
show("vmap", jax.vmap(lambda row, v: v @ row, in_axes=(0, None))(x, x))
show("float64", jax.jit(lambda v: jnp.linalg.inv(v @ v.T + 256 * jnp.eye(256)))(x.astype(jnp.float64)))
show("scan", jax.lax.scan(lambda carry, v: (carry * 0.9 + v, carry.sum()), jnp.zeros(256, jnp.float32), x)[1])
count = jax.local_device_count()
show("pmap", jax.pmap(lambda v: jax.lax.psum(v * 2, "all"), axis_name="all")(jnp.ones((count, 1000), jnp.float32))[0])
key = jax.random.PRNGKey(5)
show("normal", jax.random.normal(key, (5000,)))
show("permutation", jax.random.permutation(key, 5000))
show("fft", jnp.abs(jnp.fft.fft(x[0])))
show("eigh", jnp.linalg.eigh(x @ x.T)[0])
show("sort", jnp.sort(x, axis=1))
show("cond", jax.jit(lambda v: jax.lax.while_loop(lambda s: s[0] < 20, lambda s: (s[0] + 1, s[1] * 1.01), (0, v))[1])(x))


def forward(weights, images):
    hidden = jax.lax.conv_general_dilated(images, weights["kernel"], (1, 1), "SAME",
                                          dimension_numbers=("NHWC", "HWIO", "NHWC"))
    hidden = jax.nn.relu(hidden).mean((1, 2))
    return hidden @ weights["dense"] + weights["bias"]


def loss(weights, images, labels):
    return -jnp.take_along_axis(jax.nn.log_softmax(forward(weights, images)), labels[:, None], 1).mean()


@jax.jit
def step(weights, images, labels):
    value, gradient = jax.value_and_grad(loss)(weights, images, labels)
    return value, jax.tree_util.tree_map(lambda w, g: w - 0.5 * g, weights, gradient)


weights = {"kernel": jnp.asarray(rng.standard_normal((3, 3, 3, 16)) * 0.2, dtype=jnp.float32),
           "dense": jnp.asarray(rng.standard_normal((16, 10)) * 0.2, dtype=jnp.float32),
           "bias": jnp.zeros(10, jnp.float32)}
images = jnp.asarray(rng.standard_normal((32, 16, 16, 3)), dtype=jnp.float32)
labels = jnp.asarray(rng.integers(0, 10, 32))
for turn in range(50):
    value, weights = step(weights, images, labels)
    if turn % 10 == 9:
        result.number(f"loss_{turn + 1}", value)
for name in sorted(weights):
    show(name, weights[name])
bf16 = (x.astype(jnp.bfloat16) @ x.astype(jnp.bfloat16)).astype(jnp.float32)
show("bf16_matmul", bf16)
result.done()
