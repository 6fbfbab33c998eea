"""torchdynamo in one file: a frame hook, symbolic execution, a graph, guards, an entry, a graph break, a continuation.

    python docs/toy.py

The sections come in the order in which things happen when a function is called, and each names the folder of the
package that does the same in earnest. The toy follows tensors and constants through the commonest instructions of
CPython 3.11 and 3.12. For the rest it raises NotImplementedError, where torchdynamo leaves the function to Python.
"""

from __future__ import annotations

import bisect
import builtins
import dis
import functools
import inspect
import operator
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.fx
from torch._subclasses.fake_tensor import FakeTensorMode


# -- 1. The frame hook: hook/, pipeline.py -----------------------------------------------------------------------------
class Frame(NamedTuple):
    """A function that is about to run: its code, the offset to begin at, and the variables as they are."""

    code: types.CodeType
    start: int
    locals: dict[str, Any]
    globals: dict[str, Any]


class Hook:
    """What CPython asks before it runs a frame (PEP 523); here, a decorator does. Keeps entries by code and offset."""

    def __init__(self, backend: Callable[[torch.fx.GraphModule, list[torch.Tensor]], Callable[..., Any]]) -> None:
        self.backend = backend
        self.entries: dict[tuple[types.CodeType, int], list[Entry]] = {}

    def __call__(self, fn: Any) -> Callable[..., Any]:
        def hooked(*args: Any) -> Any:
            return self.evaluate(Frame(fn.__code__, 0, inspect.signature(fn).bind(*args).arguments, fn.__globals__))

        return hooked

    def evaluate(self, frame: Frame) -> Any:
        """Run a frame by the first entry whose guards hold; compile one more if none does."""
        known = self.entries.setdefault((frame.code, frame.start), [])
        entry = next((each for each in known if all(guard.holds(frame) for guard in each.guards.values())), None)
        if entry is None:
            known.append(entry := Entry(Capture(frame), self))
        return entry.run(frame)


# -- 2. Sources and values: core/ --------------------------------------------------------------------------------------
class Source(NamedTuple):
    """Where an object is found when the frame begins: `local x`, or `global torch` and then attributes."""

    root: str
    path: tuple[str, ...]

    def read(self, frame: Frame) -> Any:
        """Return the object in a frame."""
        names = frame.locals if self.root == "local" else vars(builtins) | frame.globals
        return functools.reduce(getattr, self.path[1:], names[self.path[0]])


class Known(NamedTuple):
    """A value that is an object: a constant, a function, a module. With its source, if it existed at entry."""

    obj: Any
    source: Source | None = None


class TensorNode(NamedTuple):
    """A value that is a tensor: a node of the graph, and a fake tensor with its dtype, shape and device."""

    node: torch.fx.Node
    fake: Any


class Method(NamedTuple):
    """A method of a value, about to be called."""

    owner: Any
    name: str


# -- 3. Guards: guards/ ------------------------------------------------------------------------------------------------
KINDS: dict[str, Callable[[Any], Any]] = {"ID_MATCH": id, "TYPE_MATCH": type, "EQUALS_MATCH": lambda x: (type(x), x)}
KINDS["TENSOR_MATCH"] = lambda x: (x.dtype, x.shape, x.device, x.requires_grad) if isinstance(x, torch.Tensor) else None


class Guard(NamedTuple):
    """A fact about the state at entry: what is at a source is what it was, as far as the guard's kind looks."""

    source: Source
    kind: str
    expected: Any

    def holds(self, frame: Frame) -> bool:
        """Return whether the fact holds in this call."""
        return bool(KINDS[self.kind](self.source.read(frame)) == self.expected)


# -- 4. Bytecode: bytecode/ --------------------------------------------------------------------------------------------
OLD = {"BINARY_ADD": "+", "BINARY_MULTIPLY": "*", "BINARY_TRUE_DIVIDE": "/", "BINARY_MATRIX_MULTIPLY": "@"}  # 3.10
SAME = {**dict.fromkeys((*OLD, "COMPARE_OP"), "BINARY_OP"), "LOAD_METHOD": "LOAD_ATTR"}


def decode(code: types.CodeType) -> Iterator[tuple[int, str, Any]]:
    """Yield offset, name and argument of canonical instructions: what versions say in several ways is said in one."""
    for each in dis.get_instructions(code):
        if each.opname == "RETURN_CONST":
            yield each.offset, "LOAD_CONST", each.argval
            yield each.offset, "RETURN_VALUE", None
        elif each.opname not in ("RESUME", "PRECALL", "PUSH_NULL", "NOP"):
            name, sign = SAME.get(each.opname, each.opname), OLD.get(each.opname, each.argrepr.rstrip("="))
            yield each.offset, name.replace("_FORWARD", ""), sign if name == "BINARY_OP" else each.argval


