"""`torchdynamo.export`: exported programs compute what the program does, own its state and keep what they rest on."""

from __future__ import annotations

import io
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torchdynamo
from torchdynamo import exc

THIS = Path(__file__).name
X = torch.tensor([1.0, -2.0, 3.0])


class Layer(nn.Module):
    """A module with state of each kind."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(3, 4)
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("last", torch.zeros(3), persistent=False)
        self.scale = torch.full((4,), 2.0)

    def forward(self, x: torch.Tensor, *rest: torch.Tensor, mask: torch.Tensor | None = None, k: int = 3) -> Any:
        self.calls.add_(1)
        self.last = x.mean(0)
        if mask is not None:
            x = x * mask[:, None]
        return {"out": self.lin(x) * self.scale * k, "more": (rest[0] + 1, x.shape[0], 0.5, None)}


def reloaded(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    return torch.export.load(file)


def guards_of(program: torch.export.ExportedProgram) -> list[dict[str, Any]]:
    return program.graph_module.meta["custom"]["torchdynamo"]["guards"]


def same(a: Any, b: Any) -> bool:
    flat_a, spec_a = torch.utils._pytree.tree_flatten(a)
    flat_b, spec_b = torch.utils._pytree.tree_flatten(b)
    return spec_a == spec_b and all(
        torch.equal(x, y) if isinstance(x, torch.Tensor) else x == y for x, y in zip(flat_a, flat_b, strict=True)
    )


def test_a_module_with_its_state_under_its_own_names() -> None:
    model = Layer()
    args, kwargs = (torch.randn(5, 3), torch.ones(2)), {"mask": torch.ones(5)}
    program = torchdynamo.export(model, *args, kwargs=kwargs)
    assert model.calls.item() == 0  # nothing has run
    assert set(program.state_dict) == set(model.state_dict())
    signature = program.graph_signature
    assert set(signature.parameters) == {"lin.weight", "lin.bias"}
    assert set(signature.buffers) == {"calls", "last"}
    assert signature.non_persistent_buffers == ("last",)
    assert [each.target for each in signature.input_specs if each.kind.name == "CONSTANT_TENSOR"] == ["scale"]
    loaded = reloaded(program).module()
    for step in (1, 2):
        assert same(loaded(*args, **kwargs), model(*args, **kwargs))
        assert loaded.calls.item() == model.calls.item() == step
        assert torch.equal(loaded.last, model.last)


def test_lines_of_the_program_are_kept() -> None:
    program = torchdynamo.export(Layer(), torch.randn(5, 3), torch.ones(2))
    (linear,) = program.graph.find_nodes(op="call_function", target=torch.ops.aten.linear.default)
    assert "F.linear(input, self.weight, self.bias)" in linear.meta["stack_trace"]


def test_writes_to_arguments() -> None:
    def add(x: torch.Tensor, into: list[torch.Tensor]) -> torch.Tensor:
        into[0].add_(x)
        return into[0] * 2

    total = torch.zeros(3)
    program = torchdynamo.export(add, X, [total]).run_decompositions({})
    assert torch.equal(total, torch.zeros(3))
    assert list(program.graph_signature.user_inputs_to_mutate.values()) == ["into_0"]
    assert torch.equal(reloaded(program).module()(X, [total]), X * 2)
    assert torch.equal(total, X)


def test_a_container_that_is_given_and_filled() -> None:
    def fill(batch: dict[str, torch.Tensor], y: torch.Tensor) -> dict[str, torch.Tensor]:
        batch["sum"] = batch["x"] + y
        return batch

    program = torchdynamo.export(fill, {"x": X}, X[:2].sum())
    program = reloaded(program)
    y = torch.tensor(3.0)
    assert same(program.module()({"x": X}, y), fill({"x": X}, y))
    with pytest.raises(AssertionError, match=r"y.dtype"):
        program.module()({"x": X}, y.double())
    assert program.graph_module.meta["custom"]["torchdynamo"]["lost"] == ["batch is changed"]


def test_modules_with_methods_of_their_own_and_buffers_that_cannot_be_saved() -> None:
    class Own(nn.Linear):
        def named_parameters(self, prefix: str = "", recurse: bool = True) -> Any:  # type: ignore[override]
            return super().named_parameters(prefix, recurse)

    model = Own(3, 3)
    model.register_buffer("heads", torch.eye(3).to_sparse(), persistent=False)
    assert torch.equal(reloaded(torchdynamo.export(model, X)).module()(X), model(X))


def test_a_tensor_that_is_no_buffer_and_is_written_to_is_state_of_the_program() -> None:
    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.total = torch.zeros(3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.total.add_(x) * 1

    model = Sum()
    module = torchdynamo.export(model, X).module()
    assert torch.equal(model.total, torch.zeros(3))
    assert torch.equal(module(X), X)
    assert torch.equal(module(X), X + X)


lin = nn.Linear(3, 2)


def test_functions_and_methods_own_the_state_that_they_use() -> None:
    other = nn.Sequential(nn.Linear(3, 2))

    def both(x: torch.Tensor) -> torch.Tensor:
        return lin(x) + other(x)

    assert torch.equal(torchdynamo.export(both, X).module()(X), both(X))
    assert set(torchdynamo.export(both, X).state_dict) == {"lin.weight", "lin.bias", "other.0.weight", "other.0.bias"}
    assert set(torchdynamo.export(lin.forward, X).state_dict) == {"weight", "bias"}
    assert torch.equal(torchdynamo.export(both, X).module()(X), both(X))


def test_tied_parameters_stay_tied() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
            self.second.weight = self.first.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(self.first(x))

    model = Tied()
    program = torchdynamo.export(model, X)
    assert set(program.state_dict) == set(model.state_dict())
    assert torch.equal(reloaded(program).module()(X), model(X))


def test_one_tensor_passed_twice_comes_as_two() -> None:
    def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a.add_(1) + b

    program = torchdynamo.export(add, X.clone(), X.clone())
    both = X.clone()
    module = torchdynamo.export(add, both, both).module()
    assert torch.equal(both, X)
    assert torch.equal(module(X.clone(), X * 3), program.module()(X.clone(), X * 3))


def chosen(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))


def checked(x: torch.Tensor) -> torch.Tensor:
    assert x.sum() < 100
    return x + 1


def picked(x: torch.Tensor) -> torch.Tensor:
    found = x.nonzero()
    torch._check(found.shape[0] > 0)
    return x[found[:, 0]] * 2


def cut(x: torch.Tensor) -> torch.Tensor:
    size = int(x.sum().item())
    torch._check(size >= 0)
    torch._check(size <= 3)
    return torch.ones(size)


def without_gradients(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        y = x * 2
    return y + x


def asserted_without_gradients(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        assert x.sum() < 100
    with torch.no_grad():
        pass
    return x * 2


def answered_without_gradients(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        positive = bool((x.sum() > -100).item())
        torch._check(positive)
        y = x * 2
    return y + x + positive


def batched(x: torch.Tensor) -> torch.Tensor:
    return torch.func.vmap(lambda each: each * each + x)(x)


in_this_torch = pytest.mark.skipif(torch.__version__ < "2.13", reason="torch.export.save does not write it there")
VALUES = [
    chosen,
    checked,
    picked,
    cut,
    without_gradients,
    asserted_without_gradients,
    pytest.param(answered_without_gradients, marks=in_this_torch),
    pytest.param(batched, marks=in_this_torch),
]


@pytest.mark.parametrize("fn", VALUES)
def test_what_depends_on_values(fn: Callable[[torch.Tensor], torch.Tensor]) -> None:
    module = reloaded(torchdynamo.export(fn, X)).module()
    for x in (X, X * 0.5, torch.tensor([0.0, 0.0, 1.0])):
        assert torch.equal(module(x), fn(x))


def test_assertions_of_the_program_are_made_by_the_exported_one() -> None:
    module = torchdynamo.export(checked, X).module()
    with pytest.raises(RuntimeError, match=r"the program raises an error here: assert x.sum\(\) < 100"):
        module(X * 100)
    with pytest.raises(RuntimeError, match=r"raises an error here: torch\._check\(size <= 3\)"):
        torchdynamo.export(cut, X).module()(X * 100)


def test_gradients_flow_through_what_was_exported() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    module = reloaded(torchdynamo.export(model, X)).module()
    module(X).sum().backward()
    model(X).sum().backward()
    assert torch.equal(module.get_parameter("0.weight").grad, model[0].weight.grad)  # type: ignore[arg-type]


weights = nn.Linear(3, 3)


def mixed(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    a = weights(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        b = weights(x)
        with torch.autocast("cpu", enabled=False):
            c = weights(x)
        with torch.no_grad():
            d = weights(x)
    return a, b, c, d, weights(x)


def inferred(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    with torch.inference_mode():
        a = weights(x)
    with torch.no_grad(), torch.inference_mode(False):
        b = weights(x)
    return a, b, weights(x)


@pytest.mark.parametrize("fn", [mixed, inferred])
def test_autocast_and_inference_mode_are_those_of_the_program(fn: Callable[..., tuple[torch.Tensor, ...]]) -> None:
    x = torch.randn(2, 3)
    for got, want in zip(reloaded(torchdynamo.export(fn, x)).module()(x), fn(x), strict=True):
        assert got.dtype == want.dtype
        assert torch.equal(got, want)
        assert got.requires_grad == want.requires_grad


def test_a_call_under_autocast_is_exported_with_it() -> None:
    x = torch.randn(2, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        program, want = torchdynamo.export(weights, x), weights(x)
    assert torch.equal(reloaded(program).module()(x), want)
    assert torch.equal(reloaded(program.run_decompositions({})).module()(x), want)


def test_a_checkpoint_computes_what_it_wraps() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.utils.checkpoint.checkpoint(weights, x, use_reentrant=False) + 1

    assert torch.equal(reloaded(torchdynamo.export(fn, X)).module()(X), fn(X))


class Registry:
    """An object of which each change makes a new state."""

    def __init__(self) -> None:
        self.state: dict[str, Any] = {"stack": [], "names": {"a": 2.0}}
        self.backup = self.state

    def replaced(self) -> dict[str, Any]:
        return {"stack": list(self.state["stack"]), "names": dict(self.state["names"])}


def rebuilds(registry: Registry, x: torch.Tensor) -> torch.Tensor:
    registry.state = registry.replaced()
    return x * registry.state["names"]["a"] * (1 + len(registry.state["stack"]))


def grows(registry: Registry, x: torch.Tensor) -> torch.Tensor:
    registry.state = registry.replaced()
    registry.state["stack"].append(1)
    return x * len(registry.state["stack"])


def compares(registry: Registry, x: torch.Tensor) -> torch.Tensor:
    first = registry.state is registry.backup
    registry.state = registry.replaced()
    return x * 2 if first else x


def shares(registry: Registry, x: torch.Tensor) -> torch.Tensor:
    state = registry.replaced()
    state["stack"] = state["names"] if len(state["names"]) == len(state["stack"]) + 1 else state["stack"]
    registry.state = state
    return x * len(state["stack"])


def forgets_order(registry: Registry, x: torch.Tensor) -> torch.Tensor:
    state = registry.replaced()
    registry.state = {"names": state["names"], "stack": state["stack"]}
    return x * 2 if next(iter(state)) == "stack" else x


class Registered(nn.Module):
    """A module that takes a step of a registry."""

    def __init__(self, step: Callable[[Registry, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.registry, self.step = Registry(), step

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.step(self.registry, x)


def test_state_that_is_made_anew_as_it_was() -> None:
    model = Registered(rebuilds)
    model(X)
    module = reloaded(torchdynamo.export(model, X)).module()
    assert torch.equal(module(X), model(X))


@pytest.mark.parametrize("step", [grows, compares, shares, forgets_order])
def test_state_that_is_made_anew_as_another(step: Callable[[Registry, torch.Tensor], torch.Tensor]) -> None:
    registry = Registry()
    for fn in (Registered(step), lambda x: step(registry, x)):
        with pytest.raises(exc.ExportError, match=r"changes what it depends on itself: .*\bstate"):
            torchdynamo.export(fn, X)


def test_hooks_are_part_of_the_call() -> None:
    model = nn.Linear(3, 3)
    model.register_forward_hook(lambda module, args, out: out * 2)
    assert torch.equal(torchdynamo.export(model, X).module()(X), model(X))


def test_a_compiled_module_is_exported_as_what_it_was_made_of() -> None:
    model = nn.Linear(3, 3)
    program = torchdynamo.export(torchdynamo.compile(model, backend="eager"), X)
    assert set(program.state_dict) == {"weight", "bias"}


def test_exporting_is_what_the_program_is_told() -> None:
    def told(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if torch.compiler.is_exporting() else x

    assert torch.equal(torchdynamo.export(told, X).module()(X), X + 1)
    assert torch.equal(torchdynamo.compile(told, backend="eager")(X), X)


# -- the other form ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("how", [{}, {"aten_graph": True}, {"aten_graph": True, "pre_dispatch": True}])
def test_a_graph_module_is_called_as_the_program_is(how: dict[str, bool]) -> None:
    model = Layer()
    args, kwargs = (torch.randn(5, 3), torch.ones(2)), {"mask": torch.ones(5)}
    module, guards = torchdynamo.export(model, **how)(*args, **kwargs)
    assert "mask.dtype == torch.float32" in [each.text for each in guards]
    assert same(module(*args, **kwargs), Layer.forward(model, *args, **kwargs))
    targets = {node.target for node in module.graph.nodes if node.op == "call_function"}
    assert (torch.ops.aten.linear.default in targets) == bool(how)


def test_aten_graphs_write_in_place_only_before_dispatch() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x.sin().add_(1)

    made = {}
    for pre in (False, True):
        module, _ = torchdynamo.export(fn, aten_graph=True, pre_dispatch=pre)(X)
        made[pre] = {node.target for node in module.graph.nodes}
    assert torch.ops.aten.add_.Tensor in made[True]
    assert torch.ops.aten.add.Tensor in made[False]


# -- what cannot be exported -------------------------------------------------------------------------------------------
def test_a_graph_break_names_the_line_and_the_reason() -> None:
    def branch(x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            return x
        return x + 1

    with pytest.raises(exc.Unsupported, match="TD101") as caught:
        torchdynamo.export(branch, X)
    assert "if x.sum() > 0:" in str(caught.value)
    assert "calls.py" not in str(caught.value)


def generator(x: torch.Tensor) -> Any:
    yield x


@pytest.mark.parametrize(
    ("fn", "error", "text"),
    [
        (generator, exc.Unsupported, "TD201"),
        (lambda x: {x}, exc.ExportError, "returns a set"),
        (lambda x: x * complex(0, math.inf), exc.ExportError, "computes with infj, which"),
        (nn.LazyLinear(3), exc.ExportError, "gets its parameters in its first call"),
        (torch.func.grad(lambda x: (x * x).sum()), exc.ExportError, "differentiates by torch.func"),
        (lambda x: slope(x.detach().requires_grad_()), exc.ExportError, "computes gradients itself"),
        (lambda x: (x * 2).requires_grad_(), exc.ExportError, "makes a leaf of autograd's"),
        (lambda x, y: x, TypeError, "missing a required argument: 'y'"),
        (lambda x: torch.rand(3, generator=GENERATOR) + x, exc.TorchDynamoError, "generator"),
    ],
)
def test_what_cannot_be_exported_says_so(fn: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        torchdynamo.export(fn, X)


GENERATOR = torch.Generator()


def slope(x: torch.Tensor) -> torch.Tensor:
    return torch.autograd.grad((x * x).sum(), x)[0]


class Loud(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return super().__torch_function__(func, types, args, kwargs or {})


def test_tensors_that_an_exported_program_would_take_for_others_are_refused() -> None:
    x = torch.ones(4)
    with pytest.raises(exc.ExportError, match="share memory"):
        torchdynamo.export(lambda a, b: a.add_(1) + b, x[:3], x[1:])
    with pytest.raises(exc.ExportError, match="act on operators: Loud"):
        torchdynamo.export(lambda a: a + 1, x.as_subclass(Loud))


def test_wrong_arguments() -> None:
    with pytest.raises(TypeError, match="takes a function"):
        torchdynamo.export(3, X)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="aten_graph=True as well"):
        torchdynamo.export(checked, pre_dispatch=True)
    with pytest.raises(ValueError, match="an exported program is an ATen graph"):
        torchdynamo.export(checked, X, aten_graph=True)  # type: ignore[call-overload]


# -- state -------------------------------------------------------------------------------------------------------------
class Stateful(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.count, self.table, self.mean, self.seen = 0, None, torch.zeros(3), [torch.ones(3)]


class Counts(Stateful):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return x + self.count


class Branches(Stateful):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return x + 1 if self.count < 3 else x


class SetsUp(Stateful):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.table is None:
            self.table = torch.ones(3)
        return x + self.table


class Averages(Stateful):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean = self.mean * 0.9 + x * 0.1
        return x - self.mean


class Collects(Stateful):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(x)
        return sum(self.seen)


@pytest.mark.parametrize("cls", [Counts, Branches, SetsUp, Averages, Collects])
def test_state_that_a_program_would_lose_is_refused(cls: type[Stateful]) -> None:
    with pytest.raises(exc.ExportError, match=r"depends on itself: self\.(count|table|mean|seen)"):
        torchdynamo.export(cls(), X)
    once = torchdynamo.export(cls(), X, strict=False).module()
    assert torch.equal(once(X), cls()(X))


def test_what_was_set_up_by_a_call_is_exported() -> None:
    model = SetsUp()
    model(X)
    assert torch.equal(torchdynamo.export(model, X).module()(X), model(X))


class Watches(Stateful):
    """Forgets what it saw, and sees again, as extractors of hidden states do."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        del self.table
        self.table = None
        y = x * 2
        self.table = y.detach()
        return self.table + 1


