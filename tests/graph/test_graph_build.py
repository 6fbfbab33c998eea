"""Building a graph: names and tables as documented, stand-ins, and failures that leave nothing behind."""

from __future__ import annotations

import gc
import logging
import operator
import warnings
import weakref
from typing import Any

import pytest
import torch
import torch.fx

from torchdynamo.core.source import Position, Source, local
from torchdynamo.graph import GraphBuilder, GraphError, OperatorError
from torchdynamo.graph.check import check
from torchdynamo.graph.errors import (
    DataDependent,
    DynamicOutputShape,
    FakeError,
    NoFakeKernel,
    UnsupportedOperator,
    UnsupportedTensor,
)
from torchdynamo.graph.mutation import effects_of, makes_leaves, mutated_inputs

HERE = Position("no such/example.py", 7, function="toy_example")


class Tape:
    """GraphBuilder with less to write."""

    def __init__(self, **tensors: torch.Tensor) -> None:
        self.builder = GraphBuilder()
        self.fakes: dict[str, Any] = {}
        self.nodes: dict[str, torch.fx.Node] = {}
        for name, tensor in tensors.items():
            self.input(name, tensor)

    def input(self, name: str, tensor: torch.Tensor, static: bool = False) -> torch.fx.Node:
        self.nodes[name], self.fakes[name] = self.builder.input(name, tensor, local(name), static)
        return self.nodes[name]

    def call(self, target: Any, *args: Any, **kwargs: Any) -> torch.fx.Node:
        op = "call_method" if isinstance(target, str) else "call_function"
        return self.builder.call(op, target, args, kwargs, HERE)[0]

    def example(self, target: Any, *args: Any, **kwargs: Any) -> Any:
        return self.call(target, *args, **kwargs).meta["example_value"]


