"""Members that are other people's runtimes: results are eager's in value, dtype, strides and memory."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from foreign import BACKENDS, assert_as_eager, build, moving, needs, reason_of, subgraph_of

import torchdynamo
from torchdynamo.backends.ensemble.subgraph import Subgraph


@pytest.fixture(params=["onnxruntime", "openvino", "tvm"])
def member(request: pytest.FixtureRequest) -> str:
    needs(request.param)
    return request.param


class Block(torch.nn.Module):
    """One block of a transformer, with embeddings of tokens and places in front of it."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = torch.nn.Embedding(11, 16)
        self.places = torch.nn.Embedding(8, 16)
        self.norm = torch.nn.LayerNorm(16)
        self.mixing = torch.nn.Linear(16, 48)
        self.hidden = torch.nn.Linear(16, 32)
        self.out = torch.nn.Linear(32, 16)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        parts = self.mixing(self.norm(x)).view(*x.shape[:2], 3, 2, 8).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + mixed.transpose(1, 2).reshape(x.shape)
        return x + self.out(F.gelu(self.hidden(self.norm(x))))


def convolutions() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(inplace=True),
        torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(8, 8, 3, groups=8),
        torch.nn.SiLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(8, 3),
    )


MODELS: dict[str, Callable[[], tuple[torch.nn.Module, torch.Tensor]]] = {
    "transformer": lambda: (Block(), torch.tensor([[1, 2, 3, 10], [0, 5, 5, 4]])),
    "convolutions": lambda: (convolutions(), torch.randn(2, 3, 12, 12)),
}


@pytest.mark.parametrize("constants", [False, True], ids=["inputs", "constants"])
@pytest.mark.parametrize("name", MODELS)
def test_models(member: str, name: str, constants: bool) -> None:
    torch.manual_seed(0)
    model, x = MODELS[name]()
    subgraph = subgraph_of(model.eval(), x, constants=constants)
    run = build(member, subgraph)
    inputs = moving(subgraph)
    assert len(inputs) == (1 if constants else len(subgraph.placeholders))
    with torch.no_grad():
        assert_as_eager(run(*inputs), subgraph.gm(*subgraph.example_inputs), 1e-4)


def test_an_lstm_stays_one_operator() -> None:
    needs("onnxruntime")
    model = torch.nn.LSTM(4, 5, num_layers=2, batch_first=True).eval()
    subgraph = subgraph_of(model, torch.randn(2, 6, 4), constants=True)
    run = build("onnxruntime", subgraph)
    with torch.no_grad():
        assert_as_eager(run(*moving(subgraph)), subgraph.gm(*subgraph.example_inputs))


def check(member: str, fn: Callable[..., Any], *inputs: torch.Tensor) -> Any:
    subgraph = subgraph_of(fn, *inputs)
    run = build(member, subgraph)
    with torch.no_grad():
        result = run(*subgraph.example_inputs)
        assert_as_eager(result, subgraph.gm(*subgraph.example_inputs))
    return result


FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "a number without dimensions": (lambda x: x * 2, (torch.tensor(3.0),)),
    "float16": (lambda x: x.softmax(-1), (torch.randn(3, 4).half(),)),
    "bool": (lambda x: (x > 0) & (x < 1), (torch.randn(3, 4),)),
    "masks": (
        lambda x, m: torch.where(m, x, 0.0).masked_fill(~m, 3),
        (torch.randn(4), torch.tensor([True, False] * 2)),
    ),
    "places": (lambda x: x.argmax(-1), (torch.randn(3, 4),)),
    "transposed result": (lambda x: (x.t() * 2, x.exp()), (torch.randn(3, 4),)),
    "constant indices": (lambda x: x[:, [-1, 0]] + x[:, torch.tensor([0, -2])], (torch.randn(4, 5),)),
    "scatter": (lambda x, i: x.scatter_add(1, i, x[:2, :2]), (torch.randn(2, 5), torch.tensor([[0, 3], [1, 2]]))),
    "written in place": (lambda x: x.relu().add_(1).mul_(x), (torch.randn(4, 5),)),
    "channels last": (lambda x: F.relu(x), (torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),)),
    "not contiguous": (lambda x: x @ x.t(), (torch.randn(6, 8)[::2, ::2],)),
    "negated view": (lambda x: x * 2, (torch._neg_view(torch.randn(3)),)),
}


NOT_BY_TVM = {"float16": "float16", "constant indices": "from -1 to 0", "scatter": "Unsupported function"}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(member: str, name: str) -> None:
    fn, inputs = FUNCTIONS[name]
    if member == "tvm" and name in NOT_BY_TVM:
        assert NOT_BY_TVM[name] in reason_of(member, subgraph_of(fn, *inputs))
    else:
        check(member, fn, *inputs)