class Compares(Stateful):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x + 1 if self.mean is x else x
        self.mean = x
        return y


class ComparedWith(Stateful):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x + 1 if x is self.mean else x
        self.mean = x * 2
        return y


class InTwoPlaces(Stateful):
    def __init__(self) -> None:
        super().__init__()
        self.seen = [self.mean]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x + 1 if self.seen[0] is self.mean else x
        self.mean = x * 2
        return y


class IsAKey(Stateful):
    def __init__(self) -> None:
        super().__init__()
        self.known = {self.mean: 1}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x + 1 if self.mean in self.known else x
        self.mean = x * 2
        return y


class Asks(Stateful):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x + 1 if self.mean.requires_grad else x
        self.mean = (x * 2).detach().requires_grad_()
        return y


def test_a_tensor_that_is_only_replaced_by_one_like_it_is_no_state() -> None:
    model = Watches()
    model(X)
    assert torch.equal(torchdynamo.export(model, X).module()(-X), model(-X))
    with pytest.raises(exc.ExportError, match=r"depends on itself: self\.table"):
        torchdynamo.export(model, torch.ones(5))
    for cls in (Compares, ComparedWith, InTwoPlaces, IsAKey, Asks):
        with pytest.raises(exc.ExportError, match=r"depends on itself: self\.mean"):
            torchdynamo.export(cls(), X)


