"""nn.Module's corners."""

from __future__ import annotations

import torch
from torch import nn
from torch_cases import case

X = torch.randn(2, 4)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.register_buffer("steps", torch.zeros(()))
        self.register_buffer("nothing", None)
        self.scale = nn.Parameter(torch.ones(4))
        self.count = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x) * self.scale


@case(Block(), X)
def call(m, x):
    return m(x)


@case(Block(), X)
def counts(m, x):
    m.count += 1
    m.steps += 1
    return m(x), m.count


@case(Block(), X)
def replaces_a_buffer(m, x):
    m.steps = m.steps + x.sum()
    return m.steps * 2


@case(Block(), X)
def registers_a_buffer(m, x):
    m.register_buffer("mean", x.mean(0), persistent=False)
    return m.mean + 1


@case(Block(), X)
def optional_buffer(m, x):
    return x if m.nothing is None else x + m.nothing


@case(Block(), X)
def makes_a_module(m, x):
    return nn.ReLU()(m(x)) + nn.Identity()(x) + nn.Dropout(0.0)(x)


@case(Block(), X)
def adds_a_module(m, x):
    m.act = nn.Tanh()
    m.add_module("other", nn.Sigmoid())
    return m.act(x) + m.other(x)


@case(Block(), X)
def toggles_training(m, x):
    m.eval()
    y = nn.functional.dropout(x, 0.5, m.training)
    m.train()
    return y, m.training


@case(nn.Sequential(Block(), nn.ReLU(), nn.Linear(4, 2)), X)
def sequential(m, x):
    for layer in m:
        x = layer(x)
    return x, len(m), m[0](m[1](torch.ones(2, 4))), m[-1].out_features


@case(nn.ModuleList([nn.Linear(4, 4) for _ in range(3)]), X)
def module_list(m, x):
    for i, layer in enumerate(m):
        x = layer(x) + i
    return x + sum(layer.weight.sum() for layer in m[1:])


@case(nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.ReLU()}), X)
def module_dict(m, x):
    for name, layer in m.items():
        x = layer(x) if name in m else x
    return x, list(m.keys()), "c" in m, len(m), m["a"](x)


@case(nn.ParameterList([nn.Parameter(torch.randn(4)) for _ in range(3)]), X)
def parameter_list(m, x):
    for p in m:
        x = x * p
    return x + m[0] + m[-1] + len(m)


@case(nn.ParameterDict({"w": nn.Parameter(torch.randn(4))}), X)
def parameter_dict(m, x):
    return x * m["w"], "w" in m, list(m.keys())


@case(Block(), X)
def named(m, x):
    names = [name for name, _ in m.named_parameters()]
    total = sum(p.sum() for p in m.parameters())
    kinds = [type(child).__name__ for child in m.children()]
    return names, total + x, kinds, [n for n, _ in m.named_modules()], [n for n, _ in m.named_buffers()]


@case(Block(), X)
def parameter_kinds(m, x):
    assert isinstance(m.scale, nn.Parameter) and not isinstance(x, nn.Parameter)
    return x + next(m.parameters()).to(x.dtype)[0]


@case(Block(), X)
def reads_state(m, x):
    device, dtype = m.fc.weight.device, m.fc.weight.dtype
    return x.to(device=device, dtype=dtype) + torch.ones(4, device=device), repr(m.fc.in_features)


@case(Block(), X)
def apply_and_requires_grad(m, x):
    for p in m.parameters():
        if p.requires_grad:
            x = x + p.sum()
    return x


@case(nn.LSTM(4, 3, 2, batch_first=True, bidirectional=True), torch.randn(2, 5, 4))
def lstm(m, x):
    out, (h, c) = m(x)
    return out, h, c


@case(nn.GRU(4, 3), torch.randn(2, 5, 4))
def gru(m, x):
    return m(x)


@case(nn.RNN(4, 3), torch.randn(5, 4))
def rnn(m, x):
    return m(x)


@case(nn.LSTMCell(4, 3), X)
def lstm_cell(m, x):
    h, c = m(x)
    return m(x, (h, c))


@case(nn.MultiheadAttention(4, 2, batch_first=True), torch.randn(2, 5, 4))
def multihead(m, x):
    return m(x, x, x, need_weights=False)[0], m(x, x, x)[1]


@case(
    nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, dropout=0.0), 2), torch.randn(2, 5, 4)
)
def transformer_encoder(m, x):
    return m(x)


@case(nn.BatchNorm1d(4), X)
def batch_norm(m, x):
    return m(x)


@case(nn.Embedding(10, 4, padding_idx=0), torch.tensor([[1, 0, 3]]))
def embedding(m, ids):
    return m(ids), m.num_embeddings


class Hooked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.seen: list[object] = []
        self.fc.register_forward_hook(double)
        self.fc.register_forward_pre_hook(shift)
        self.fc.register_forward_hook(with_kwargs, with_kwargs=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x)


def double(module, args, output):
    return output * 2


def shift(module, args):
    return (args[0] + 1,)


def with_kwargs(module, args, kwargs, output):
    return output + args[0]


@case(Hooked(), X)
def hooks(m, x):
    return m(x)


class WithState(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Block()
        self.cache: dict[str, torch.Tensor] = {}

    @property
    def doubled(self) -> torch.Tensor:
        return self.inner.scale * 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.cache["last"] = x
        self.last = x + 1
        return self.inner(x) * self.doubled


@case(WithState(), X)
def state(m, x):
    return m(x), m.last


@case(WithState(), X)
def get_sub(m, x):
    return m.get_submodule("inner.fc")(x) + m.get_parameter("inner.scale") + m.get_buffer("inner.steps")


@case(WithState(), X)
def has_attributes(m, x):
    return hasattr(m, "inner"), hasattr(m, "outer"), getattr(m, "outer", None) is None, x + 1


@case(Block(), X)
def forward_of_another(m, x):
    return Block.forward(m, x), nn.Module.__call__(m, x), m.forward(x), m.__call__(x)


@case(Block(), X)
def deletes(m, x):
    m.extra = 3
    del m.extra
    del m.nothing
    return x + 1


@case(nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), X)
def weight_norm(m, x):
    return m(x)


@case(nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)).eval(), X)
def spectral_norm(m, x):
    return m(x)


@case(nn.Linear(4, 4), X)
def fused(m, x):
    state = m.state_dict()
    return torch.func.functional_call(m, {"weight": state["weight"] * 2, "bias": state["bias"]}, (x,))


@case(nn.Transformer(4, 2, 1, 1, 8, dropout=0.0, batch_first=True), torch.randn(2, 3, 4))
def transformer(m, x):
    return m(x, x, tgt_mask=nn.Transformer.generate_square_subsequent_mask(3), tgt_is_causal=True)
