"""Where a backward is cut, on an accelerator: parts are long, and get shorter at the end."""

import itertools
import operator

import torch
import torch.fx
from torch.fx.experimental.proxy_tensor import make_fx

from torchdynamo.backends.cut_backward import LEAST_WORK, places

ROWS, WIDTH = 8192, 4096
LAYER = 4 * ROWS * WIDTH * WIDTH  # operations of a layer's two products


def backward(slope, ids, *layers):
    """The gradients of linear layers, the last one's first, and of an embedding before them."""
    found = []
    for weight, x in zip(layers[::2], layers[1::2]):
        found.append(slope.t() @ x)
        slope = slope @ weight
    return *found, torch.ops.aten.embedding_dense_backward(slope, ids, 50000, -1, False)


def traced(layers: int) -> torch.fx.GraphModule:
    slope = torch.empty(ROWS, WIDTH, device="meta")
    ids = torch.empty(ROWS, dtype=torch.int64, device="meta")
    both = [torch.empty(WIDTH, WIDTH, device="meta"), slope]
    return make_fx(backward)(slope, ids, *both * layers)


def parts(gm: torch.fx.GraphModule, order: tuple[int, ...], most: int = 16) -> list[int]:
    """Return how many products each part has."""
    after, found = places(gm, order, most), [0]
    for node in gm.graph.nodes:
        found[-1] += node.target is torch.ops.aten.mm.default
        if node in after:
            found.append(0)
    return found


def test_parts_are_long_and_get_shorter_at_the_end():
    *found, last = parts(traced(24), tuple(range(25)))
    assert 4 < len(found) < 16 and found[0] * LAYER / 2 >= LEAST_WORK
    assert all(after <= before + 1 for before, after in itertools.pairwise(found))
    assert found[-1] <= 2 and last == 1  # the slope that the embedding's gradient is computed from


def test_short_backwards_stay_whole():
    layers = int(2 * LEAST_WORK / LAYER)
    assert parts(traced(layers), tuple(range(layers + 1))) == [2 * layers]


def test_the_number_of_parts_is_limited():
    assert len(parts(traced(24), tuple(range(25)), most=2)) == 2


def test_gradients_that_are_wanted_early_and_come_late_hold_back_the_others():
    assert parts(traced(24), (*range(1, 25), 0)) == [48]


def test_products_in_bodies_count():
    body = traced(24)
    graph = torch.fx.Graph()
    inputs = [graph.placeholder(node.name) for node in body.graph.find_nodes(op="placeholder")]
    root = torch.nn.Module()
    root.body = body
    call = graph.call_function(calls, (graph.get_attr("body"), *inputs))
    values = body.graph.output_node().args[0]
    call.meta["val"] = tuple(node.meta["val"] for node in values)
    outputs = []
    for at, value in enumerate(values):
        outputs.append(graph.call_function(operator.getitem, (call, at)))
        outputs[-1].meta["val"] = value.meta["val"]
    doubled = graph.call_function(torch.ops.aten.add.Tensor, (outputs[-1], outputs[-1]))
    doubled.meta["val"] = values[-1].meta["val"]
    graph.output((*outputs[:-1], doubled))
    gm = torch.fx.GraphModule(root, graph)
    assert [node.name for node in places(gm, tuple(range(25)), 16)] == [outputs[-2].name]


def calls(body, *args):
    return body(*args)