class Tells(Stateful):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        self.last = x * 2
        return x + 1


def test_what_no_later_call_depends_on_is_told_as_lost() -> None:
    model = Tells()
    program = torchdynamo.export(model, X)
    assert program.graph_module.meta["custom"]["torchdynamo"]["lost"] == ["self.count is set", "self.last is set"]
    assert model.count == 0


# -- elsewhere ---------------------------------------------------------------------------------------------------------
ELSEWHERE = """
import sys
import torch
program = torch.export.load(sys.argv[1])
print(program.module()(torch.ones(4, 3)).shape, [each["text"] for each in
      program.graph_module.meta["custom"]["torchdynamo"]["guards"] if "> 2" in each["text"]])
try:
    program.module()(torch.ones(2, 3))
except AssertionError as error:
    print(error)
assert not [name for name in sys.modules if name.startswith("torchdynamo")]
"""


def test_a_process_without_torchdynamo_loads_and_checks(tmp_path: Path) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return lin(x).relu() if x.shape[0] > 2 else x

    x = torch.ones(5, 3)
    torchdynamo.mark_dynamic(x, 0)
    torch.export.save(torchdynamo.export(fn, x), tmp_path / "fn.pt2")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ELSEWHERE, str(tmp_path / "fn.pt2")],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.stdout.splitlines() == [
        "torch.Size([4, 2]) ['x.size(0) > 2']",
        "Guard failed: x.size()[0] >= 3",
    ], done.stderr


