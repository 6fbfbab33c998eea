"""What the memo remembers is what the stand-ins would say: each program runs twice, with it and without it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from torchdynamo.core.source import local
from torchdynamo.graph import GraphBuilder, GraphError
from torchdynamo.graph.fake_cache import MISSING, FakeCache

Node = torch.fx.Node


class Tape:
    """A builder, its inputs by name, and what it was asked."""

    def __init__(self, remember: bool, tensors: dict[str, torch.Tensor]) -> None:
        self.builder = GraphBuilder()
        self.nodes: dict[str, Node] = {}
        self.asked: list[tuple[Any, tuple[Any, ...]]] = []
        self.hits = 0
        self.remember = remember
        memo = self.builder.fake_cache
        recall = memo.recall

        def counted(question: Any) -> Any:
            found = recall(question)
            self.hits += found is not MISSING
            return found

        memo.recall = counted  # type: ignore[method-assign]
        if not remember:
            memo.question = lambda *_: None  # type: ignore[method-assign]
        for name, tensor in tensors.items():
            self.input(name, tensor)

    def input(self, name: str, tensor: torch.Tensor) -> Node:
        self.nodes[name], _ = self.builder.input(name, tensor, local(name), False)
        return self.nodes[name]

    def __getattr__(self, name: str) -> Node:
        return self.nodes[name]

    def __call__(self, target: Any, *args: Any, **kwargs: Any) -> Any:
        op = "call_method" if isinstance(target, str) else "call_function"
        node, example = self.builder.call(op, target, args, kwargs, None)
        self.asked.append((example, args))
        if isinstance(example, (tuple, list)):
            return [self.builder.getitem(node, index)[0] for index in range(len(example))]
        return node


def told(fake: Any, known: list[Any]) -> Any:
    """All that can be seen of a result: of a tensor, its metadata, what it is, and whose memory it has."""
    if isinstance(fake, (tuple, list)):
        return type(fake), [told(item, known) for item in fake]
    if not isinstance(fake, torch.Tensor):
        return type(fake), fake
    state = {name: value for name, value in vars(fake).items() if name != "fake_mode"}
    memory = fake.untyped_storage()
    return (
        *(type(fake), fake.shape, fake.stride(), fake.storage_offset(), fake.dtype, fake.device, fake.layout),
        *(fake.requires_grad, fake.is_leaf, fake.is_inference(), fake.is_conj(), fake.is_neg(), memory.nbytes()),
        state,
        [other is fake for other in known],
        [isinstance(other, torch.Tensor) and other.untyped_storage()._cdata == memory._cdata for other in known],
    )


def flat(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, Node):
            value = value.meta["example_value"]
        if isinstance(value, (tuple, list)):
            yield from flat(value)
        else:
            yield value


def run(remember: bool, make: Callable[[], dict[str, torch.Tensor]], program: Callable[[Tape], None]) -> Any:
    """What a program saw: its results, the inputs' metadata at the end, what is written and drawn."""
    tape = Tape(remember, make())
    try:
        program(tape)
        raised = None
    except GraphError as error:
        raised = type(error), error.reason
    known = list(flat([*tape.nodes.values(), *(example for example, _ in tape.asked)]))
    seen = [told(example, known) for example, _ in tape.asked]
    inputs = [told(node.meta["example_value"], known) for node in tape.nodes.values()]
    effects = [node.name for node in tape.builder.mutated()], tape.builder.record.random
    return (seen, inputs, effects, raised), tape.hits


def tensors() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return {
        "x": torch.randn(4, 6),
        "y": torch.randn(4, 6),
        "i": torch.arange(24).reshape(4, 6),
        "t": torch.randn(6, 4).t(),
        "w": torch.nn.Parameter(torch.randn(6, 6)),
        "b": torch.nn.Parameter(torch.randn(6)),
        "c": torch.randn(3, 4, dtype=torch.complex64),
        "image": torch.randn(1, 4, 6, 6),
    }


def repeat(*calls: tuple[Any, ...], times: int = 3) -> Callable[[Tape], None]:
    """The same calls on the inputs named by strings with a dot."""

    def program(tape: Tape) -> None:
        for _ in range(times):
            for target, *args in calls:
                tape(target, *[named(tape, arg) for arg in args])

    return program


def named(tape: Tape, arg: Any) -> Any:
    if isinstance(arg, str) and arg.startswith("."):
        return tape.nodes[arg[1:]]
    if isinstance(arg, (list, tuple)):
        return type(arg)(named(tape, item) for item in arg)
    return arg


