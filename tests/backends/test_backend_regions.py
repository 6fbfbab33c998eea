"""Backend `inductor` with regions: equal results and gradients, compiled once, and whole where that is not possible."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import _inductor, nn
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import torchdynamo
from torchdynamo.backends.region_bodies import bodies_have_one_schema
from torchdynamo.backends.regions import outcome_of
from torchdynamo.errors import UnknownSetting
from torchdynamo.graph import torch_compat
from torchdynamo.report.explain import CompileEvent, collecting

F = nn.functional


@pytest.fixture(autouse=True)
def regions_wanted() -> Iterator[None]:
    with torchdynamo.config.patch(regions=True, suppress_errors=False):
        yield


class Block(nn.Module):
    """Attention and a feed-forward layer, with the norms before them or after them."""

    def __init__(self, size: int = 16, *, post: bool = False) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(size) for _ in range(2))
        self.qkv = nn.ModuleList(nn.Linear(size, size) for _ in range(3))
        self.out = nn.Linear(size, size)
        self.up, self.down = nn.Linear(size, 2 * size), nn.Linear(2 * size, size)
        self.post = post

    def attend(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (each(x).unflatten(-1, (2, -1)).transpose(1, 2) for each in self.qkv)
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))

    def feed(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.gelu(self.up(x)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for step, norm in zip((self.attend, self.feed), self.norms, strict=True):
            x = norm(x + step(x)) if self.post else x + step(norm(x))
        return x


class Small(nn.Module):
    """A block of ten operators, or eleven with a dropout: two kernels beside the products."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.a, self.b, self.dropout = nn.Linear(16, 16), nn.Linear(16, 16), dropout

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = F.linear(F.gelu(self.a(x), approximate="tanh") * 2, self.b.weight, self.b.bias)
        if self.dropout:
            h = F.dropout(h, self.dropout, self.training)
        return x + F.linear(torch.sin(h) * torch.cos(x), self.a.weight.t())


def small(count: int = 4, dropout: float = 0.0) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(Small(dropout) for _ in range(count)))


def model(count: int = 4, **settings: Any) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(Block(**settings) for _ in range(count)), nn.LayerNorm(16))


def outcome(fn: Callable[..., Any], *args: Any, **settings: Any) -> str:
    """What became of the regions of the one graph of a call, which is compared with eager's."""
    explanation = torchdynamo.explain(fn, backend="inductor", fullgraph=True, **settings)(*args)
    torch.testing.assert_close(explanation.result, fn(*args), rtol=1e-4, atol=1e-5)
    (gm,) = explanation.graphs
    return str(outcome_of(gm))


def trained(fn: Callable[..., Any], parameters: list[nn.Parameter], *args: torch.Tensor) -> list[torch.Tensor | None]:
    """A result, and the gradients of the inputs and parameters."""
    given = [each.detach().clone().requires_grad_(each.requires_grad) for each in args]
    for each in parameters:
        each.grad = None
    result = fn(*given)
    result.square().mean().backward()
    return [result.detach(), *(each.grad for each in (*given, *parameters))]


def check_training(net: nn.Module, *args: torch.Tensor) -> None:
    compiled = torchdynamo.compile(net, backend="inductor", fullgraph=True)
    parameters = list(net.parameters())
    with collecting() as events:
        for _ in range(2):
            want, got = trained(net, parameters, *args), trained(compiled, parameters, *args)
            for one, other in zip(want, got, strict=True):
                assert (one is None) == (other is None)
                torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    assert (" blocks of " in outcome_of_one(events)) == torch_compat.BODIES_HAVE_BACKWARDS


def outcome_of_one(events: list[CompileEvent]) -> str:
    """What became of the regions of the one graph that was compiled."""
    (gm,) = [event.graph for event in events if event.graph is not None]
    return str(outcome_of(gm))


@pytest.mark.parametrize("post", [pytest.param(False, marks=pytest.mark.long), True])
@torch.no_grad()
def test_inference_is_equal(post: bool) -> None:
    assert outcome(model(post=post), torch.randn(2, 5, 16)).startswith("4 blocks of ")


@pytest.mark.parametrize(("post", "leaf"), [pytest.param(False, False, marks=pytest.mark.long), (True, True)])
def test_gradients_are_equal(post: bool, leaf: bool) -> None:
    check_training(model(post=post), torch.randn(2, 5, 16, requires_grad=leaf))


