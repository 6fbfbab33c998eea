"""Tensors: metadata, indexing, writing, results with several parts, dtypes and devices."""

from __future__ import annotations

import copy
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch_cases import case

X = torch.randn(2, 4)
ORDER = torch.tensor([1, 0])
B = torch.randn(2, 3, 4)


@case(X)
def metadata(x):
    return x.shape, x.size(0), x.size(), x.dim(), x.ndim, x.numel(), x.dtype, x.device, x.is_contiguous(), x.stride()


@case(X)
def size_methods(x):
    size = x.shape
    return size.numel(), size[-1], size[:1], list(size), (*size, 1), size + (3,), tuple(size), len(size), size.count(4)


@case(X)
def size_made(x):
    size = torch.Size([2, x.shape[1]])
    return x.view(size), size == x.shape, x.reshape(torch.Size((8,))), x.new_zeros(x.shape[:-1] + (3,))


@case(X)
def devices(x):
    return (
        x.device.type,
        x.device == torch.device("cpu"),
        x.to("cpu"),
        x.cpu(),
        x.is_cuda,
        x.device.index,
        str(x.device),
    )


@case(X)
def dtypes(x):
    return (
        x.dtype.is_floating_point,
        x.to(torch.float64),
        x.double().dtype,
        x.type(torch.int32),
        x.half(),
        x.dtype.itemsize,
    )


@case(X)
def type_names(x):
    return x.type(), x.type("torch.DoubleTensor"), x.long().type()


@case(X, ORDER)
def to_other(x, i):
    return i.to(x), i.type_as(x), x.to(dtype=i.dtype), x.to(torch.device("cpu"), torch.float64, True)


@case(X)
def legacy_types(x):
    return isinstance(x, torch.FloatTensor), isinstance(x, torch.LongTensor), isinstance(x, torch.Tensor)


@case(X)
def new_tensors(x):
    return x.new_zeros(2), x.new_ones((3, 1)), x.new_full((2,), 3.5), x.new_tensor([1, 2.0]), x.new_empty(0)


@case(X)
def makes(x):
    return torch.tensor([1.0, 2.0]) + x[0, :2], torch.tensor(3), torch.as_tensor([1, 2]), torch.tensor([[1], [2]]) * x


@case(X)
def makes_typed(x):
    return torch.tensor([1, 2], dtype=x.dtype, device=x.device), torch.full((2,), -math.inf), torch.arange(x.size(1))


@case(X)
def makes_nested(x):
    return torch.tensor([list(x.shape), [5, 6]]), torch.ones(x.shape), torch.zeros(*x.shape), torch.empty(0)


@case(X)
def from_tensors(x):
    return torch.stack([x[0], x[1]]), torch.cat((x, x), dim=-1), torch.cat([x for _ in range(3)]), torch.hstack([x, x])


@case(X)
def data(x):
    return x.data + 1, x.detach().requires_grad, x.requires_grad, x.is_leaf, x.output_nr, x.unbind(0)[1].output_nr


@case(X, ORDER)
def indexing(x, i):
    return x[0], x[..., 1], x[:, None], x[None, ..., 0], x[i], x[[0, 1]], x[:, [0, 2]], x[1:, ::2], x[-1, -1], x[i, i]


