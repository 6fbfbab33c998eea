"""Members that are other people's runtimes: errors are eager's, and what may differ without an error is declined."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from foreign import BACKENDS, NEEDED, assert_as_eager, build, needs, reason_of, subgraph_of

import torchdynamo


@pytest.fixture(params=["onnxruntime", "openvino", "tvm"])
def member(request: pytest.FixtureRequest) -> str:
    needs(request.param)
    return request.param


TABLE = torch.randn(5, 3)
LOOKUPS: dict[str, Callable[..., Any]] = {
    "embedding": lambda i, x: F.embedding(i, x),
    "embedding of a view": lambda i, x: F.embedding(i.view(-1).unsqueeze(1)[1:], x),
    "index_select": lambda i, x: torch.index_select(x, 0, i.flatten()),
    "index": lambda i, x: x[i],
    "index of several": lambda i, x: x[i, i.clamp(0, 2)],
}


RUNS: dict[tuple[str, str], Any] = {}


@pytest.mark.parametrize("name", LOOKUPS)
@pytest.mark.parametrize("index", [-6, -1, 4, 5, 2**31 + 1, -(2**63)])
def test_lookups_raise_where_eager_does(member: str, name: str, index: int) -> None:
    """TVM makes something of each, OpenVINO of most, ONNX Runtime of -1."""
    fn = LOOKUPS[name]
    subgraph = subgraph_of(fn, torch.tensor([[1], [2]]), TABLE)
    run = RUNS.get((member, name)) or RUNS.setdefault((member, name), build(member, subgraph))
    inputs = torch.tensor([[0], [index]]), TABLE
    (wanted,), (found,) = outcome(lambda *args: (fn(*args),), inputs), outcome(run, inputs)
    assert_as_eager(found, wanted)


def outcome(fn: Callable[..., Any], inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return what a function returns, or the class and message of the error that it raises."""
    try:
        return fn(*inputs)
    except (IndexError, RuntimeError) as error:
        return ((type(error).__name__, str(error)),)


