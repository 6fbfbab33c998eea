"""A compiled nn.Module is still that module."""

from __future__ import annotations

import copy
import functools
import gc
import inspect
import io
import pickle
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

import torchdynamo
from torchdynamo.optimized_module import OptimizedModule

X = torch.randn(3, 4)


class Net(torch.nn.Module):
    """A small network."""

    kinds: list[type] = []

    def __init_subclass__(cls) -> None:
        cls.kinds.append(cls)

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.fc1 = torch.nn.Linear(4, width)
        self.register_buffer("mean", torch.zeros(width))
        self.calls = 0

    def forward(self, x: torch.Tensor, shift: float = 0.0) -> torch.Tensor:
        return torch.relu(self.fc1(x)) - self.mean + shift

    def again(self) -> Net:
        return self.__class__(8)

    @property
    def width(self) -> int:
        return self.fc1.out_features


def make() -> tuple[Net, Any]:
    net = Net()
    return net, torchdynamo.compile(net, backend="eager")


def test_it_computes_the_same() -> None:
    net, compiled = make()
    assert torch.equal(compiled(X), net(X))
    assert torch.equal(compiled(X, shift=1.0), net(X, 1.0))
    assert torch.equal(compiled.forward(X), net(X))


def test_it_is_an_instance_of_everything_it_should_be() -> None:
    net, compiled = make()
    assert isinstance(compiled, Net)
    assert isinstance(compiled, torch.nn.Module)
    assert isinstance(compiled, OptimizedModule)
    assert not isinstance(net, OptimizedModule)
    assert type(compiled).__name__ == "Net"
    assert type(compiled).__doc__ == "A small network."
    assert type(compiled) not in Net.kinds
    assert compiled._orig_mod is net


def test_state_dicts_have_the_same_keys_and_fit_each_other() -> None:
    net, compiled = make()
    assert list(compiled.state_dict()) == list(net.state_dict()) == ["mean", "fc1.weight", "fc1.bias"]
    compiled.load_state_dict(Net().state_dict())
    Net().load_state_dict(compiled.state_dict())
    assert [name for name, _ in compiled.named_parameters()] == ["fc1.weight", "fc1.bias"]
    assert all(mine is its for mine, its in zip(compiled.parameters(), net.parameters(), strict=True))
    assert list(compiled.named_modules())[0] == ("", compiled)


def test_attributes_are_the_originals() -> None:
    net, compiled = make()
    compiled.calls += 1
    net.extra = "x"
    compiled.fc2 = torch.nn.Linear(4, 4)
    assert (net.calls, compiled.extra, net.fc2) == (1, "x", compiled.fc2)
    assert "fc2.weight" in net.state_dict()
    assert compiled.width == 4
    del compiled.fc2
    del net.extra
    assert not hasattr(net, "fc2")
    assert not hasattr(compiled, "extra")
    with pytest.raises(AttributeError, match="nothing"):
        _ = compiled.nothing
    assert {"fc1", "mean", "calls", "width"} <= set(dir(compiled))


def test_methods_that_return_self_return_the_compiled_module() -> None:
    net, compiled = make()
    assert compiled.eval() is compiled
    assert not net.training
    assert compiled.train() is compiled
    assert net.fc1.training
    assert compiled.to(torch.float64) is compiled
    assert net.fc1.weight.dtype == torch.float64
    assert compiled.requires_grad_(False) is compiled
    assert torch.equal(compiled(X.double()), net(X.double()))


def test_a_new_instance_of_its_class_is_an_ordinary_module() -> None:
    _, compiled = make()
    other = compiled.again()
    assert type(other) is Net
    assert other.width == 8


def test_containers_are_containers() -> None:
    layers = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 4))
    compiled = torchdynamo.compile(layers, backend="eager")
    assert len(compiled) == 3
    assert compiled[1] is layers[1]
    assert list(compiled) == list(layers)
    assert type(compiled[:2]) is torch.nn.Sequential
    assert torch.equal(compiled[:2](X), layers[:2](X))
    compiled.append(torch.nn.ReLU())
    assert len(layers) == 4
    by_name = torchdynamo.compile(torch.nn.ModuleDict({"a": torch.nn.ReLU()}), backend="eager")
    assert "a" in by_name
    assert list(by_name.keys()) == ["a"]


def test_it_says_what_it_is() -> None:
    _, compiled = make()
    assert repr(compiled).splitlines()[0] == "OptimizedModule[Net]("
    assert "(fc1): Linear(in_features=4, out_features=4, bias=True)" in repr(compiled)


def test_hooks_of_either_run_once() -> None:
    net, compiled = make()
    seen: list[str] = []
    net.register_forward_pre_hook(lambda module, args: seen.append("pre"))
    compiled.register_forward_hook(lambda module, args, out: out + 1)
    assert torch.equal(compiled(X), torch.relu(net.fc1(X)) + 1)
    assert seen == ["pre"]


