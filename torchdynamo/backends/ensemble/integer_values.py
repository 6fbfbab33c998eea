"""Bound the integers of an exported program, to prove that no index leaves its range.

Runtimes take an index that is out of range for another element, where eager raises. So an index is bounded by how it is
computed, or it is read from an input, which is then checked at each call.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.fx

from torchdynamo.backends.ensemble.member import Declined


class Values(NamedTuple):
    """Possible elements of an integer tensor: integers from low to high, or elements of inputs."""

    low: int
    high: int
    inputs: frozenset[int] = frozenset()
    """Positions of inputs of which elements may be among them."""

    def joined(self, other: Values) -> Values:
        return Values(min(self.low, other.low), max(self.high, other.high), self.inputs | other.inputs)


class Check(NamedTuple):
    """A condition on an input, tested at each call: its elements are from low to high."""

    position: int
    low: int
    high: int

    def holds(self, args: Sequence[torch.Tensor]) -> bool:
        low, high = torch.aminmax(args[self.position])
        return bool(low >= self.low) and bool(high <= self.high)


def operator_name(node: torch.fx.Node) -> str:
    """Return the name of an ATen operator without its overload, "" for other targets."""
    overload = isinstance(node.target, torch._ops.OpOverload) and node.target.namespace == "aten"
    return node.target._schema.name.partition("::")[2] if overload else ""  # type: ignore[union-attr]


class Integers:
    """The bounds of the integers in a program, found as they are asked for."""

    def __init__(self, program: Any) -> None:
        signature = program.graph_signature
        self.positions = {name: position for position, name in enumerate(signature.user_inputs)}
        self.state = {
            name: program.state_dict[target] if target in program.state_dict else program.constants[target]
            for names in (
                signature.inputs_to_parameters,
                signature.inputs_to_buffers,
                signature.inputs_to_lifted_tensor_constants,
            )
            for name, target in names.items()
        }
        self.known: dict[torch.fx.Node, Values | None] = {}
        self.contents: dict[torch.fx.Node, Any] = {}
        self.fixed: dict[torch.fx.Node, bool] = {}
        for node in program.graph.nodes:  # in order, so that nothing here recurses deeply
            self.fixed[node] = node.name not in self.positions and all(
                self.fixed[each] for each in node.all_input_nodes
            )

    def of(self, value: Any) -> Values | None:
        """Return the bounds of a node or number; None if they are not known."""
        if isinstance(value, (bool, int)):
            return Values(int(value), int(value))
        if not isinstance(value, torch.fx.Node):
            return None
        if value not in self.known:
            self.known[value] = self._find(value)
        return self.known[value]

    def is_constant(self, node: torch.fx.Node) -> bool:
        """Return whether a node is computed from no input."""
        return self.fixed[node]

    def _find(self, node: torch.fx.Node) -> Values | None:
        example = node.meta.get("val")
        if isinstance(example, torch.Tensor):
            if example.dtype is torch.bool:
                return Values(0, 1)
            if example.is_floating_point() or example.is_complex():
                return None
        if node.name in self.positions:
            position = self.positions[node.name]
            return _NONE._replace(inputs=frozenset({position}))
        if self.fixed[node] and isinstance(example, torch.Tensor):
            content = self._content(node)
            if not content.numel():
                return _NONE
            low, high = torch.aminmax(content)
            return Values(int(low), int(high))
        if node.target is operator.getitem:
            source, place = node.args
            assert isinstance(source, torch.fx.Node)
            name = operator_name(source)
            if name in _SPLITS:
                return self.of(source.args[0])
            return _places(source) if name in _SEARCHES and place == 1 else None
        rule = _RULES.get(operator_name(node))
        return None if rule is None else rule(self, node)

    def _content(self, node: torch.fx.Node) -> Any:
        """Return what a constant node holds."""
        if node not in self.contents:
            if node.op == "placeholder":
                self.contents[node] = self.state[node.name]
            else:
                args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), self._content)
                self.contents[node] = node.target(*args, **kwargs)  # type: ignore[operator]
        return self.contents[node]


_NONE = Values(2**63, -(2**63))  # of no elements: joined with others, it changes nothing
Rule = Callable[[Integers, torch.fx.Node], Values | None]


def _same(integers: Integers, node: torch.fx.Node) -> Values | None:
    return integers.of(node.args[0])


def _cast(integers: Integers, node: torch.fx.Node) -> Values | None:
    source: Any = node.args[0]
    found, info = integers.of(source), torch.iinfo(node.meta["val"].dtype)
    if found is None:
        return None
    if found.inputs:  # a narrower type would wrap them
        return found if torch.iinfo(source.meta["val"].dtype).max <= info.max else None
    return found if info.min <= found.low and found.high <= info.max else None


def _any_of(places: slice) -> Rule:
    def joined(integers: Integers, node: torch.fx.Node) -> Values | None:
        found = [integers.of(each) for each in _flat(node.args[places])]
        if not found or None in found:
            return None
        result = found[0]
        for each in found[1:]:
            result = result.joined(each)  # type: ignore[union-attr,arg-type]
        return result

    return joined


def _flat(args: Any) -> Iterator[Any]:
    for each in args:
        if isinstance(each, (list, tuple)):
            yield from each
        else:
            yield each


def _arithmetic(compute: Callable[[int, int], int]) -> Rule:
    def bounded(integers: Integers, node: torch.fx.Node) -> Values | None:
        one, other = integers.of(node.args[0]), integers.of(node.args[1])
        if one is None or other is None or one.inputs or other.inputs or len(node.args) > 2 or node.kwargs:
            return None
        corners = [compute(a, b) for a in (one.low, one.high) for b in (other.low, other.high)]
        return _held(node, min(corners), max(corners))

    return bounded


def _sum(integers: Integers, node: torch.fx.Node) -> Values | None:
    source: Any = node.args[0]
    found = integers.of(source)
    if found is None or found.inputs:
        return None
    count = source.meta["val"].numel()
    return _held(node, min(found.low, found.low * count), max(found.high, found.high * count))


def _held(node: torch.fx.Node, low: int, high: int) -> Values | None:
    """Return the bounds if the node's dtype holds them, so that nothing has wrapped."""
    info = torch.iinfo(node.meta["val"].dtype)
    return Values(low, high) if info.min <= low and high <= info.max else None


