"""torch's Python around the operators: contexts, custom functions, jit, checkpoint, distributions."""

from __future__ import annotations

import contextlib

import torch
import torch.nn.functional as F
from torch import nn
from torch._higher_order_ops.wrap import wrap, wrap_with_autocast, wrap_with_set_grad_enabled
from torch.utils.checkpoint import checkpoint
from torch_cases import case

X = torch.randn(2, 4)


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, n):
        ctx.save_for_backward(x)
        ctx.n = n
        return x**n

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * ctx.n * x, None


@case(X)
def custom_function(x):
    return Square.apply(x, 2) + 1


@case(X.clone().requires_grad_(), grad=False)
def custom_function_no_grad(x):
    return Square.apply(x, 2) + 1


@case(X.clone().requires_grad_())
def custom_function_grad(x):
    return Square.apply(x, 2) + 1


class Reading(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * FACTOR


FACTOR = torch.tensor(2.0)


@case(X.clone().requires_grad_(), breaks="autograd function")
def custom_function_that_reads(x):
    return Reading.apply(x) + 1


class Split(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x + 1, x - 1

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)


@case(X)
def custom_function_setup(x):
    return Split.apply(x)


@case(X)
def no_grad(x):
    with torch.no_grad():
        y = x * 2
    with torch.enable_grad():
        z = x * 3
    with torch.set_grad_enabled(False):
        z = z + y
    with torch.inference_mode(False):
        z = z + 1
    return z, torch.is_grad_enabled()


@torch.no_grad()
def quietly(x):
    return x + 1, torch.is_grad_enabled()


@case(X)
def no_grad_decorator(x):
    return quietly(x)


@case(X)
def sets_grad(x):
    torch.set_grad_enabled(False)
    y = x + torch.is_grad_enabled()
    torch.set_grad_enabled(True)
    return y


@case(X)
def autocast(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x.T
        assert torch.is_autocast_enabled("cpu")
    with torch.amp.autocast("cpu", enabled=False):
        z = x @ x.T
    return y, z, torch.is_autocast_enabled()


@torch.autocast("cpu", dtype=torch.bfloat16)
def lowly(x):
    return x @ x.T


@case(X)
def autocast_decorator(x):
    return lowly(x), torch.get_autocast_dtype("cpu")


@case(X)
def contexts(x):
    with torch.autograd.profiler.record_function("name"), contextlib.nullcontext():
        x = x + 1
    with torch.profiler.record_function("other"):
        return x + 1


@case(X.view(1, 2, 4))
def kernel(x):
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        return F.scaled_dot_product_attention(x, x, x)


@torch.jit.script
def scripted(x):
    return x * 2 + 1


@torch.jit.script_if_tracing
def if_tracing(x):
    return x * 3


@torch.jit.ignore
def ignored(x):
    return x + 5


@torch.jit.unused
def unused(x):
    return x + 6


@case(X)
def jit(x):
    if torch.jit.is_scripting() or torch.jit.is_tracing() or torch._C._get_tracing_state():
        return x
    return scripted(x) + if_tracing(x) + ignored(x) + unused(x)


@torch.compile(backend="eager")
def compiled(x):
    return x.sin()


@case(X)
def inside_compiled(x):
    return compiled(x) + 1


@torch.compiler.disable
def disabled(x):
    return x.cos()


@case(X, breaks="disabled function")
def inside_disabled(x):
    return disabled(x) + 1


@case(nn.Linear(4, 4), X, grad=False)
def checkpointed(m, x):
    return checkpoint(m, x, use_reentrant=False) + checkpoint(lambda y: y * 2, x, use_reentrant=True)


@case(X)
def predicates(x):
    flags = (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.jit.is_scripting(),
        torch.onnx.is_in_onnx_export(),
        torch.overrides.has_torch_function((x,)),
        torch.cuda.is_available(),
        torch.compiler.is_exporting(),
    )
    return x + sum(flags)


@case(X)
def has_overrides_under_a_device(x):
    with torch.device("cpu"):
        found = torch.overrides.has_torch_function((x,)), torch.overrides.has_torch_function_unary(x)
        return x.unflatten(0, (1, -1)), found


@case(X)
def flags(x):
    if torch.backends.cuda.matmul.allow_tf32 or not torch.backends.mkldnn.enabled:
        return x
    return x + 1


@case(X)
def flag_of_a_module(x):
    return x + 1 if torch.backends.cudnn.allow_tf32 else x - 1


@case(X)
def backends(x):
    with torch.backends.cudnn.flags(enabled=False):
        return x + torch.backends.cudnn.enabled


@case(X, breaks="builtin with effects")
def default_dtype(x):
    torch.set_default_dtype(torch.float64)
    return x + 1


@case(X)
def distribution(x):
    d = torch.distributions.Normal(x, torch.ones_like(x), validate_args=False)
    return d.log_prob(x), d.rsample(), d.mean, d.entropy(), d.batch_shape


@case(X)
def categorical(x):
    d = torch.distributions.Categorical(logits=x, validate_args=False)
    return d.sample(), d.entropy(), d.probs


@case(X)
def independent(x):
    base = torch.distributions.Normal(x, x.exp(), validate_args=False)
    d = torch.distributions.Independent(base, 1, validate_args=False)
    e = d.expand((3, 2))
    return d.log_prob(x), e.batch_shape, torch.distributions.kl_divergence(base, base)


@case(X)
def validated(x):
    return torch.distributions.Normal(x, x.abs() + 1, validate_args=True).log_prob(x)


@case(X, nn.CrossEntropyLoss(), torch.tensor([1, 2]))
def losses(x, loss, y):
    return (
        loss(x, y),
        F.mse_loss(x, x * 2),
        F.cross_entropy(x, y, reduction="none"),
        F.binary_cross_entropy_with_logits(x, x),
    )


@case(X)
def activation_by_name(x):
    return F.gelu(x), torch.tanh(x), {"relu": F.relu}["relu"](x), F.gelu(x, approximate="tanh")


@case(X)
def imports(x):
    import colorsys as rarely_imported
    import json.tool

    try:
        import no_such_module.part  # type: ignore[import-not-found]
    except ImportError as error:
        return x + rarely_imported.ONE_THIRD, error.name, json.tool.__name__
    return x, no_such_module


@case(X)
def pytree(x):
    flat, spec = torch.utils._pytree.tree_flatten({"a": x, "b": [x, 1]})
    return torch.utils._pytree.tree_unflatten([f * 2 for f in flat], spec)


@case(X)
def tree_mapped(x):
    return torch.utils._pytree.tree_map(lambda t: t + 1, (x, {"k": x}))


@case(X)
def device_context(x):
    with torch.device("meta"):
        y = torch.ones(4)
        with torch.device("cpu"):
            z = torch.zeros(4) + x + torch.arange(4)
        w = torch.full((2,), 3.0), torch.ones(2, device="cpu")
    return z, y.device, w[0].device, w[1], torch.ones(2).device


@case(X)
def vmapped(x):
    return torch.vmap(lambda row: row.sum() * row + x[0])(x)


@case(X, X.clone())
def vmapped_dims(x, y):
    paired = torch.vmap(torch.add, in_dims=(0, 1), out_dims=1)(x, y.T)
    nested = torch.vmap(torch.vmap(lambda a, b: a * b, in_dims=(0, None)), in_dims=(None, 0))(x[0], x)
    return paired, nested, torch.vmap(lambda row: {"a": row, "b": (row.max(), row * 2)})(x)["a"]


@case(X)
def func_grad(x):
    return torch.func.grad(lambda y: (y * y).sum())(x), torch.func.grad_and_value(lambda y, z: (y * z).sum(), (0, 1))(
        x, x + 1
    )


@case(X)
def per_sample_grad(x):
    return torch.vmap(torch.func.grad(lambda w, row: (w * row).sin().sum()), in_dims=(None, 0))(x[0], x)


@case(nn.Linear(4, 4), X)
def functional_vmap(m, x):
    params = dict(m.named_parameters())

    def loss(params, row):
        return torch.func.functional_call(m, params, (row,)).sum()

    return torch.vmap(torch.func.grad(loss), in_dims=(None, 0))(params, x)


@case(X)
def vjp(x):
    out, pull = torch.func.vjp(lambda y: y.sin() * 2, x)
    return out, pull(torch.ones_like(out))


@case(X[0])
def jacobians(x):
    return torch.func.jacrev(lambda y: y**2)(x)


class Tagged(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})


TAGGED = X.as_subclass(Tagged)


@case(X)
def subclass(x):
    return x + TAGGED


@case(nn.Linear(4, 4), X)
def optimizer_like(m, x):
    with torch.no_grad():
        for p in m.parameters():
            p.mul_(0.9).add_(p, alpha=0.1)
            p.copy_(p + 1)
    return m(x)


@case(X)
def broadcast(x):
    a, b = torch.broadcast_tensors(x, x[0])
    return a + b, torch.broadcast_shapes((1, 2), (3, 1)), torch.atleast_2d(x[0]), torch.cartesian_prod(x[0], x[1])


@case(X)
def initialised(x):
    w = torch.empty(4, 4)
    nn.init.xavier_uniform_(w)
    nn.init.zeros_(w)
    return x @ w


@case(X)
def clipped(x):
    return torch.nn.utils.rnn.pad_sequence([x, x[:1]], batch_first=True)


@case(X)
def sparse_and_fft(x):
    return torch.fft.fft2(x), torch.special.expit(x), torch.stft(x, 4, 2, window=torch.ones(4), return_complex=True)


class Recomputed(nn.Module):
    """Checkpoints with all kinds of bodies."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 4), nn.ReLU(inplace=True))
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        y = checkpoint(self.layers, x, use_reentrant=False)
        halves = checkpoint(lambda u, scale: (u.tanh() * scale).split(2, -1), y, scale=3, use_reentrant=False)
        inner = checkpoint(lambda u: checkpoint(self.layers, u, use_reentrant=False) + u, y, use_reentrant=False)
        with torch.no_grad():
            quiet = checkpoint(self.layers, x, use_reentrant=False)
        return halves[0].sum() + checkpoint(lambda u: self.drop(u) + y, inner, use_reentrant=False), quiet


@case(Recomputed(), X.clone().requires_grad_())
def checkpoints_with_grad(m, x):
    return m(x)


@case(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), X, breaks="activation checkpoint")
def checkpoint_that_counts(m, x):
    return checkpoint(m, x, use_reentrant=False)


@case(nn.Linear(4, 4), X, breaks="activation checkpoint")
def checkpoint_that_notes(m, x):
    def body(x):
        m.calls = 1
        return m(x)

    return checkpoint(body, x, use_reentrant=False)


@case(nn.Linear(4, 4), X, breaks="activation checkpoint")
def checkpoint_of_the_old_kind(m, x):
    return checkpoint(m, x, use_reentrant=True)


LAYERS = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))


@case(X.clone().requires_grad_())
def checkpointed_in_parts(x):
    return torch.utils.checkpoint.checkpoint_sequential(LAYERS, 2, x, use_reentrant=False)


HANN, NARROW = torch.hann_window(32), torch.hann_window(20).requires_grad_()
WAVES = torch.randn(2, 200)


def spectrum(x, **options):
    return torch.stft(x, 32, 8, window=HANN, return_complex=True, **options)


@case(WAVES.clone().requires_grad_())
def inverse_spectra(x):
    return torch.istft(spectrum(x), 32, 8, window=HANN), spectrum(x[0]).istft(32, 8, 20, NARROW, length=150)


@case(WAVES)
def inverse_spectra_otherwise(x):
    both = spectrum(x, onesided=False)
    real = (
        torch.istft(both, 32, 8, window=HANN),
        torch.istft(spectrum(x, normalized=True), 32, 8, None, HANN, True, True),
    )
    return *real, torch.istft(both.conj(), 32, 8, window=HANN, return_complex=True)


@case(WAVES, breaks="unknown call")
def inverse_spectrum_that_warns(x):
    return torch.istft(spectrum(x), 32, 8)


@case(X.clone().requires_grad_())
def operators_that_only_call(x):
    """What they do to the program is done, and they may be in one another."""
    seen = []

    def inner(y, *, scale):
        seen.append(scale)
        return {"scaled": y * scale, "nested": wrap(lambda: y + len(seen))}

    without = wrap_with_set_grad_enabled(False, lambda y: y * 2, x)
    return wrap(inner, x, scale=3), seen, wrap(LAYERS, x), without, torch.is_grad_enabled()


@case(X)
def operator_that_casts(x):
    return wrap_with_autocast("cpu", torch.bfloat16, True, None, lambda a, b: a @ b.T, x, x)