def test_integers_of_onnxruntime() -> None:
    """OpenVINO computes them in int32, and declines."""
    needs("onnxruntime")
    x = torch.tensor([[-7, 7, 2**40], [5, -5, 0]])
    check("onnxruntime", lambda x: (x // 3, x % 5, x.cumsum(0), x * 3, x.sort(-1).values), x)
    check("onnxruntime", lambda x: (x.double() * 2).sum(), x)


def test_structure_of_results() -> None:
    """Capture makes tuples; graphs of other makers may nest, and hold constants."""
    needs("onnxruntime")
    subgraph = subgraph_of(lambda x: (x * 2, x + 1), torch.randn(3))
    output = subgraph.gm.graph.output_node()
    first, second = output.args[0]
    output.args = ({"a": [first, None], "b": (3, second, "text")},)
    subgraph.gm.recompile()
    run = build("onnxruntime", Subgraph(subgraph.gm, subgraph.example_inputs))
    assert_as_eager(run(*subgraph.example_inputs), subgraph.gm(*subgraph.example_inputs))


def test_the_next_call_leaves_results_alone(member: str) -> None:
    subgraph = subgraph_of(lambda x: (x * 2, x.t() + 1), torch.ones(2, 2))
    run = build(member, subgraph)
    first = run(torch.ones(2, 2))
    run(torch.full((2, 2), 5.0))
    assert_as_eager(first, (torch.full((2, 2), 2.0), torch.full((2, 2), 2.0).t()))


def test_a_call_keeps_nothing_alive(member: str) -> None:
    subgraph = subgraph_of(lambda x: x * 2, torch.ones(4))
    run = build(member, subgraph)
    x = torch.ones(4)
    held = torch._C._storage_Use_Count(x.untyped_storage()._cdata)
    (result,) = run(x)
    assert torch._C._storage_Use_Count(x.untyped_storage()._cdata) == held
    assert torch._C._storage_Use_Count(result.untyped_storage()._cdata) == held


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
def test_as_a_backend_of_its_own(member: str, mode: Any) -> None:
    model, x = convolutions().eval(), torch.randn(2, 3, 12, 12)
    compiled = torchdynamo.compile(model, backend=BACKENDS[member])
    with mode(), warnings.catch_warnings():
        warnings.simplefilter("error")
        for each in (x, x + 1, x[:, :, :, :10]):
            assert_as_eager(compiled(each), model(each), 1e-4)


def test_results_in_inference_mode(member: str) -> None:
    subgraph = subgraph_of(lambda x: x * 2, torch.ones(4))
    run = build(member, subgraph)
    with torch.inference_mode():
        assert run(torch.ones(4))[0].is_inference()


def test_one_tensor_for_two_inputs(member: str) -> None:
    """They are one tensor when the graph is built, and two later."""
    subgraph = subgraph_of(lambda x, y: x - y, torch.ones(3), torch.zeros(3))
    x = torch.ones(3)
    run = build(member, Subgraph(subgraph.gm, [x, x]))
    assert_as_eager(run(torch.ones(3), torch.zeros(3)), (torch.ones(3),))


def test_threads_share_a_run(member: str) -> None:
    torch.manual_seed(0)
    model = convolutions().eval()
    subgraph = subgraph_of(model, torch.randn(2, 3, 12, 12), constants=True)
    run = build(member, subgraph)
    wrong: list[int] = []
    start = threading.Barrier(32)

    def work(seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        start.wait()
        for _ in range(3):
            x = torch.randn(2, 3, 12, 12, generator=generator)
            with torch.no_grad():
                if not torch.allclose(run(x)[0], model(x), atol=1e-4):
                    wrong.append(seed)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(32)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert wrong == []


def test_the_number_of_threads_is_that_of_the_call(member: str) -> None:
    made: list[int] = []
    threads = torch.get_num_threads()
    backend = torchdynamo.optimizations.BACKENDS[BACKENDS[member]]
    subgraph = subgraph_of(lambda x: x @ x, torch.eye(3))
    run = backend(subgraph.gm, subgraph.example_inputs)
    try:
        for number in (1, 2, 1):
            torch.set_num_threads(number)
            assert_as_eager(run(torch.eye(3)), (torch.eye(3),))
            made.append(run.runs[number].threads)
    finally:
        torch.set_num_threads(threads)
    assert made == [1, 2, 1]


def test_building_leaves_the_process_as_it_was(member: str, capfd: pytest.CaptureFixture[str]) -> None:
    subgraph = subgraph_of(convolutions().eval(), torch.randn(2, 3, 12, 12))
    code, random = subgraph.gm.code, torch.get_rng_state()
    build(member, subgraph)
    assert capfd.readouterr() == ("", "")
    assert subgraph.gm.code == code
    assert torch.equal(torch.get_rng_state(), random)