@case(X)
def index_with_values(x):
    a, n = slice(1, None), 2
    return x[a], x[:, n:], x[:, : x.shape[1] // 2], x[(0, 1)], x[True], x[..., None].shape


@case(X)
def mask_index(x):
    return x[x > 0]


@case(X)
def mask_write(x):
    y = x.clone()
    y[y > 0] = 0
    y[0, 1:] = 5.0
    y[1] = x[0]
    y[:, [0, 1]] = y[:, [1, 0]]
    return y


@case(X)
def writes_argument(x):
    x[0] = 0
    x.add_(1)
    x += 1
    x.mul_(2).sub_(1)
    return x


@case(X)
def writes_view(x):
    v = x.view(-1)
    v[3:5] = 7
    return v.sum()


@case(X)
def out_argument(x):
    y = torch.empty_like(x)
    torch.add(x, 1, out=y)
    z = torch.empty_like(x)
    result = torch.mul(x, 2, out=z)
    return y, z, result is z


@case(X)
def deletes_and_copies(x):
    y = torch.zeros_like(x)
    y.copy_(x)
    y.fill_(3)
    y.zero_()
    y.masked_fill_(x > 0, -math.inf)
    return y, y.clone().clamp_(min=-1)


@case(X)
def parts(x):
    values, indices = x.max(dim=1)
    s = torch.sort(x, dim=-1)
    t = x.topk(2)
    return values, indices, s.values, s.indices, t[0], t.indices, x.min(0).values, torch.max(x, 1)[1]


@case(X)
def named_result(x):
    return x.max(dim=1), torch.sort(x), x.median(dim=0)


@case(X)
def splits(x):
    a, b = x.split(2, dim=1)
    c, d = x.chunk(2)
    first, *rest = x.unbind(1)
    for row in x:
        first = first + row.sum()
    return a, b, c, d, first, rest, torch.split(x, [1, 3], 1), x.tensor_split(2, -1)


@case(X, breaks="data-dependent branch")
def branch(x):
    if x.sum() > 0:
        return x
    return -x


@case(X)
def item(x):
    return x + x.sum().item()


@case(X)
def number(x):
    return x + float(x[0, 0])


@case(X)
def infos(x):
    return x.masked_fill(x > 0, torch.finfo(x.dtype).min), torch.iinfo(torch.int32).max, torch.finfo(torch.float16).eps


@case(X)
def promotion(x):
    return (
        torch.promote_types(x.dtype, torch.float64),
        torch.result_type(x, 1.0),
        torch.get_default_dtype(),
        torch.can_cast(torch.int, x.dtype),
    )


@case(X)
def predicates(x):
    return (
        torch.is_tensor(x),
        torch.is_floating_point(x),
        x.is_floating_point(),
        torch.is_complex(x),
        x.is_sparse,
        x.layout,
        torch.numel(x),
    )


@case(X)
def overloads(x):
    return torch.ops.aten.add(x, x), torch.ops.aten.mul.Tensor(x, x), torch.ops.aten.relu.default(x)


@case(X)
def numbers(x):
    return (
        2 * x,
        1 / x,
        2**x,
        x // 2,
        x % 2,
        -x,
        +x,
        ~(x > 0),
        (x > 0) & (x < 1),
        x @ x.T,
        abs(x),
        1 - x,
        x**2,
        x.round(),
    )


@case(X)
def comparisons(x):
    return x == x, x != 0, x >= 1, (x > 0) | (x < -1), (x > 0) ^ True, x is x, x is None, x is not None


@case(X)
def attributes(x):
    return x.T, x.mT, x.real, x.data, x.grad, x.is_quantized, x.itemsize, x.nbytes, x.H


@case(X)
def einsum(x):
    return (
        torch.einsum("ij,kj->ik", x, x),
        torch.einsum("ij->i", [x]),
        F.normalize(x, dim=-1),
        torch.tensordot(x, x, dims=([1], [1])),
    )


@case(X)
def functions(x):
    return (
        F.pad(x, (1, 1)),
        F.one_hot(torch.arange(3), 4),
        torch.meshgrid(torch.arange(2), torch.arange(3), indexing="ij"),
    )


@case(B)
def interpolate(b):
    return F.interpolate(b, scale_factor=2.0), F.interpolate(b, size=8, mode="linear"), F.adaptive_avg_pool1d(b, 2)


@case(B)
def attention(b):
    return F.scaled_dot_product_attention(b, b, b), F.scaled_dot_product_attention(b, b, b, is_causal=True, scale=0.3)


@case(X)
def tolist_of_shape(x):
    return torch.tensor(x.shape), list(map(int, x.shape)), [torch.ones(n) for n in x.shape], max(x.shape), sum(x.shape)


ARRAY = np.arange(4.0, dtype=np.float32)


@case(X)
def from_numpy_global(x):
    return x + torch.from_numpy(ARRAY)


@case(X)
def random(x):
    return (
        torch.rand_like(x),
        torch.randn(2),
        torch.randint(0, 5, (3,)),
        F.dropout(x, 0.5, True),
        torch.bernoulli(x.sigmoid()),
    )


@case(X, torch.Generator().manual_seed(3))
def generator(x, g):
    return x + torch.rand(4, generator=g)


@case(X)
def writes_data(x):
    x.data = x + 1
    return x


@case(X)
def requires(x):
    y = x.clone().requires_grad_(False)
    return y, y.requires_grad


@case(X)
def checks(x):
    torch._check(x.shape[0] == 2)
    torch._assert(x.dim() == 2, "rank")
    assert x.ndim == 2, "rank"
    return x + 1


@case(X)
def repeated(x):
    return x.repeat(2, 1), x.expand(2, -1).shape, x.unsqueeze(0).expand(3, *x.shape), x.repeat_interleave(2, dim=0)


@case(X)
def permutes(x):
    return x.permute(1, 0), x.transpose(-1, -2), x.reshape(-1), x.flatten(), x.view(x.size(0), -1), x.view(torch.int32)


@case(X)
def where(x):
    return torch.where(x > 0, x, 0.0), torch.where(x > 0, x, torch.zeros(())), x.clamp(0, 1), torch.maximum(x, x)


@case(X)
def equal(x):
    return torch.equal(x, x)


@case(X)
def complex_numbers(x):
    z = torch.complex(x, x)
    return z.real, z.abs(), torch.view_as_real(z), torch.fft.rfft(x).imag, z.conj(), 1j * x


@case(X)
def linalg(x):
    s = torch.linalg.svd(x, full_matrices=False)[1]
    q = torch.linalg.qr(x)
    return s, q.Q.shape, torch.linalg.norm(x, dim=1), x.norm(2, -1, True), torch.norm(x)


@case(X)
def contains_none(x):
    return (
        x.sum(None) if False else x.sum(dim=(0, 1)),
        x.mean(dim=[-1], keepdim=True),
        x.std(),
        x.var(-1, unbiased=False),
    )


@case(X)
def stored(x):
    x.tag = 3
    return x.tag + x


@case(X)
def new_of_a_size(x):
    return x.new(x.shape).fill_(1), x.new(x.shape[0]).zero_(), x.new([1.0, 2.0]), x.new(2, 3).zero_(), x.new((1, 2))


@case(X)
def shallow_copy(x):
    y, part = copy.copy(x), copy.copy((x * 2)[1:])
    y.add_(1)
    part.mul_(2)
    return y, y is x, part, part.storage_offset()


@case(X)
def size_of_two_together(x):
    return x, torch._C._infer_size(torch.Size([2, 1]), torch.Size([1, 3]))


@case(X)
def called_classes(x):
    made = torch.Tensor([x.shape[0], 2.5]), torch.Tensor([[1, True]]).to(x), torch.LongTensor((0, 1)), torch.Tensor([])
    sized = torch.Tensor(x.size(0), 3).zero_(), torch.BoolTensor(torch.Size([2])).fill_(True), torch.HalfTensor()
    return *made, *sized, torch.ByteTensor(range(3), device="cpu"), torch.DoubleTensor(np.ones(2)) * x[:, 0]


@case(X)
def called_classes_in_contexts(x):
    with torch.device("meta"):
        made = torch.Tensor([1.0]), torch.ones(1)
    return made[0] + x, made[1].device


@case(X)
def types_of_classes(x):
    same = x.type(torch.FloatTensor) is x
    return x.type(torch.LongTensor), x.type(torch.float64), x.type("torch.HalfTensor"), x.type(), same


@case(X, breaks="unknown call")
def class_called_with_a_tensor(x):
    return torch.Tensor(x)


@case(X, torch.tensor([[1, 0, 1, 2]], dtype=torch.uint8))
def masks_of_bytes(x, mask):
    return torch.where(mask, x, 0), x.where(mask, x + 1), torch.where(mask > 1), x.masked_fill(mask.bool(), 0.0)


@case(B)
def splits_by_keyword(x):
    return x.tensor_split(sections=2, dim=1), torch.tensor_split(x, indices=(-1,), dim=-2), x.tensor_split(indices=[1])


@case(X)
def powers_of_negative_numbers(x):
    """Written out without brackets, `-1 ** n` is another number."""
    n = x.long().abs()
    return (-1) ** n, (-0.5) ** n, (-0.0) ** n, (-2) ** -n.float(), 2**n, (-2j) ** n, -(2**n)