@pytest.mark.parametrize("leaf", [pytest.param(False, marks=pytest.mark.long), True])
def test_saved_inputs_of_blocks_keep_their_memory(leaf: bool) -> None:
    """A block without a norm saves what it is given, and the next one may not write there."""
    check_training(small(), torch.randn(4, 16, requires_grad=leaf))


def test_tied_weights_get_the_sum_of_their_gradients() -> None:
    net = small()
    for each in net:
        each.b = net[0].b
    check_training(net, torch.randn(4, 16))


@pytest.mark.long
def test_one_frozen_block() -> None:
    net = small(6)
    for each in net[2].parameters():
        each.requires_grad_(False)
    check_training(net, torch.randn(4, 16))


@pytest.mark.long
def test_mixed_dtypes() -> None:
    with torch.no_grad():
        net = small().to(torch.bfloat16)
        x = torch.randn(4, 16, dtype=torch.bfloat16)
        explained = torchdynamo.explain(net, backend="inductor")(x)
        assert " blocks of " in str(outcome_of(explained.graphs[0]))
        torch.testing.assert_close(explained.result, net(x), rtol=5e-2, atol=5e-2)


@pytest.mark.parametrize("training", [False, pytest.param(True, marks=pytest.mark.long)])
def test_sizes_may_vary(training: bool) -> None:
    net = small(5)
    compiled = torchdynamo.compile(net, backend="inductor", dynamic=True, fullgraph=True)
    with torch.set_grad_enabled(training), collecting() as events:
        for batch in (5, 7, 4):
            x = torch.randn(batch, 16, requires_grad=training)
            if training:
                want, got = (trained(each, list(net.parameters()), x) for each in (net, compiled))
            else:
                want, got = [net(x)], [compiled(x)]
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    assert (" blocks of " in outcome_of_one(events)) == (torch_compat.BODIES_HAVE_BACKWARDS or not training)


@torch.no_grad()
def test_grad_mode_decides_anew() -> None:
    net, x = small(), torch.randn(4, 16)
    compiled = torchdynamo.compile(net, backend="inductor")
    torch.testing.assert_close(compiled(x), net(x))
    with torch.enable_grad():
        assert compiled(x).requires_grad
    assert not compiled(x).requires_grad


@torch.no_grad()
def test_blocks_are_compiled_once() -> None:
    from torch._inductor import metrics

    inductors: Any = _inductor.config
    kernels = []
    with inductors.patch(force_disable_caches=True):
        for count in (4, 8):
            metrics.reset()
            assert f"{count - 1} blocks of " in outcome(small(count), torch.randn(4, 16))
            kernels.append(metrics.generated_kernel_count)
    assert kernels[0] == kernels[1] > 0