def test_a_program_that_catches_an_index_error(member: str) -> None:
    def looked_up(i: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        try:
            return F.embedding(i, x) * 2
        except IndexError:
            return x.new_zeros(1)

    compiled = torchdynamo.compile(looked_up, backend=BACKENDS[member])
    for index in (0, 4, 5, -1, 3):
        assert_as_eager(compiled(torch.tensor([index]), TABLE), looked_up(torch.tensor([index]), TABLE))


def test_gather_out_of_range() -> None:
    needs("onnxruntime")
    compiled = torchdynamo.compile(lambda x, i: x.gather(1, i), backend="onnxrt")
    x = torch.randn(2, 5)
    assert_as_eager(compiled(x, torch.tensor([[0, 4], [1, 2]])), x.gather(1, torch.tensor([[0, 4], [1, 2]])))
    for index in (-1, 5):
        with pytest.raises(RuntimeError, match=f"index {index} is out of bounds for dimension 1 with size 5"):
            compiled(x, torch.tensor([[0, index], [1, 2]]))


ORDINARY = torch.rand(4, 3) + 0.5
NUMBERS = torch.tensor([[1, 2, 3], [3, 2, 1]])
DECLINED: dict[str, tuple[str, Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "int // 0": ("divides integers", lambda a, b: a // b, (NUMBERS, NUMBERS)),
    "int % 0": ("divides integers", lambda a, b: a % b, (NUMBERS, NUMBERS)),
    "an integer's inverse": ("power", lambda a: a**2, (NUMBERS,)),
    "erfinv": ("not trusted with erfinv", lambda x: torch.erfinv(x), (ORDINARY / 4,)),
    "inverse": ("not trusted with", lambda x: torch.linalg.inv(x), (ORDINARY[:3],)),
    "one_hot": ("not trusted with|cannot be exported", lambda a: F.one_hot(a, 4), (NUMBERS,)),
    "bucketize": ("not trusted with bucketize", lambda x: torch.bucketize(x, torch.arange(3.0)), (ORDINARY,)),
    "a computed index": ("proves", lambda a, x: x[a * a - 1], (NUMBERS, torch.randn(9))),
    "floats as indices": ("floats into integers", lambda x: TABLE[x.long()], (ORDINARY,)),
    "an index that is too large": ("may be out of range", lambda x: TABLE[x.argmax(0) + 2], (torch.eye(4)[:, :3],)),
    "floor of a quotient": ("divides floats", lambda x: x // 0.3, (ORDINARY,)),
    "random numbers": ("random", lambda x: F.dropout(x), (ORDINARY,)),
    "multinomial": ("random", lambda x: torch.multinomial(x, 2), (ORDINARY,)),
    "a result that is a view": ("shares memory", lambda x: (x.t(), x + 1), (ORDINARY,)),
    "a write": ("writes", lambda x: x.add_(1) * 2, (ORDINARY.clone(),)),
    "complex": ("ordinary dtypes", lambda x: torch.fft.rfft(x), (ORDINARY,)),
    "bfloat16": ("bfloat16", lambda x: x * 2, (ORDINARY.bfloat16(),)),
    "no elements": ("no elements", lambda x: x * 2, (torch.randn(0, 3),)),
}


@pytest.mark.parametrize("name", DECLINED)
def test_declined(member: str, name: str) -> None:
    words, fn, inputs = DECLINED[name]
    reason = reason_of(member, subgraph_of(fn, *inputs))
    assert re.search(words, reason), reason


def test_graphs_that_are_trained_are_declined(member: str) -> None:
    subgraph = subgraph_of(lambda x: x * 2, torch.ones(3, requires_grad=True))
    backend = torchdynamo.optimizations.BACKENDS[BACKENDS[member]]
    assert backend(subgraph.gm, subgraph.example_inputs) is None


def test_large_integers_are_declined_where_they_are_computed_in_fewer_bits() -> None:
    needs("openvino")
    subgraph = subgraph_of(lambda x: x + 1, NUMBERS)
    assert "proves" in reason_of("openvino", subgraph)
    subgraph = subgraph_of(lambda x: x.flatten(), NUMBERS.t())
    run = build("openvino", subgraph)
    large = torch.tensor([[1, 2], [3, 2**40], [5, 6]])
    assert_as_eager(run(large), (large.flatten(),))


def test_switches_of_grad_mode_and_autocast_are_left_out(member: str) -> None:
    """As in rotary embeddings of many models of language."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            y = x @ x
        return y + 1

    subgraph = subgraph_of(fn, torch.eye(3))
    assert_as_eager(build(member, subgraph)(torch.eye(3)), (fn(torch.eye(3)),))


# -- packages that are not there ---------------------------------------------------------------------------------------
PACKAGES = ("onnx", "onnxscript", "onnxruntime", "openvino", "tvm", "torch_tensorrt")
FOREIGN = ("onnxruntime", "openvino", "tvm", "tensorrt")


def in_a_process(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_the_package_imports_none_of_them() -> None:
    code = f"import sys, torchdynamo; print([each for each in {PACKAGES!r} if each in sys.modules])"
    assert in_a_process(code) == "[]\n"


@pytest.fixture(scope="module")
def without_packages() -> list[str]:
    """What a process that has none of the packages prints: the result of each backend, and its warnings."""
    code = f"""
import sys, importlib.machinery, warnings
find = importlib.machinery.PathFinder.find_spec
class Blocked:
    def find_spec(name, path=None, target=None):
        return None if name.partition(".")[0] in {PACKAGES!r} else find(name, path, target)
sys.meta_path[:] = [Blocked if each is importlib.machinery.PathFinder else each for each in sys.meta_path]
import torch, torchdynamo
for backend in {[BACKENDS.get(name, name) for name in FOREIGN]!r}:
    torchdynamo.reset()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with torch.no_grad():
            print(torchdynamo.compile(lambda x: x * 2, backend=backend)(torch.ones(2)).tolist())
    print([type(each.message).__name__ for each in caught], *(each.message for each in caught))
"""
    return in_a_process(code).splitlines()


@pytest.mark.parametrize("name", FOREIGN)
def test_a_missing_package_is_one_warning(name: str, without_packages: list[str]) -> None:
    package = (*NEEDED.get(name, ()), "torch_tensorrt")[0]
    result, told = without_packages[2 * FOREIGN.index(name) :][:2]
    assert result == "[2.0, 2.0]"
    assert told.startswith("['FallbackWarning'] ")
    assert f"the package {package} is not installed: pip install torchdynamo-standalone[{name}]" in told