def views_of_views(tape: Tape) -> None:
    for each in (tape.x, tape.y, tape.x):
        tape(operator.getitem, tape("t", each), 1)
        tape("view", tape(operator.getitem, each, slice(1, 3)), -1)


REPEATED: dict[str, Callable[[Tape], None]] = {
    "fresh": repeat((torch.abs, ".x"), (operator.add, ".x", ".y"), (F.gelu, ".x"), (torch.matmul, ".x", ".w")),
    "linear": repeat((F.linear, ".x", ".w", ".b"), (F.linear, ".y", ".w", None), (F.linear, ".t", ".w", ".b")),
    "numbers that are equal": repeat(
        *((operator.mul, ".i", number) for number in (1, True, 1.0, 1j)),
        *((torch.full, (2, 3), number) for number in (1, True, 1.0, 0.0, -0.0, float("nan"))),
        *((torch.sum, ".i", number, keep) for number in (0, 1) for keep in (True, False)),
    ),
    "strides": repeat(*((torch.relu, name) for name in (".x", ".t")), *(("contiguous", n) for n in (".x", ".t"))),
    "memory formats": repeat(
        ("contiguous", ".image"),
        (torch.conv2d, ".image", ".image"),
        *(("to", ".image", dtype, False, True) for dtype in (torch.float64, torch.float32)),
        *((torch.empty_permuted, (2, 3, 4), order) for order in ((0, 1, 2), (2, 0, 1))),
    ),
    "views": repeat(
        *((operator.getitem, ".x", index) for index in (0, slice(1, 3), (slice(None), 2), (None, 1), (..., 0))),
        *((("view", ".x", 24)), ("view", ".x", (2, 12)), ("expand", ".b", 5, 6), ("transpose", ".x", 0, 1)),
        *((getattr, ".x", "T"), (getattr, ".c", "real"), ("unsqueeze", ".x", 0), ("narrow", ".x", 0, 1, 2)),
        *(("reshape", ".x", (24,)), ("reshape", ".t", (24,)), ("flatten", ".t"), ("detach", ".x"), ("detach", ".w")),
        *((getattr, ".x", "data"), (torch.as_strided, ".x", (2, 2), (1, 1), 3), ("view", ".x", torch.int32)),
    ),
    "views of views": views_of_views,
    "several views": repeat(
        ("split", ".x", 2), ("chunk", ".x", 3, 1), ("unbind", ".x"), (torch.broadcast_tensors, ".x", ".b")
    ),
    "several results": repeat(
        (torch.max, ".x", 1), (torch.topk, ".x", 2), (torch.sort, ".x"), (torch.var_mean, ".x"), (torch.frexp, ".x")
    ),
    "itself": repeat(
        ("contiguous", ".x"), ("to", ".x", torch.float32), (F.dropout, ".x", 0.5, False), ("expand_as", ".x", ".x")
    ),
    "the same argument twice": repeat(
        (operator.mul, ".x", ".x"),
        (operator.mul, ".x", ".y"),
        (torch.broadcast_tensors, ".x", ".x"),
        (torch.cat, [".x", ".x"]),
    ),
    "conjugate": repeat((torch.conj, ".c"), (operator.mul, ".c", ".c"), (torch.view_as_real, ".c")),
    "random": repeat((torch.rand_like, ".x"), (F.dropout, ".x", 0.5, True), (torch.randn, 2, 3)),
    "makers": repeat(
        (torch.zeros, 2, 3), (torch.arange, 5), (torch.arange, 5.0), (torch.ones_like, ".x"), (torch.tensor, 3.0)
    ),
    "attention": repeat((F.scaled_dot_product_attention, ".image", ".image", ".image")),
    "errors": repeat((torch.abs, ".x"), (torch.matmul, ".x", ".y")),
}


def in_place(name: str, *args: Any, on: str = "x") -> Callable[[Tape], None]:
    """Before and after a method that changes its own tensor, twice."""

    def program(tape: Tape) -> None:
        for _ in range(2):
            for each in (tape.nodes[on], tape.y):
                tape(torch.abs, each)
                tape(torch.sum, each, 0)
            tape(name, tape.nodes[on], *[named(tape, arg) for arg in args])
            tape(torch.abs, tape.nodes[on])

    return program