class Masked(nn.Module):
    """Attention of four layers, all with one mask."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 48) for _ in range(4))

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            q, k, v = layer(x).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
            x = x + F.gelu(F.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2).flatten(2)) * 0.5
        return x


@pytest.mark.parametrize("bias", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_mask_of_all_blocks_is_made_to_numbers_once(bias: bool) -> None:
    from torch._inductor.utils import run_and_get_code

    torch.manual_seed(0)
    net, x, mask = Masked(), torch.randn(2, 5, 16), torch.ones(5, 5).tril().bool()
    given = mask.float().requires_grad_() if bias else mask
    check_training(net, x, given)
    compiled = torchdynamo.compile(net, backend="inductor")
    inductors: Any = _inductor.config
    with torch.no_grad(), inductors.patch(force_disable_caches=True):
        result, (code,) = run_and_get_code(compiled, x, mask)
        torch.testing.assert_close(result, net(x, mask), rtol=1e-4, atol=1e-5)
    body, _, main = code.partition("def repeated_subgraph0(")[2].partition("async_compile.wait")
    assert "cpp_fused_scalar_tensor_where_0(" in main and "_where_0(" not in body


@torch.no_grad()
def test_auto_wants_six_blocks() -> None:
    x = torch.randn(4, 16)
    assert outcome(small(5), x, options={"regions": "auto"}).startswith("none: ")
    assert " blocks of " in outcome(small(8), x, options={"regions": "auto"})
    assert outcome(small(8), x, options={"regions": False}) == "None"


def test_random_numbers_are_drawn_in_the_order_of_eager() -> None:
    net = small(dropout=0.5)
    with torch.no_grad():
        explained = torchdynamo.explain(net, backend="inductor")(torch.randn(4, 16))
    assert not any(" blocks of " in str(outcome_of(graph)) for graph in explained.graphs)


@torch.no_grad()
def test_settings_of_inductor_for_whole_graphs() -> None:
    assert "blocks" not in outcome(small(), torch.randn(4, 16), options={"freezing": True})


def test_a_setting_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UnknownSetting, match="regions"):
        torchdynamo.compile(model(), backend="inductor", options={"regions": "sometimes"})
    with pytest.raises(ValueError, match="auto"):
        torchdynamo.config.regions = "sometimes"
    with pytest.raises(TypeError):
        torchdynamo.config.regions = 3  # type: ignore[assignment]


@pytest.mark.parametrize("training", [False, True])
def test_bodies_without_backwards_are_for_graphs_without_gradients(
    training: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_compat, "BODIES_HAVE_BACKWARDS", False)
    with torch.set_grad_enabled(training):
        found = outcome(small(), torch.randn(4, 16))
    assert found.startswith("none: this version of torch" if training else "3 blocks of ")


@torch.no_grad()
def test_the_graph_that_is_kept_stays_whole() -> None:
    explained = torchdynamo.explain(small(), backend="inductor")(torch.randn(4, 16))
    (gm,) = explained.graphs
    assert "blocks of 10 operators" in str(explained)
    assert not gm.graph.find_nodes(op="get_attr")
    assert sum(node.target is torch.sin for node in gm.graph.nodes) == 4


@torch.no_grad()
def test_graphs_on_whose_blocks_inductor_fails_are_compiled_whole(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from torch._inductor.graph import SubgraphLowering

    def fail(self: Any, **settings: Any) -> None:
        raise RuntimeError("no bodies today")

    monkeypatch.setattr(SubgraphLowering, "init_wrapper_code", fail)
    inductors: Any = _inductor.config
    with inductors.patch(force_disable_caches=True):
        assert outcome(small(), torch.randn(4, 16)).startswith("none: Inductor fails on its blocks: ")
    assert "a graph is compiled without regions: " in caplog.text


def test_an_error_in_a_block_names_its_own_line() -> None:
    """Eager runs the whole graph where a compiled one has failed, and its error is the program's."""

    class Looks(nn.Module):
        def __init__(self, rows: int) -> None:
            super().__init__()
            self.table, self.out = nn.Parameter(torch.randn(rows, 16)), nn.Linear(16, 16)

        def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
            h = self.out(F.gelu(x + F.embedding(at, self.table)))
            return x + self.out(torch.sin(torch.relu(h) * 2) - torch.tanh(h))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(Looks(9) for _ in range(4))

        def forward(self, x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
            x = self.blocks[0](x, places[0])
            x = self.blocks[1](x, places[1])
            x = self.blocks[2](x, places[2])
            return self.blocks[3](x, places[3])

    net = Net()
    x, places = torch.randn(5, 16), torch.zeros(4, 5, dtype=torch.int64)
    compiled = torchdynamo.compile(net, backend="inductor", fullgraph=True)
    with torch.no_grad():
        assert " blocks of 10 operators" in outcome(net, x, places)
        torch.testing.assert_close(compiled(x, places), net(x, places))
        places[2, 3] = 99
        lines = []
        for each in (net, compiled):
            with pytest.raises(IndexError) as raised:
                each(x, places)
            here = [entry for entry in raised.traceback if str(entry.path) == __file__]
            lines.append([(entry.name, entry.lineno) for entry in here])
    assert lines[0] == lines[1]
    assert len(lines[0]) == 3


@torch.no_grad()
def test_bodies_are_asked_once_what_they_write_to() -> None:
    from torch._higher_order_ops.invoke_subgraph import InvokeSubgraphHOP, invoke_subgraph

    def doubled(x: torch.Tensor) -> tuple[torch.Tensor]:
        return (x * 2,)

    outside = InvokeSubgraphHOP.gen_schema
    with bodies_have_one_schema(), FakeTensorMode():
        body = make_fx(doubled)(torch.ones(2))
        first = invoke_subgraph.gen_schema(body, "region", torch.ones(2))
        assert invoke_subgraph.gen_schema(body, "region", torch.zeros(2)) is first
        assert invoke_subgraph.gen_schema(body, "other", torch.zeros(2)) is not first
    assert InvokeSubgraphHOP.gen_schema is outside