# -- 5. Capture: capture/, graph/ --------------------------------------------------------------------------------------
class Return(NamedTuple):
    """The end of a frame."""

    value: Any


class Break(NamedTuple):
    """A branch on a tensor, whose value nobody knows yet: the graph ends, and either side has a continuation."""

    condition: TensorNode
    sides: dict[bool, int]  # the offset where each begins
    live: dict[str, Any]


SIGNS: dict[str, Callable[..., Any]] = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}
SIGNS |= {"@": operator.matmul, "<": operator.lt, ">": operator.gt}


class Capture:
    """One symbolic execution: instructions, run over values instead of objects.

    Tensor operations become nodes of `graph`, facts about the entry state `guards`, and writes to what existed at entry
    `effects`, which are replayed when the graph has run: nothing real is changed here. `exit` says how the frame ends.
    """

    def __init__(self, frame: Frame) -> None:
        self.frame, self.graph, self.fake_mode = frame, torch.fx.Graph(), FakeTensorMode()
        self.inputs: list[Source] = []
        self.guards: dict[Source, Guard] = {}
        self.effects: list[tuple[Source, Any]] = []  # a list, and the value appended
        self.seen: dict[Source, Any] = {}
        self.exit = self.run(frame, {name: Source("local", (name,)) for name in frame.locals})

    def wrap(self, source: Source) -> Any:
        """Turn an object that existed at entry into a value, with a guard on what is relied on."""
        if source not in self.seen:
            obj = source.read(self.frame)
            self.seen[source], kind = Known(obj, source), "ID_MATCH"
            if isinstance(obj, torch.Tensor):
                kind = "TENSOR_MATCH"
                self.seen[source] = TensorNode(self.graph.placeholder(source.path[-1]), self.fake_mode.from_tensor(obj))
                self.inputs.append(source)
            elif isinstance(obj, (int, float, str, list, type(None))):
                kind = "TYPE_MATCH" if isinstance(obj, list) else "EQUALS_MATCH"
            self.guards[source] = Guard(source, kind, KINDS[kind](obj))
        return self.seen[source]

    def attribute(self, owner: Any, name: str) -> Any:
        """Look up an attribute: of a module by its source; of anything else, a method that is about to be called."""
        if isinstance(owner, Known) and isinstance(owner.obj, types.ModuleType) and owner.source is not None:
            return self.wrap(Source(owner.source.root, (*owner.source.path, name)))
        return Method(owner, name)

    def emit(self, op: str, target: Any, args: Sequence[Any]) -> TensorNode:
        """Add a node to the graph, and run it on fake tensors to learn what it gives."""
        nodes = tuple(arg.node if isinstance(arg, TensorNode) else arg.obj for arg in args)
        fakes = [arg.fake if isinstance(arg, TensorNode) else arg.obj for arg in args]
        with self.fake_mode:
            fake = getattr(fakes[0], target)(*fakes[1:]) if op == "call_method" else target(*fakes)
        return TensorNode(self.graph.create_node(op, target, nodes), fake)

    def call(self, fn: Any, args: list[Any]) -> Any:
        """Decide a call: a method, Python code to inline, an operation on tensors, or a function of constants."""
        if isinstance(fn, Method) and isinstance(fn.owner, TensorNode):
            return self.emit("call_method", fn.name, [fn.owner, *args])
        if isinstance(fn, Method) and type(fn.owner.obj) is list and fn.name == "append" and fn.owner.source:
            self.effects.append((fn.owner.source, args[0]))
            return Known(None)
        function = fn.obj if isinstance(fn, Known) else None
        if isinstance(function, types.FunctionType) and not function.__module__.startswith("torch"):
            inner = Frame(function.__code__, 0, {}, function.__globals__)
            if isinstance(end := self.run(inner, inspect.signature(function).bind(*args).arguments), Return):
                return end.value
        elif function is not None and all(isinstance(arg, Known) for arg in args):
            return Known(function(*(arg.obj for arg in args)))
        elif function is not None:
            return self.emit("call_function", function, args)
        raise NotImplementedError(f"the call of {fn}")

    def run(self, frame: Frame, variables: dict[str, Any]) -> Return | Break:
        """Execute a frame from its start to its end, or to a branch that only a tensor can decide."""
        code, stack = [*decode(frame.code)], list[Any]()
        index = (index_of := functools.partial(bisect.bisect_left, [each[0] for each in code]))(frame.start)
        while True:
            (_, op, arg), index = code[index], index + 1
            match op:
                case "LOAD_FAST":
                    if isinstance(variables[arg], Source):  # it is looked at, and guarded, when it is first used
                        variables[arg] = self.wrap(variables[arg])
                    stack.append(variables[arg])
                case "STORE_FAST":
                    variables[arg] = stack.pop()
                case "LOAD_CONST":
                    stack.append(Known(arg))
                case "LOAD_GLOBAL":
                    stack.append(self.wrap(Source("global", (arg,))))
                case "LOAD_ATTR":
                    stack.append(self.attribute(stack.pop(), arg))
                case "BINARY_OP":
                    right, left = stack.pop(), stack.pop()
                    stack.append(self.call(Known(SIGNS[arg]), [left, right]))
                case "CALL" | "CALL_METHOD" | "CALL_FUNCTION":
                    args = [stack.pop() for _ in range(arg)][::-1]
                    stack.append(self.call(stack.pop(), args))
                case "POP_TOP":
                    stack.pop()
                case "POP_JUMP_IF_FALSE" | "POP_JUMP_IF_TRUE":
                    condition, sides = stack.pop(), {op.endswith("TRUE"): arg, op.endswith("FALSE"): code[index][0]}
                    if isinstance(condition, TensorNode):
                        return Break(condition, sides, variables)
                    index = index_of(sides[bool(condition.obj)])
                case "RETURN_VALUE":
                    return Return(stack.pop())
                case _:
                    raise NotImplementedError(f"the instruction {op} in {frame.code.co_name}")