def test_pickling_keeps_weights_and_settings() -> None:
    net, compiled = make()
    copied = pickle.loads(pickle.dumps(compiled))
    assert isinstance(copied, OptimizedModule)
    assert torch.equal(copied(X), net(X))
    assert copied._orig_mod is not net
    buffer = io.BytesIO()
    torch.save(compiled, buffer)
    buffer.seek(0)
    assert torch.equal(torch.load(buffer, weights_only=False)(X), net(X))


@pytest.mark.parametrize("wrap", [torchdynamo.disable, torchdynamo.run, torchdynamo.optimize("eager")])
def test_every_wrapper_pickles_and_copies(wrap: Any) -> None:
    compiled = wrap(Net())
    for copied in (pickle.loads(pickle.dumps(compiled)), copy.deepcopy(compiled), copy.copy(compiled)):
        assert isinstance(copied, OptimizedModule)
        assert bool(copied.__call__.callback) == bool(compiled.__call__.callback)
        assert torch.equal(copied(X), compiled(X))


def test_a_deep_copy_has_weights_of_its_own() -> None:
    net, compiled = make()
    copied = copy.deepcopy(compiled)
    with torch.no_grad():
        copied.fc1.weight.zero_()
    assert net.fc1.weight.abs().sum() > 0
    assert torch.equal(copied(X)[0], torch.relu(net.fc1.bias))


def test_compiling_twice_is_compiling_once() -> None:
    net, compiled = make()
    again = torchdynamo.compile(compiled, backend="eager")
    assert again._orig_mod is net
    disabled = torchdynamo.disable(compiled)
    assert disabled._orig_mod is net
    assert torchdynamo.compile(disabled, backend="eager")._orig_mod is disabled


def test_training_works_through_the_wrapper() -> None:
    _, compiled = make()
    optimizer = torch.optim.SGD(compiled.parameters(), lr=0.1)
    before = compiled.fc1.weight.clone()
    compiled(X).sum().backward()
    optimizer.step()
    assert not torch.equal(before, compiled.fc1.weight)