def _clamp(integers: Integers, node: torch.fx.Node) -> Values | None:
    limits = (*node.args[1:], None, None)[:2]
    low, high = (integers.of(each) for each in limits)
    return Values(min(low.low, high.low), high.high) if low and high and not low.inputs | high.inputs else None


def _places(node: torch.fx.Node) -> Values:
    """Bound the places that a search returns: along its dimension, or among all elements."""
    source: Any = node.args[0]
    name, example = operator_name(node), source.meta["val"]
    position = 2 if name == "topk" else 1
    default = -1 if name in ("topk", "sort", "argsort") else None
    dim = node.args[position] if len(node.args) > position else node.kwargs.get("dim", default)
    return Values(0, (example.shape[dim] if isinstance(dim, int) and example.shape else example.numel()) - 1)


_SPLITS = frozenset("split split_with_sizes chunk unbind tensor_split".split())
_SEARCHES = frozenset("topk sort max min".split())
_SAME = """
    view reshape unsqueeze squeeze slice select expand permute transpose t clone contiguous alias detach flatten repeat
    index_select gather index flip roll unflatten expand_as view_as lift_fresh_copy diagonal _unsafe_view narrow
"""
_RULES: dict[str, Rule] = {
    **dict.fromkeys(_SAME.split(), _same),
    **dict.fromkeys(("_to_copy", "to", "type_as"), _cast),
    **dict.fromkeys(("cat", "stack"), _any_of(slice(0, 1))),
    "where": _any_of(slice(1, 3)),
    "copy": _any_of(slice(1, 2)),
    **dict.fromkeys(("slice_scatter", "select_scatter", "maximum", "minimum"), _any_of(slice(0, 2))),
    "masked_fill": _any_of(slice(0, 3, 2)),
    "add": _arithmetic(operator.add),
    "sub": _arithmetic(operator.sub),
    "mul": _arithmetic(operator.mul),
    **dict.fromkeys(("sum", "cumsum"), _sum),
    "clamp": _clamp,
    **dict.fromkeys(("zeros_like", "new_zeros"), lambda integers, node: Values(0, 0)),
    **dict.fromkeys(("ones_like", "new_ones"), lambda integers, node: Values(1, 1)),
    "full_like": _any_of(slice(1, 2)),
    "new_full": _any_of(slice(2, 3)),
    **dict.fromkeys(("argmax", "argmin", "argsort"), lambda integers, node: _places(node)),
}
del _SAME