# -- 6. The entry: backends/, codegen/, cache/ -------------------------------------------------------------------------
class Entry:
    """A compiled frame: its guards, the compiled graph, side effects to replay, and how the frame is left."""

    def __init__(self, capture: Capture, hook: Hook) -> None:
        self.capture, self.guards, self.hook, end = capture, capture.guards, hook, capture.exit
        leaving = [end.value] if isinstance(end, Return) else [end.condition, *end.live.values()]
        needed = [*(value for _, value in capture.effects), *leaving]
        self.outputs = [value for value in needed if isinstance(value, TensorNode)]
        capture.graph.output(tuple(value.node for value in self.outputs))
        examples = [source.read(capture.frame) for source in capture.inputs]
        self.compiled = hook.backend(torch.fx.GraphModule({}, capture.graph), examples)

    def run(self, frame: Frame) -> Any:
        """Call the graph, replay the side effects, then return, or take the branch and go on by a continuation."""
        results = self.compiled(*(source.read(frame) for source in self.capture.inputs))
        found = {value.node: result for value, result in zip(self.outputs, results, strict=True)}

        def materialize(value: Any) -> Any:
            if isinstance(value, Source):  # nothing has looked at it
                return value.read(frame)
            return found[value.node] if isinstance(value, TensorNode) else value.obj

        for source, item in self.capture.effects:
            source.read(frame).append(materialize(item))
        end = self.capture.exit
        if isinstance(end, Return):
            return materialize(end.value)
        start, live = end.sides[bool(materialize(end.condition))], {k: materialize(v) for k, v in end.live.items()}
        return self.hook.evaluate(Frame(frame.code, start, live, frame.globals))


# -- An example --------------------------------------------------------------------------------------------------------
def toy_example(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Scale, and turn round what is negative in sum."""
    x = a / (torch.abs(a) + 1)
    if b.sum() < 0:
        b = b * -1
    return x * b


def main() -> None:
    """Capture the example in three graphs, run it by its entries, and capture it anew where a guard fails."""
    compiled = (hook := Hook(lambda gm, example_inputs: gm.forward))(toy_example)
    for size, sign in ((3, 1), (3, -1), (3, 1), (5, 1)):
        a, b = torch.randn(size), sign * torch.rand(size)
        assert torch.equal(compiled(a, b), toy_example(a, b))
        print(f"size {size}, sum {'+' if sign > 0 else '-'}: {sum(map(len, hook.entries.values()))} entries so far")
    for (code, start), entries in hook.entries.items():
        for entry in entries:
            guards = [f"{guard.kind} {'.'.join(guard.source.path)}" for guard in entry.guards.values()]
            print(f"{code.co_name} from {start}: {[*entry.capture.graph.nodes]}, if {guards}")


if __name__ == "__main__":
    main()
