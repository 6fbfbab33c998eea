"""The graph of an exported call: an input for each leaf of the arguments, a result for each leaf of what is returned.

State is read by its qualified name. Sizes are asked of the arguments. What a capture rests on and only a run of the
graph can tell (capture/speculate/assertions.py) becomes an operator that checks it.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.fx
from torch.utils import _pytree as pytree

from torchdynamo.core.source import Source
from torchdynamo.core.value import Symbol
from torchdynamo.errors import ExportError
from torchdynamo.exporting.capturing import Captured
from torchdynamo.exporting.modes import CHECKS, ModeFollower, ModesInterpreter
from torchdynamo.exporting.results import CallOutcome
from torchdynamo.exporting.state import Owned
from torchdynamo.graph.mutation import mutated_inputs
from torchdynamo.graph.torch_compat import GRADIENTS, OPENERS

Node = torch.fx.Node
CONSTANTS = (int, float, bool, str, type(None))


class FlatGraph:
    """A graph from the leaves of the arguments to those of the results, which reads its state from a module."""

    def __init__(self, made: Captured, outcome: CallOutcome, owned: Owned) -> None:
        """Raise ExportError for inputs and results that an exported program cannot have."""
        self.made, self.owned, self.outcome = made, owned, outcome
        self.vm = made.found.capture.machine
        self.graph = torch.fx.Graph()
        self.known: dict[Node, Any] = {}  # node of the captured graph -> the node, or constant, that stands for it
        self.at: dict[int, Any] = {}  # id of a tensor that existed -> its node
        self.leaf_at: dict[Source, Node] = {}
        self.given_by: dict[Node, Node] = {}  # a result may be made in the body of an operator, which gives it
        self.modes = ModeFollower(lambda target, args: self.noted(target, args, ""))
        self.module = self.closed()
        names = mutated_inputs(self.module)
        self.written = {value.source for value in self.vm.inputs if value.node.name in names}
        self.take_leaves()
        self.take_inputs()
        self.take_operations()
        self.give_results()

    def closed(self) -> torch.fx.GraphModule:
        """Return the captured graph, closed with all nodes that are needed."""
        checks = [check.value.node for check in self.vm.checks]
        needed = [leaf for leaf in self.outcome.leaves if isinstance(leaf, Node)]
        rebound = [each.node for each in self.outcome.rebindings]
        results = list(dict.fromkeys([*needed, *rebound, *checks]))
        module = self.made.found.builder.finish(results)
        given: Any = module.graph.output_node().args[0]
        self.given_by.update(zip(results, given, strict=True))
        return module

    def take_leaves(self) -> None:
        call = self.made.call
        for leaf, source, path in zip(call.leaves, call.sources, call.paths, strict=True):
            node = self.graph.placeholder(hint(*path))
            if isinstance(leaf, torch.Tensor):
                self.at[id(leaf)] = node
            elif source is not None:
                self.leaf_at[source] = node

    def take_inputs(self) -> None:
        tensors = {value.source: value for value in (*self.vm.inputs, *self.vm.boxes)}
        inputs = set(self.module.graph.find_nodes(op="placeholder"))
        for value in tensors.values():
            if value.node in inputs or value in self.vm.inputs:
                self.known[value.node] = self.tensor(self.vm.input_objects[value.node], value.source)
                if isinstance(self.known[value.node], Node):
                    self.known[value.node].meta.setdefault("example_value", value.node.meta["example_value"])
        for number in self.vm.numbers_in:
            if number.node in inputs:
                self.known[number.node] = self.number(number, tensors)
        if any(value.node in inputs for value in self.vm.objects_in):
            raise ExportError("the program draws from a generator of random numbers of its own")

    def tensor(self, tensor: Any, source: Source | None) -> Node:
        """Return the node of a tensor that existed before the call."""
        if not isinstance(tensor, torch.Tensor):  # a float that a tensor brings
            tensor = torch.tensor(tensor, dtype=torch.float64)
        node = self.at.get(id(tensor))
        if node is None:
            written = source is not None and source in self.written
            node = self.at[id(tensor)] = self.graph.get_attr(self.owned.name_of(tensor, source, written))
        return node

    def number(self, value: Symbol, tensors: dict[Any, Any]) -> Any:
        """Return the node of a number that existed before the call; its value, if it is of no argument."""
        source, now = value.source, self.vm.input_objects[value.node]
        if source is not None and source.how in ("size", "stride"):
            node = self.graph.call_method(source.how, (self.known[tensors[source.base].node], source.arg))
            node.meta = {"example_value": value.fake, "stack_trace": ""}
            return node
        return self.leaf_at.get(source, now) if source is not None else now

    def take_operations(self) -> None:
        checks = {self.given_by[check.value.node]: check for check in self.vm.checks}
        for node in self.module.graph.nodes:
            if node.op in ("placeholder", "output") or self.modes.follow(node):
                continue
            if node.target in OPENERS and node.target is not torch._C._functorch._vmap_increment_nesting:
                raise ExportError("the program differentiates by torch.func, which torch.export does not record")
            if node.target is GRADIENTS:
                raise ExportError("the program computes gradients itself, which torch.export does not record")
            if node.op.startswith("call_"):
                self.modes.prepare(node)
            if node.op == "get_attr":
                body = getattr(self.module, node.target)
                self.known[node] = self.graph.get_attr(self.owned.hold(node.target, body))
            else:
                self.known[node] = self.graph.node_copy(node, self.known.__getitem__)
            self.known[node].meta = dict(node.meta)
            if node.target in CHECKS and node.args and isinstance(node.args[0], Node):
                args = (self.known[node.args[0]], failing(node))  # torch keeps no facts about floats
                self.noted(torch.ops.aten._assert_scalar.default, args, node.meta.get("stack_trace", ""))
            if node in checks:
                self.check(self.known[node], checks[node].truth)

    def check(self, node: Node, truth: bool) -> None:
        """Add the operator that checks a truth on which the capture rests."""
        place = node.meta.get("stack_trace", "")
        if isinstance(node.meta["example_value"], torch.Tensor):
            wanted = node if truth else self.noted(torch.logical_not, (node,), place)
            self.noted(torch.ops.aten._assert_async.msg, (wanted, failing(node)), place)
        else:
            wanted = node if truth else self.noted(torch.sym_not, (node,), place)
            self.noted(torch._check, (wanted,), place)
            self.noted(torch.ops.aten._assert_scalar.default, (wanted, failing(node)), place)

    def noted(self, target: Any, args: tuple[Any, ...], place: str) -> Node:
        node = self.graph.call_function(target, args)
        node.meta = {"stack_trace": place}
        return node

    def give_results(self) -> None:
        self.modes.finish()
        leaves = [self.result(leaf) for leaf in self.outcome.leaves]
        for each in self.outcome.rebindings:
            buffer = self.tensor(each.source.load(self.made.roots), each.source)
            leaves = [self.noted(torch.clone, (leaf,), "") if leaf is buffer else leaf for leaf in leaves]
            self.noted(
                torch.ops.aten.copy_.default,
                (buffer, self.known[self.given_by[each.node]]),
                each.node.meta["stack_trace"],
            )
        self.graph.output(leaves)
        self.graph.lint()

    def result(self, leaf: Any) -> Any:
        """Return the node of one result, or the constant that it is."""
        if isinstance(leaf, Node):
            refuse_leaves(leaf)
            return self.known[self.given_by[leaf]]
        if isinstance(leaf, torch.Tensor):
            return self.tensor(leaf, None)
        if not isinstance(leaf, CONSTANTS):
            raise ExportError(
                f"the program returns a {type(leaf).__name__}, which an exported program cannot: of results, tensors, "
                f"numbers, strings and None can be exported, in containers that torch.utils._pytree knows "
                f"(torch.export.register_dataclass adds a dataclass)"
            )
        return leaf

    def run(self, *leaves: Any) -> list[Any]:
        """Run the graph, keeping the lines of the program with what is traced of it."""
        with torch.fx.traceback.preserve_node_meta():
            results: list[Any] = ModesInterpreter(self.owned.module, graph=self.graph).run(*leaves)
        return results


def refuse_leaves(node: Node) -> None:
    """Raise ExportError for a result that is a leaf of autograd's: an exported program has none but its state."""
    example = node.meta["example_value"]
    if node.op != "placeholder" and isinstance(example, torch.Tensor) and example.is_leaf and example.requires_grad:
        raise ExportError(
            f"the program returns a tensor that it makes a leaf of autograd's, {node}, as requires_grad_ does"
        )


def failing(node: Node) -> str:
    """Return the message of a check that fails, with the line of the program that makes it."""
    lines = node.meta.get("stack_trace", "").strip().splitlines()
    return f"the program raises an error here: {lines[-1].strip() if lines else node}"


def hint(name: str, path: pytree.KeyPath) -> str:
    """Return a name for a leaf of an argument: `x`, `batch_0`."""
    return "_".join([name, *(str(getattr(key, "key", getattr(key, "idx", ""))) for key in path)])