# -- operators that take indices ---------------------------------------------------------------------------------------
Indexed = tuple[Any, int, int]  # an index, the least value that eager takes, and the first that it does not take


def _along(index: int, dim: int) -> Callable[[torch.fx.Node], list[Indexed]]:
    """Read an index that counts along a dimension of the first argument. index, dim: which arguments they are."""

    def found(node: torch.fx.Node) -> list[Indexed]:
        source: Any = node.args[0]
        along: Any = node.args[dim]
        shape = source.meta["val"].shape
        return [(node.args[index], 0, shape[along] if shape else 1)]

    return found


def _rows(node: torch.fx.Node) -> list[Indexed]:
    table: Any = node.args[0]
    return [(node.args[1], 0, table.meta["val"].shape[0])]


def _subscripts(node: torch.fx.Node) -> list[Indexed]:
    source: Any = node.args[0]
    places: Any = node.args[1]
    indices = [(place, each) for place, each in enumerate(places) if each is not None]
    shape = source.meta["val"].shape
    masks = any(each.meta["val"].dtype is torch.bool for _, each in indices)
    return [] if masks and len(indices) == 1 else [(each, -shape[place], shape[place]) for place, each in indices]


INDEXED: dict[str, Callable[[torch.fx.Node], list[Indexed]]] = {
    "embedding": _rows,
    "index_select": _along(2, 1),
    "gather": _along(2, 1),
    "scatter": _along(2, 1),
    "scatter_add": _along(2, 1),
    "index": _subscripts,
    "index_put": _subscripts,
}
"""Operator -> function that returns, for a node, each index with the least value that eager takes and the first not."""


def index_checks(program: Any, integers: Integers, *, from_the_end: bool = True) -> list[Check]:
    """Return what must hold of inputs so that every index is in range. Raises Declined for one that may leave it.

    from_the_end: the runtime takes negative indices where eager does.
    """
    checks: list[Check] = []
    for node in program.graph.nodes:
        name = operator_name(node)
        for index, least, end in INDEXED[name](node) if name in INDEXED else ():
            low = least if from_the_end else 0
            checks += must_be_within(integers, index, low, end - 1, f"an index of {name}")
    return checks


def must_be_within(integers: Integers, node: torch.fx.Node, low: int, high: int, what: str) -> list[Check]:
    """Return what must hold of inputs so that a node's elements are from low to high. Raises Declined if nothing can.

    what: what the elements are, for the reason.
    """
    found = integers.of(node)
    if found is None:
        raise Declined(f"{what} is computed in the graph, and nothing proves that it is in range")
    if found.low <= found.high and not (low <= found.low and found.high <= high):
        raise Declined(f"{what} may be out of range: it is from {found.low} to {found.high}, not {low} to {high}")
    return [Check(position, low, high) for position in sorted(found.inputs)]


def merged(checks: Sequence[Check]) -> list[Check]:
    """Return one check for each input that has several."""
    found: dict[int, Check] = {}
    for check in checks:
        other = found.get(check.position, check)
        found[check.position] = Check(check.position, max(check.low, other.low), min(check.high, other.high))
    return list(found.values())