class SelfReferring(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))
        self.act = self.activate

    def activate(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(x)


@pytest.mark.parametrize("cls", [Net, SelfReferring])
def test_a_deleted_module_frees_its_parameters(cls: type[torch.nn.Module]) -> None:
    compiled = torchdynamo.compile(cls(), backend="eager")
    compiled(X)
    weight = weakref.ref(next(compiled.parameters()))
    del compiled
    gc.collect()
    assert weight() is None


class Failing(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise KeyError("mine")


def test_no_frame_of_ours_stands_in_a_traceback() -> None:
    with pytest.raises(KeyError) as caught:
        torchdynamo.compile(Failing(), backend="eager")(X)
    ours = Path(torchdynamo.__file__).parent
    assert not [entry.path for entry in caught.traceback if ours in Path(entry.path).parents]


def test_inside_another_compiled_function() -> None:
    net, compiled = make()
    report = torchdynamo.explain(lambda x: compiled(x) * 2)(X)
    assert (report.graph_count, report.graph_break_count) == (1, 0)
    assert torch.equal(report.result, net(X) * 2)
    disabled = torchdynamo.disable(net)
    report = torchdynamo.explain(lambda x: disabled(x) * 2)(X)
    assert [event.reason for event in report.breaks] == ["disabled function"]
    assert "Net is marked to run as plain Python" in report.break_reasons[0]


def test_a_compiled_function_that_calls_it_does_not_keep_it_alive() -> None:
    _, compiled = make()
    outer = torchdynamo.compile(lambda x, module: module(x) + 1, backend="eager")
    outer(X, compiled)
    weight = weakref.ref(compiled.fc1.weight)
    del compiled, _
    gc.collect()
    assert weight() is None


def test_forward_keeps_its_signature() -> None:
    net, compiled = make()
    assert inspect.signature(compiled.forward) == inspect.signature(net.forward)
    assert list(inspect.signature(type(compiled).forward).parameters) == ["self", "x", "shift"]
    assert torch.equal(compiled.forward(X, shift=2.0), net(X, 2.0))
    with pytest.raises(TypeError, match=r"forward\(\) missing 1 required positional argument: 'x'"):
        compiled.forward()
    assert inspect.signature(torchdynamo.disable(compiled).forward) == inspect.signature(net.forward)


# -- compile_in_place --------------------------------------------------------------------------------------------------
class Graphs:
    """A backend that counts its graphs."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: Any) -> Any:
        self.count += 1
        return gm.forward


def test_a_module_is_compiled_in_place() -> None:
    net, backend, seen = Net(), Graphs(), []
    wanted = net(X, shift=1.0)
    torchdynamo.compile_in_place(net, backend=backend, fullgraph=True)
    assert type(net) is Net
    for _ in range(2):
        assert torch.equal(net(X, shift=1.0), wanted)
    assert backend.count == 1
    net.register_forward_hook(lambda module, args, result: seen.append(module) or result * 2)
    for _ in range(2):
        assert torch.equal(net(X, shift=1.0), wanted * 2)
    assert seen == [net, net]
    parent = torch.nn.Sequential(net)
    assert torch.equal(parent(X), net(X))
    assert torch.equal(torchdynamo.compile(parent, backend="eager", fullgraph=True)(X), net(X))


def test_copies_of_what_is_compiled_in_place_are_not_compiled() -> None:
    net, backend = Net(), Graphs()
    torchdynamo.compile_in_place(net, backend=backend)
    file = io.BytesIO()
    torch.save(net, file)
    file.seek(0)
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net)), torch.load(file, weights_only=False)):
        assert type(other) is Net
        assert torch.equal(other(X), net.forward(X))
    assert backend.count == 0
    assert list(net.state_dict()) == list(Net().state_dict())
    net(X)
    assert backend.count == 1


def test_settings_in_place_are_replaced() -> None:
    net, first, second = Net(), Graphs(), Graphs()
    torchdynamo.compile_in_place(net, backend=first)
    torchdynamo.compile_in_place(torchdynamo.compile(net, backend="eager"), backend=second)
    net(X)
    assert (first.count, second.count) == (0, 1)


def test_what_cannot_be_compiled_in_place() -> None:
    with pytest.raises(TypeError, match="compile_in_place takes an nn.Module"):
        torchdynamo.compile_in_place(make)
    with pytest.raises(torchdynamo.exc.UnknownBackend):
        torchdynamo.compile_in_place(Net(), backend="inducto")
    with pytest.raises(TypeError, match="model"):
        torchdynamo.compile_in_place(Net(), model=Net())


# -- decorated classes -------------------------------------------------------------------------------------------------
def test_calls_of_a_decorated_class_are_compiled() -> None:
    backend = Graphs()

    @torchdynamo.compile(backend=backend)
    class Doubling(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    class Further(Doubling):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) + 1

    net = Doubling()
    assert type(net) is Doubling
    assert torch.equal(net(X), X * 2)
    assert torch.equal(Doubling()(X), X * 2)
    assert backend.count == 1
    assert torch.equal(Further()(X), X * 2 + 1)
    assert backend.count == 2
    net.register_forward_hook(lambda module, args, result: result + 3)
    assert torch.equal(net(X), X * 2 + 3)
    whole = torchdynamo.compile(lambda net, x: net(x) + 1, backend="eager", fullgraph=True)
    assert torch.equal(whole(net, X), X * 2 + 3 + 1)
    assert torch.equal(torchdynamo.compile(net, backend="eager", fullgraph=True)(X), X * 2 + 3)


def test_a_decorated_class_that_is_no_module() -> None:
    backend = Graphs()

    @torchdynamo.compile(backend=backend, fullgraph=True)
    class Scaled:
        def __init__(self, factor: int) -> None:
            self.factor = factor

        def __call__(self, x: torch.Tensor, *, plus: int = 1) -> torch.Tensor:
            return x * self.factor + plus

    assert torch.equal(Scaled(2)(X, plus=3), X * 2 + 3)
    assert backend.count == 1


@pytest.mark.parametrize("wrap", [classmethod, staticmethod])
def test_a_decorated_class_whose_call_takes_no_instance(wrap: Any) -> None:
    backend = Graphs()

    class Doubling:
        __call__ = wrap(lambda *given: given[-1] * 2)

    Doubling.__module__ = None  # type: ignore[assignment]
    assert torch.equal(torchdynamo.compile(Doubling, backend=backend)()(X), X * 2)
    assert backend.count == 1


@pytest.mark.parametrize(
    "call", [property(lambda self: torch.sin), functools.partialmethod(lambda self, y, x: x + y, 3)]
)
def test_a_class_whose_call_is_no_method_is_refused(call: Any) -> None:
    with pytest.raises(TypeError, match="with a method __call__, not the class Odd"):
        torchdynamo.compile(type("Odd", (), {"__call__": call}), backend="eager")


def test_a_class_that_is_disabled_ends_the_graph() -> None:
    @torchdynamo.disable
    class Left(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * (3 if torchdynamo.is_compiling() else 2)

    backend, left = Graphs(), Left()
    compiled = torchdynamo.compile(lambda x: left(x.cos()).sin(), backend=backend)
    assert torch.equal(compiled(X), (X.cos() * 2).sin())
    assert backend.count == 2