CHANGING = {
    "t_": in_place("t_"),
    "transpose_": in_place("transpose_", 0, 1),
    "unsqueeze_": in_place("unsqueeze_", 0),
    "squeeze_": in_place("squeeze_"),
    "resize_": in_place("resize_", (2, 2)),
    "as_strided_": in_place("as_strided_", (2, 2), (1, 2)),
    "swapaxes_": in_place("swapaxes_", 0, 1),
    "add_": in_place("add_", 1),
    "add_ parameter": in_place("add_", ".b"),
    "requires_grad_": in_place("requires_grad_"),
    "detach_": in_place("detach_"),
    "set_": in_place("set_", ".image"),
    "zero_ of integers": in_place("zero_", on="i"),
}


def through_a_view(tape: Tape) -> None:
    """A view that comes from the memo is written to: it is its base's memory that changes."""
    for each in (tape.y, tape.x):
        tape("add_", tape("view", tape("abs", each), -1), 1)
        row = tape(operator.getitem, each, 0)
        tape(torch.abs, row)
    tape("mul_", row, 2)
    tape(torch.abs, row)


def a_list_that_grows(tape: Tape) -> None:
    """The list is one object; what it holds is what counts."""
    parts = [tape.x]
    for each in (tape.y, tape.x, tape.i, tape.t):
        tape(torch.cat, parts)
        parts.append(each)
    tape(torch.cat, parts[:2])


def state_between(set_: Callable[[Any], Any], values: tuple[Any, ...]) -> Callable[[Tape], None]:
    """The same calls while the state of the process changes."""

    def program(tape: Tape) -> None:
        before = torch.get_default_dtype(), torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")
        try:
            for value in values:
                set_(value)
                tape(F.linear, tape.x, tape.w, tape.b)
                tape(torch.matmul, tape.x, tape("t", tape.y))
                tape(torch.true_divide, tape.i, 2)
                tape(torch.zeros, 3)
                tape(operator.getitem, tape.x, 0)
        finally:
            torch.set_default_dtype(before[0])
            torch.set_grad_enabled(before[1])
            torch.set_autocast_enabled("cpu", before[2])

    return program


STATES = {
    "autocast": state_between(lambda on: torch.set_autocast_enabled("cpu", on), (False, True, True, False, True)),
    "default dtype": state_between(torch.set_default_dtype, (torch.float32, torch.float64, torch.float32)),
    "grad": state_between(torch.set_grad_enabled, (True, False, True, False)),
}
PROGRAMS = {**REPEATED, **CHANGING, **STATES, "through a view": through_a_view, "list": a_list_that_grows}


@contextmanager
def both(*contexts: Any) -> Iterator[None]:
    for context in contexts:
        context.__enter__()
    try:
        yield
    finally:
        for context in reversed(contexts):
            context.__exit__(None, None, None)