def table(gm: torch.fx.GraphModule, capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    """The printed table, as rows of cells; addresses of builtins are not part of it."""
    gm.graph.print_tabular()
    lines = capsys.readouterr().out.splitlines()
    starts = [0]
    for column, (ruler, following) in enumerate(zip(lines[1], lines[1][1:], strict=False)):
        if ruler == " " and following == "-":
            starts.append(column + 1)
    bounds = list(zip(starts, [*starts[1:], None], strict=True))
    rows = [[line[a:b].strip() for a, b in bounds] for line in [lines[0], *lines[2:]]]
    return [[cell.split(" at 0x")[0] for cell in row] for row in rows]


def test_the_documented_first_graph(capsys: pytest.CaptureFixture[str]) -> None:
    tape = Tape(a=torch.randn(10))
    a = tape.nodes["a"]
    x = tape.call(operator.truediv, a, tape.call(operator.add, tape.call(torch.abs, a), 1))
    b = tape.input("b", torch.randn(10))
    gm = tape.builder.finish([x, tape.call(operator.lt, tape.call("sum", b), 0)])
    check(gm)
    assert table(gm, capsys) == [
        ["opcode", "name", "target", "args", "kwargs"],
        ["placeholder", "a", "a", "()", "{}"],
        ["placeholder", "b", "b", "()", "{}"],
        ["call_function", "abs_1", "<built-in method abs of type object", "(a,)", "{}"],
        ["call_function", "add", "<built-in function add>", "(abs_1, 1)", "{}"],
        ["call_function", "truediv", "<built-in function truediv>", "(a, add)", "{}"],
        ["call_method", "sum_1", "sum", "(b,)", "{}"],
        ["call_function", "lt", "<built-in function lt>", "(sum_1, 0)", "{}"],
        ["output", "output", "output", "((truediv, lt),)", "{}"],
    ]


def test_the_documented_second_graph(capsys: pytest.CaptureFixture[str]) -> None:
    tape = Tape(b=torch.randn(10), x=torch.randn(10))
    product = tape.call(operator.mul, tape.nodes["x"], tape.call(operator.mul, tape.nodes["b"], -1))
    gm = tape.builder.finish([product])
    check(gm)
    assert table(gm, capsys)[1:] == [
        ["placeholder", "b", "b", "()", "{}"],
        ["placeholder", "x", "x", "()", "{}"],
        ["call_function", "mul", "<built-in function mul>", "(b, -1)", "{}"],
        ["call_function", "mul_1", "<built-in function mul>", "(x, mul)", "{}"],
        ["output", "output", "output", "((mul_1,),)", "{}"],
    ]


def test_an_input_may_come_late_and_is_named_after_its_source() -> None:
    tape = Tape(x=torch.randn(2, 3))
    tape.call("relu", tape.nodes["x"])
    weight = tape.input("self_fc1_weight", torch.randn(3), static=True)
    again = tape.input("x", torch.randn(3))
    builtin = tape.input("sum", torch.randn(3))
    assert [str(node) for node in (weight, again, builtin)] == ["self_fc1_weight", "x_1", "sum_1"]
    assert [node.op for node in tape.builder.graph.nodes] == ["placeholder"] * 4 + ["call_method"]
    assert weight.meta["static_input"]
    assert weight.meta["source"].path is local("self_fc1_weight")
    assert again.target == "x_1"


def test_finish_orders_inputs_and_drops_unused_ones() -> None:
    tape = Tape(a=torch.randn(3), unused=torch.randn(3), b=torch.randn(3), c=torch.randn(3))
    a, unused, b, c = tape.nodes.values()
    total = tape.call(operator.add, tape.call(operator.add, a, b), c)
    gm = tape.builder.finish([total], order=[c, unused, a])
    check(gm)
    assert [node.name for node in gm.graph.find_nodes(op="placeholder")] == ["c", "a", "b"]
    ones = torch.ones(3)
    assert torch.equal(gm(ones, 2 * ones, 3 * ones)[0], 6 * ones)


def test_unused_results_go_but_operations_stay() -> None:
    tape = Tape(a=torch.randn(4, 3))
    parts = tape.call(torch.split, tape.nodes["a"], 2)
    first, _ = tape.builder.getitem(parts, 0)
    tape.builder.getitem(parts, 1)
    tape.call(operator.getitem, tape.nodes["a"], 3)  # may raise: stays
    gm = tape.builder.finish([first])
    check(gm)
    assert [node.name for node in gm.graph.nodes if node.op == "call_function"] == ["split", "getitem", "getitem_2"]


def test_nodes_carry_example_and_position_only() -> None:
    tape = Tape(a=torch.randn(3))
    node = tape.call("relu", tape.nodes["a"])
    assert set(node.meta) == {"example_value", "stack_trace"}
    assert node.meta["stack_trace"] == 'File "no such/example.py", line 7, in toy_example'


# -- stand-ins ---------------------------------------------------------------------------------------------------------
def test_a_parameter_stays_a_parameter() -> None:
    tape = Tape(w=torch.nn.Parameter(torch.randn(3, 3)), x=torch.randn(3).requires_grad_())
    w, x = tape.fakes["w"], tape.fakes["x"]
    assert isinstance(w, torch.nn.Parameter)
    assert w.requires_grad
    assert w.is_leaf
    assert not isinstance(x, torch.nn.Parameter)
    assert x.requires_grad
    assert x.is_leaf


def test_a_view_keeps_strides_offset_and_base() -> None:
    base = torch.randn(4, 5)
    tape = Tape(v=base.t()[1:], base=base)
    view = tape.fakes["v"]
    assert (view.shape, view.stride(), view.storage_offset()) == ((4, 4), (1, 5), 1)
    assert view._is_view()
    assert view._base is tape.fakes["base"]


def test_results_have_the_types_of_the_operation() -> None:
    tape = Tape(x=torch.randn(4, 6))
    x = tape.nodes["x"]
    largest = tape.example(torch.max, x, 1)
    assert type(largest) is torch.return_types.max
    assert largest.indices.dtype == torch.int64
    assert type(tape.example(torch.split, x, 2)) is tuple
    assert tape.example("size", x) == torch.Size([4, 6])
    assert tape.example("unbind", x, 0)[3].shape == (6,)


def test_nested_arguments() -> None:
    tape = Tape(x=torch.randn(4), i=torch.tensor([1, 2]))
    x, i = tape.nodes["x"], tape.nodes["i"]
    assert tape.example(torch.cat, [x, x]).shape == (8,)
    assert tape.example(operator.getitem, x, (i,)).shape == (2,)
    assert tape.example(operator.getitem, x, slice(1, 3)).shape == (2,)
    check(tape.builder.finish([tape.call(torch.stack, (x, x), dim=0), i]))


def test_factories_make_stand_ins_and_draw_nothing() -> None:
    before = torch.get_rng_state()
    tape = Tape(x=torch.zeros(3))
    assert tape.example(torch.rand, (2, 3)).shape == (2, 3)
    assert tape.example(torch.nn.functional.dropout, tape.nodes["x"]).shape == (3,)
    assert tape.example(torch.tensor, [1.0, 2.0]).dtype == torch.float32
    assert torch.equal(before, torch.get_rng_state())


def test_modes_of_the_process_hold_and_mode_nodes_change_them() -> None:
    tape = Tape(x=torch.randn(3).requires_grad_())
    try:
        assert tape.example("sin", tape.nodes["x"]).requires_grad
        assert tape.example(torch._C._set_grad_enabled, False) is None
        assert not tape.example("sin", tape.nodes["x"]).requires_grad
    finally:
        torch._C._set_grad_enabled(True)


# -- failures ----------------------------------------------------------------------------------------------------------
FAILURES: list[tuple[Any, tuple[Any, ...], type[GraphError]]] = [
    ("item", ("s",), DataDependent),
    ("tolist", ("a",), DataDependent),
    (operator.truth, ("s",), DataDependent),
    (torch.equal, ("a", "a"), DataDependent),
    (torch.nonzero, ("a",), DynamicOutputShape),
    (torch.unique, ("a",), DynamicOutputShape),
    ("numpy", ("a",), UnsupportedOperator),
    ("data_ptr", ("a",), UnsupportedOperator),
    (torch.mm, ("a", "a"), OperatorError),
    (torch.add, ("a", "text"), OperatorError),
    ("no_such_method", ("a",), OperatorError),
    (operator.getitem, ("a", 99), OperatorError),
]


@pytest.mark.parametrize(
    ("target", "args", "error"), FAILURES, ids=[getattr(row[0], "__name__", row[0]) for row in FAILURES]
)
def test_a_failure_leaves_no_node(
    target: Any, args: tuple[Any, ...], error: type[GraphError], caplog: pytest.LogCaptureFixture
) -> None:
    tape = Tape(a=torch.randn(3), s=torch.tensor(1.0))
    with pytest.raises(GraphError) as caught:
        tape.call(target, *[tape.nodes.get(arg, arg) for arg in args])
    assert type(caught.value) is error
    assert [node.name for node in tape.builder.graph.nodes] == ["a", "s"]
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert str(tape.call(torch.abs, tape.nodes["a"])) == "abs_1"


def test_an_operator_error_carries_the_original() -> None:
    tape = Tape(a=torch.randn(3))
    with pytest.raises(OperatorError) as caught:
        tape.call(operator.getitem, tape.nodes["a"], 99)
    assert isinstance(caught.value.original, IndexError)
    assert caught.value.fields["name"] == "getitem"


def test_an_operator_without_a_rule() -> None:
    with torch.library._scoped_library("torchdynamo_tests", "FRAGMENT") as library:
        library.define("no_rule(Tensor x) -> Tensor")
        library.impl("no_rule", lambda x: x.clone(), "CPU")
        tape = Tape(a=torch.randn(3))
        with pytest.raises(NoFakeKernel):
            tape.call(torch.ops.torchdynamo_tests.no_rule.default, tape.nodes["a"])


def test_a_rule_that_fails_is_not_the_users_error() -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        raise AssertionError("inside")

    tape = Tape(a=torch.randn(3))
    with pytest.raises(FakeError):
        tape.call(broken, tape.nodes["a"])


def test_a_tensor_without_a_stand_in_leaves_no_placeholder() -> None:
    builder = GraphBuilder()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantized = torch.quantize_per_tensor(torch.randn(3), 0.1, 0, torch.qint8)
    with pytest.raises(UnsupportedTensor):
        builder.input("q", quantized, local("q"), False)
    assert not list(builder.graph.nodes)
    node, _ = builder.input("a", torch.randn(3), local("a"), False)
    assert list(builder.graph.nodes) == [node]


def test_a_node_can_be_taken_back() -> None:
    tape = Tape(a=torch.randn(3))
    tape.builder.erase(tape.call("size", tape.nodes["a"]))
    b = tape.input("b", torch.randn(3))
    tape.builder.erase(b)
    c = tape.input("c", torch.randn(3))
    assert list(tape.builder.graph.nodes) == [tape.nodes["a"], c]


# -- effects -----------------------------------------------------------------------------------------------------------
def effects(build: Any, **tensors: torch.Tensor) -> tuple[set[str], bool]:
    tape = Tape(**tensors)
    result = build(tape, *tape.nodes.values())
    gm = tape.builder.finish([result, *tape.nodes.values()])
    check(gm)
    return mutated_inputs(gm), effects_of(gm).random


def test_pure_graphs_have_no_effects() -> None:
    assert effects(lambda t, a: t.call(torch.sin, a), a=torch.randn(3)) == (set(), False)
    still = effects(lambda t, a: t.call(torch.nn.functional.dropout, a, training=False), a=torch.randn(3))
    assert still == (set(), False)


def test_writes_are_seen_wherever_they_hide() -> None:
    a, b = torch.randn(4), torch.randn(4)
    assert effects(lambda t, a, b: t.call("add_", a, b), a=a, b=b)[0] == {"a"}
    assert effects(lambda t, a, b: t.call("mul_", t.call("view", a, 2, 2), 2), a=a, b=b)[0] == {"a"}
    assert effects(lambda t, a, b: t.call("mul_", t.call(getattr, a, "data"), 2), a=a, b=b)[0] == {"a"}
    assert effects(lambda t, a, b: t.call(torch.add, a, a, out=b), a=a, b=b)[0] == {"b"}
    assert effects(lambda t, a, b: t.call(operator.setitem, a, 0, 1.0) and a, a=a, b=b)[0] == {"a"}
    assert effects(lambda t, a, b: t.call("add_", t.call(operator.add, a, b), 1), a=a, b=b)[0] == set()


def test_inputs_that_share_memory_change_together() -> None:
    base = torch.randn(4, 4)
    assert effects(lambda t, v, base: t.call("zero_", v), v=base[0], base=base)[0] == {"v", "base"}


def test_running_statistics_are_written() -> None:
    def norm(tape: Tape, x: Any, mean: Any, var: Any) -> Any:
        return tape.call(torch.nn.functional.batch_norm, x, mean, var, training=True)

    assert effects(norm, x=torch.randn(2, 3), mean=torch.zeros(3), var=torch.ones(3))[0] == {"mean", "var"}


def test_random_numbers_are_seen() -> None:
    assert effects(lambda t, a: t.call(torch.nn.functional.dropout, a), a=torch.randn(3))[1]
    assert effects(lambda t, a: t.call(torch.rand_like, a), a=torch.randn(3))[1]


def test_dropout_of_nothing_draws_nothing() -> None:
    def attention(p: float) -> bool:
        def build(tape: Tape, q: Any) -> Any:
            return tape.call(torch.nn.functional.scaled_dot_product_attention, q, q, q, dropout_p=p)

        return effects(build, q=torch.randn(1, 2, 4, 8))[1]

    def rrelu(training: bool) -> bool:
        return effects(lambda t, a: t.call(torch.nn.functional.rrelu, a, training=training), a=torch.randn(3))[1]

    assert [attention(0.0), attention(0.1), rrelu(False), rrelu(True)] == [False, True, False, True]
    native = torch.native_dropout
    assert [
        effects(lambda t, a, on=on: t.call(operator.getitem, t.call(native, a, 0.5, on), 0), a=torch.ones(3))[1]
        for on in (True, None)
    ] == [
        True,
        True,
    ]


def test_view_of_a_parameter_is_no_new_leaf_unless_it_is_returned() -> None:
    def of(build: Any) -> bool:
        tape = Tape(a=torch.nn.Parameter(torch.randn(4)))
        with torch.no_grad():
            result = build(tape, *tape.nodes.values())
        return makes_leaves(tape.builder.finish([result, *tape.nodes.values()]))

    assert not of(lambda t, a: t.call(torch.sin, t.call("view", a, 2, 2)))
    assert of(lambda t, a: t.call("view", a, 2, 2))


def test_writes_under_inference_mode_are_seen() -> None:
    with torch.inference_mode():
        assert effects(lambda t, a: t.call("add_", a, 1), a=torch.randn(3))[0] == {"a"}


def test_a_graph_nobody_watched_may_do_anything() -> None:
    gm = torch.fx.symbolic_trace(lambda a, b: a + b)
    assert mutated_inputs(gm) == {"a", "b"}
    assert effects_of(gm).random


def test_a_graph_owns_no_parameter() -> None:
    model = torch.nn.Linear(3, 3)
    tape = Tape(x=torch.randn(2, 3))
    weight, _ = tape.builder.input("weight", model.weight, Source("local", None, "w"), True)
    gm = tape.builder.finish([tape.call(torch.nn.functional.linear, tape.nodes["x"], weight)])
    died = weakref.ref(model.weight)
    del model, tape, weight
    gc.collect()
    assert died() is None
    assert gm is not None