def facts(program: Any) -> dict[str, bool]:
    guards = program.graph_module.meta["custom"]["torchdynamo"]["guards"]
    return {each["text"]: each["checked"] for each in guards}


def test_what_nothing_checks_is_not_said_to_be_checked() -> None:
    leaf = torchdynamo.export(lambda x: x * 2 if x.is_leaf else x, torch.ones(2))
    assert not any(checked for text, checked in facts(leaf).items() if "is_leaf" in text)
    keys = torchdynamo.export(lambda d: list(d.values())[0] * 2, {"a": torch.ones(1), "b": torch.zeros(1)})
    assert not any(checked for text, checked in facts(keys).items() if "DICT_KEYS" in text)
    needs = facts(torchdynamo.export(lambda x: x * 2 if x.requires_grad else x.t(), torch.ones(2, 3)))
    assert needs["x.requires_grad == False"] is False and needs["x.size(1) == 3"] is True


def test_none_is_checked() -> None:
    program = torchdynamo.export(lambda x, n=None: x * 2 if n is None else x, torch.ones(2), None)
    assert torch.equal(program.module()(torch.ones(2), None), torch.full((2,), 2.0))
    with pytest.raises(AssertionError, match="is None"):
        program.module()(torch.ones(2), torch.ones(1))


def test_names_that_are_taken() -> None:
    def named(self: torch.Tensor, x: torch.Tensor, k: int = 3) -> torch.Tensor:
        return self + x * k

    def numbered(*args: torch.Tensor, args_0: torch.Tensor) -> torch.Tensor:
        return args[0] - args_0

    one, two = torch.ones(2), torch.full((2,), 2.0)
    program = torchdynamo.export(named, one, two, kwargs={"k": 4})
    assert torch.equal(program.module()(one, two, k=4), named(one, two, k=4))
    program = torchdynamo.export(numbered, one, kwargs={"args_0": two})
    assert torch.equal(program.module()(one, args_0=two), numbered(one, args_0=two))