MODES: dict[str, Callable[[], Any]] = {
    "grad": torch.enable_grad,
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: both(torch.autocast("cpu"), torch.no_grad()),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_remembered_answer_is_the_answer(name: str, mode: str) -> None:
    with MODES[mode]():
        with_memo, hits = run(True, tensors, PROGRAMS[name])
    with MODES[mode]():
        without, none = run(False, tensors, PROGRAMS[name])
    assert with_memo == without
    assert none == 0
    if mode == "no_grad" and name in REPEATED and name not in ("conjugate", "errors"):
        assert hits > 0


def test_inference_remembers_nearly_all() -> None:
    with torch.no_grad():
        _, hits = run(True, tensors, repeat((F.linear, ".x", ".w", ".b"), ("view", ".x", 24), times=10))
    assert hits == 18


def test_gradients_are_followed_for_real() -> None:
    _, hits = run(True, tensors, repeat((F.linear, ".x", ".w", ".b"), (operator.getitem, ".x", 0)))
    assert hits == 0


def test_a_view_without_gradients_is_not_written_with_them() -> None:
    """Autograd would object, or follow the write to the base: that is eager's to say."""

    def program(tape: Tape) -> None:
        with torch.no_grad():
            rows = [tape(operator.getitem, each, 0) for each in (tape.x, tape.y)]
        tape("add_", rows[1], tape.b)

    (_, _, _, raised), hits = run(True, tensors, program)
    assert hits == 1 and raised is not None
    _, _, _, raised = run(False, tensors, program)[0]
    assert raised is not None


def test_a_function_of_the_users_is_always_run() -> None:
    calls = []

    def own(x: torch.Tensor) -> torch.Tensor:
        calls.append(x)
        return x + len(calls)

    with torch.no_grad():
        run(True, tensors, repeat((own, ".x")))
    assert len(calls) == 3


def test_modes_of_the_users_see_every_operation() -> None:
    class Counting(torch.overrides.TorchFunctionMode):
        seen = 0

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            Counting.seen += func is torch.abs
            return func(*args, **(kwargs or {}))

    with torch.no_grad(), Counting():
        _, hits = run(True, tensors, repeat((torch.abs, ".x")))
    assert hits == 0
    assert Counting.seen == 3


def test_a_transform_is_not_remembered() -> None:
    tape = Tape(True, tensors())
    asked: list[Any] = []

    def body(x: torch.Tensor) -> torch.Tensor:
        asked.append(FakeCache(tape.builder.record).question("call_function", torch.abs, (tape.x,), {}))
        return x

    torch.func.vmap(body)(torch.ones(3))
    assert asked == [None]


# -- inputs -----------------------------------------------------------------------------------------------------------
def with_gradient() -> torch.Tensor:
    tensor = torch.nn.Parameter(torch.randn(6, 6))
    tensor.grad = torch.ones(6, 6)
    return tensor


def described() -> torch.Tensor:
    tensor = torch.randn(6, 6)
    tensor.note = "mine"  # type: ignore[attr-defined]
    return tensor


def sharing() -> dict[str, torch.Tensor]:
    weight = torch.nn.Parameter(torch.randn(6, 6))
    buffer = torch.randn(6, 6)
    return {
        **{f"like{index}": torch.nn.Parameter(torch.randn(6, 6)) for index in range(2)},
        "weight": weight,
        "row": weight[1],
        "data": weight.data,
        "again": torch.nn.Parameter(weight),
        "detached": weight.detach(),
        "buffer": buffer,
        "turned": buffer.t(),
        "part": buffer.data[2:],
    }


def kinds() -> dict[str, torch.Tensor]:
    made = {
        "plain": lambda: torch.randn(6, 6),
        "parameter": lambda: torch.nn.Parameter(torch.randn(6, 6)),
        "frozen": lambda: torch.nn.Parameter(torch.randn(6, 6), requires_grad=False),
        "buffer": lambda: torch.nn.Buffer(torch.randn(6, 6)),
        "leaf": lambda: torch.randn(6, 6, requires_grad=True),
        "result": lambda: torch.randn(6, 6, requires_grad=True) * 2,
        "number": lambda: torch.tensor(3),
        "double": lambda: torch.tensor(3.0, dtype=torch.float64),
        "integers": lambda: torch.arange(36).reshape(6, 6).clone(),
        "turned": lambda: torch.randn(6, 6).t().clone(memory_format=torch.preserve_format),
        "wide": lambda: torch.randn(1, 6).expand(6, 6).data,
        "tail": lambda: torch.randn(42).data[6:].reshape(6, 6).data,
        "empty": lambda: torch.empty(0, 6),
        "complex": lambda: torch.randn(6, 6, dtype=torch.complex64),
        "conjugate": lambda: torch.randn(6, 6, dtype=torch.complex64).conj(),
        "gradient": with_gradient,
        "described": described,
    }
    return {f"{name}{index}": make() for index in range(3) for name, make in made.items()}


@pytest.mark.parametrize("make", [sharing, kinds, tensors], ids=lambda make: make.__name__)
def test_stand_ins_made_after_a_pattern_are_those_torch_makes(
    make: Callable[[], dict[str, torch.Tensor]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def seen() -> Any:
        torch.manual_seed(0)
        real = make()
        tape = Tape(False, real)
        fakes = [tape.nodes[name].meta["example_value"] for name in real]
        grads = [fake.grad is not None for fake in fakes if fake.is_leaf]
        views = [(fake._is_view(), [fake._base is other for other in fakes]) for fake in fakes]
        tape(
            "add_",
            tape(getattr, tape.nodes[next(name for name in real if name in ("weight", "plain0", "x"))], "data"),
            1,
        )
        return [told(fake, fakes) for fake in fakes], grads, views, [node.name for node in tape.builder.mutated()]

    by_pattern = seen()
    monkeypatch.setattr("torchdynamo.graph.input_fakes.is_plain", lambda *_: False)
    assert by_pattern == seen()


def test_most_parameters_are_made_after_a_pattern() -> None:
    builder = GraphBuilder()
    made: list[Any] = []
    convert = builder.fake_mode.from_tensor

    def counted(tensor: torch.Tensor, **settings: Any) -> Any:
        made.append(tensor)
        return convert(tensor, **settings)

    builder.fake_mode.from_tensor = counted  # type: ignore[method-assign]
    for index in range(10):
        builder.input(f"p{index}", torch.nn.Parameter(torch.randn(3, 4)), local(f"p{index}"), True)
    assert len(made) == 1
