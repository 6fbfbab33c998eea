"""The examples of the documentation, as their readers run them."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch
import torch.nn.functional as F

import torchdynamo
from torchdynamo.optimizations import BACKENDS


def toy_example(a, b):
    x = a / (torch.abs(a) + 1)
    if b.sum() < 0:
        b = b * -1
    return x * b


@pytest.fixture(autouse=True)
def same_numbers():
    torch.manual_seed(0)


class Printing:
    """A backend that prints each graph and counts them."""

    def __init__(self):
        self.graphs = []

    def __call__(self, gm, example_inputs):
        print("my_compiler() called with FX graph:")
        gm.graph.print_tabular()
        self.graphs.append(gm.graph)
        return gm.forward


def rows(graph):
    return [
        (n.op, n.name, n.target if isinstance(n.target, str) else n.target.__name__, str(n.args)) for n in graph.nodes
    ]


def test_toy_example(capsys):
    my_compiler = Printing()
    with torchdynamo.optimize(my_compiler):
        for _ in range(100):
            toy_example(torch.randn(10), torch.randn(10))
    assert len(my_compiler.graphs) == 3
    first, *others = my_compiler.graphs
    assert rows(first) == [
        ("placeholder", "a", "a", "()"),
        ("placeholder", "b", "b", "()"),
        ("call_function", "abs_1", "abs", "(a,)"),
        ("call_function", "add", "add", "(abs_1, 1)"),
        ("call_function", "truediv", "truediv", "(a, add)"),
        ("call_method", "sum_1", "sum", "(b,)"),
        ("call_function", "lt", "lt", "(sum_1, 0)"),
        ("output", "output", "output", "((truediv, lt),)"),
    ]
    negate = [
        ("placeholder", "b", "b", "()"),
        ("placeholder", "x", "x", "()"),
        ("call_function", "mul", "mul", "(b, -1)"),
        ("call_function", "mul_1", "mul", "(x, mul)"),
        ("output", "output", "output", "((mul_1,),)"),
    ]
    plain = [
        ("placeholder", "b", "b", "()"),
        ("placeholder", "x", "x", "()"),
        ("call_function", "mul", "mul", "(x, b)"),
        ("output", "output", "output", "((mul,),)"),
    ]
    assert sorted(map(rows, others)) == sorted([negate, plain])
    assert "placeholder    a        a " in capsys.readouterr().out


def test_toy_example_gives_eagers_results():
    compiled = torchdynamo.compile(toy_example, backend="eager")
    for _ in range(20):
        a, b = torch.randn(10), torch.randn(10)
        assert torch.equal(compiled(a, b), toy_example(a, b))


def test_nopython_raises_in_the_users_words():
    with pytest.raises(torchdynamo.exc.Unsupported) as caught, torchdynamo.optimize(Printing(), nopython=True):
        toy_example(torch.randn(10), torch.randn(10))
    lines = str(caught.value).splitlines()
    assert lines[0] == "generic_jump TensorVariable()"
    assert lines[1] == "Processing original code:"
    line = toy_example.__code__.co_firstlineno + 2
    assert lines[2] == f'  File "{__file__}", line {line}, in toy_example'
    assert lines[3] == "    if b.sum() < 0:"
    assert "^" in lines[4]
    assert "torch.where" in str(caught.value)
    frames = [entry.path for entry in caught.traceback]
    assert all(str(path) == __file__ or "_pytest" in str(path) for path in frames)


def test_debug_prints_graph_bytecode_and_guards(capsys):
    def sub(a, b):
        return torch.sub(a, b)

    for fn in (sub, toy_example):
        with torchdynamo.config.patch(debug=True), torchdynamo.optimize("eager"):
            fn(torch.randn(3), torch.randn(3))
        out = capsys.readouterr().out
        assert "__compiled_fn_" in out
        assert "ORIGINAL BYTECODE" in out and "MODIFIED BYTECODE" in out
        assert " - local 'a' TENSOR_MATCH" in out
        assert " - global 'torch' FUNCTION_MATCH" in out
    assert "__resume_at_" in out


class DynamicModule(torch.nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x * x
        return 3 * x


def test_graph_breaks_where_symbolic_tracing_fails():
    with pytest.raises(torch.fx.proxy.TraceError):
        torch.fx.symbolic_trace(DynamicModule())
    graphs = Printing()
    model = torchdynamo.compile(DynamicModule(), backend=graphs)
    x = torch.rand(10)
    assert torch.equal(model(x), x * x)
    assert torch.equal(model(-x), -3 * x)
    model(x), model(-x)
    assert len(graphs.graphs) == 3


class MyModule(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self._linear = torch.nn.Linear(100, 3)
        self._dropout = torch.nn.Dropout(p=0.3)

    def forward(self, x):
        return self._dropout(self._linear(x))


def test_a_backend_that_rewrites_the_graph():
    def without_dropout(gm, example_inputs):
        graph = copy.deepcopy(gm.graph)
        found = [node for node in graph.nodes if node.target is F.dropout]
        assert len(found) == 1
        for node in found:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
        graph.lint()
        return torch.fx.GraphModule(gm, graph).forward

    module = MyModule()
    x = torch.randn(10, 100)
    out = torchdynamo.compile(module, backend=without_dropout)(x)
    assert torch.equal(out, module._linear(x))


def test_backends_tried_in_turn():
    tried = []

    def my_compiler(gm, example_inputs):
        for name in ("tensorrt", "cudagraphs"):
            compiled = BACKENDS[name](gm, example_inputs)
            tried.append((name, compiled))
            if compiled is not None:
                return compiled
        return gm.forward

    x = torch.randn(4)
    assert torch.equal(torchdynamo.compile(lambda x: x * 2 + 1, backend=my_compiler)(x), x * 2 + 1)
    assert tried == [("tensorrt", None), ("cudagraphs", None)]


def test_optimize_for_inference_as_a_decorator():
    @torchdynamo.optimize("ofi")
    def fn(a, b):
        return torch.relu(a @ b)

    a, b = torch.randn(4, 4), torch.randn(4, 4)
    with torch.no_grad():
        torch.testing.assert_close(fn(a, b), torch.relu(a @ b))


def test_run_mode_compiles_nothing():
    counter = Printing()
    with torchdynamo.optimize(counter):
        toy_example(torch.ones(10), torch.ones(10))
    before = len(counter.graphs)
    with torchdynamo.run():
        for size, sign in itertools.product((5, 10, 11), (1, -1)):
            a, b = torch.randn(size), torch.full((size,), float(sign))
            assert torch.equal(toy_example(a, b), a / (torch.abs(a) + 1) * b * sign)
    assert len(counter.graphs) == before
