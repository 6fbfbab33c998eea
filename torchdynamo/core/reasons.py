"""The table of all reasons why a graph ends or a frame is not compiled, and their messages.

`title` is the first line of the message, `text` says what happened in the user's words, `hint` what to write instead.
Whoever breaks fills the fields in braces: mostly `name` (of what was called or read), `type` (of the value) and `what`;
a field that nobody filled reads as "it".
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Reason(NamedTuple):
    """A row of the table of reasons."""

    id: str
    title: str
    text: str
    hint: str


# Breaks: capture stops at one instruction of a frame, and a continuation runs the rest.
_BREAKS = (
    Reason(
        "data-dependent branch",
        "generic_jump TensorVariable()",
        "The branch depends on a tensor's value, and tensors have no values while a graph is captured.",
        "Compute both sides and choose with torch.where(condition, a, b), or use torch.cond(condition, f, g, inputs).",
    ),
    Reason(
        "data-dependent value",
        "{name} of a tensor",
        "{name} turns a tensor into a Python number, and tensors have no values while a graph is captured.",
        "Keep the value in a tensor, or set torchdynamo.config.capture_scalar_outputs = True.",
    ),
    Reason(
        "error that is caught",
        "{name} may raise",
        "{name} may raise an error, depending on the values of its arguments, and the function would catch it.",
        "Check the arguments first, or move the call out of the try block.",
    ),
    Reason(
        "unknown fact",
        "{name} needs to know a number",
        "The behaviour of {name} depends on a number that is read from a tensor, or is the size of a result: {what}.",
        "State it with torch._check(...); it is assumed from there on, and the graph checks it.",
    ),
    Reason(
        "dynamic output shape",
        "{name} has an output whose shape depends on values",
        "The size of the result of {name} depends on the tensor's values, so the graph cannot know the shape.",
        "Use a form with a fixed shape (torch.where, masked_fill, a sum under a mask), or set "
        "torchdynamo.config.capture_dynamic_output_shape_ops = True.",
    ),
    Reason(
        "unknown call",
        "call of {name}",
        "{name} is not Python code that can be inlined, and its behaviour is unknown to the compiler.",
        "Move the call before or after the tensor code, or, if it does nothing but compute on tensors, "
        "mark it with torchdynamo.allow_in_graph.",
    ),
    Reason(
        "builtin with effects",
        "call of {name}",
        "{name} has side effects outside of the program, which must happen in each call and not once during capture.",
        "Move the call out of the compiled function, or guard it with `if not torchdynamo.is_compiling():`.",
    ),
    Reason(
        "unsupported argument",
        "a {type} where {what} was expected",
        "This call was given a {type}, which cannot become an argument of a graph operation ({what}).",
        "Pass tensors, numbers, strings, or lists, tuples and dicts of them.",
    ),
    Reason(
        "unsupported operator",
        "operator {name}",
        "{name} failed, or is not supported for operands of these types: {what}.",
        "Check that the line works outside the compiled function; if it does, write it with tensor operators.",
    ),
    Reason(
        "unsupported instruction",
        "{name} is not captured",
        "The Python construct behind this line ({name}) is not captured yet.",
        "Move the construct into a helper function outside the compiled code.",
    ),
    Reason(
        "unsupported type",
        "a value of type {type}",
        "Values of type {type} are not supported, so nothing that depends on this one can be compiled.",
        "Take what is needed out of the value (numbers, strings, tensors) before the compiled function is called.",
    ),
    Reason(
        "changing value",
        "a {type} that changes",
        "The contents of this {type} were different in each call so far, so no code is compiled that relies on them.",
        "Use it before the compiled function is called, or pass what is needed from it as tensors or numbers.",
    ),
    Reason(
        "unsupported method",
        "{type}.{name}()",
        "The method {name} of {type} is not supported by the compiler.",
        "Use another method of {type}, or call it before or after the tensor code.",
    ),
    Reason(
        "unsupported key",
        "a {type} as a key",
        "Equality of two keys of type {type} depends on code that cannot be captured, or on a tensor's value.",
        "Use strings, numbers, or tuples of them as keys.",
    ),
    Reason(
        "unsupported attribute",
        "attribute {name} of {type}",
        "Reading {name} from a {type} runs code that cannot be captured, or returns an unsupported value.",
        "Read the attribute before the compiled function and pass its value in.",
    ),
    Reason(
        "unsupported attribute write",
        "setting {name} on {type}",
        "The write to {name} of a {type} cannot be deferred until the graph has run.",
        "Set the attribute after the compiled function, from what it returns.",
    ),
    Reason(
        "uncaught exception",
        "{type} is raised",
        "The program raises {type} here, and a graph cannot raise exceptions of the program.",
        "Check the inputs before the compiled function is called.",
    ),
    Reason(
        "user graph break",
        "{name}() was called",
        "The program itself asks for the graph to end here.",
        "Remove the call if one graph is wanted.",
    ),
    Reason(
        "disabled function",
        "{name} is disabled",
        "{name} is marked to run as plain Python (by torchdynamo.disable or torch.compiler.disable).",
        "Remove the mark, or call {name} before or after the compiled function.",
    ),
    Reason(
        "autograd function",
        "{name} has a backward of its own",
        "{name} is an autograd.Function on tensors that need gradients, and its backward reads state that may change "
        "before it runs (a global, an object, the grad mode), has side effects, or does not return gradients.",
        "Store what the backward needs on ctx, as numbers and tensors, in the forward.",
    ),
    Reason(
        "activation checkpoint",
        "checkpoint of {name}",
        "{name} is to be recomputed in the backward, in a form that a graph does not support yet.",
        "Put the checkpoint around the compiled function instead of inside.",
    ),
    Reason(
        "skipped function",
        "{name} is skipped",
        "{name} is marked not to be compiled itself (torchdynamo.skip), so it is called instead of inlined.",
        "Remove the mark if {name} is to be part of the graph.",
    ),
    Reason(
        "learning-rate schedule",
        "{name} of a scheduler",
        "A scheduler computes with the number of the epoch, which changes in each call, so it runs in Python.",
        "Call it after the compiled function.",
    ),
    Reason(
        "disallowed function",
        "{name} is not allowed in a graph",
        "{name} was passed to torchdynamo.disallow_in_graph, so it runs in Python between two graphs.",
        "Remove the call of disallow_in_graph, or move {name} out of the compiled function.",
    ),
    Reason(
        "loop with a break",
        "a loop with a graph break in it",
        "The body of this loop breaks the graph ({what}). The loop runs in Python; what it calls is compiled.",
        "Move the graph break out of the loop, or put the loop's body into a function of its own.",
    ),
    Reason(
        "unknown context manager",
        "with {type}",
        "The compiler does not know what entering and leaving a {type} does.",
        "Enter it around the compiled function instead of inside.",
    ),
    Reason(
        "import in frame",
        "import of {name}",
        "Importing {name} runs code that is not part of the function and must run at this point.",
        "Import {name} at the top of the file.",
    ),
    Reason(
        "unknown iterator",
        "iteration over {type}",
        "The number of iterations depends on a {type}, whose items are known only by running it.",
        "Make a list of the items before the compiled function and loop over that.",
    ),
    Reason(
        "side effect not replayable",
        "a change that cannot be made afterwards: {what}",
        "Side effects of the function are replayed after its graph has run; this one cannot be replayed ({what}).",
        "Return the value and make the change in the caller.",
    ),
    Reason(
        "inlining too deep",
        "{name} calls too deep",
        "Calls are nested deeper here than the compiler inlines them.",
        "Turn the recursion into a loop, or compile the inner function by itself.",
    ),
    Reason(
        "too long to follow",
        "{name} goes on for too long",
        "A graph has no loops: every iteration and every call would be written out, and there are too many of them.",
        "Put the long loop into a function of its own and mark it with torchdynamo.disable, or do it with tensors.",
    ),
    Reason(
        "unrolled loop",
        "a loop in {name} that repeats itself",
        "A graph has every iteration of a loop written out; this one repeats itself, and has {what} so far. "
        "The loop runs in Python.",
        "Put the body into a function of its own: it is compiled once. Under fullgraph=True loops are written out.",
    ),
    Reason(
        "frame inspects itself",
        "{name} looks at the running frame",
        "{name} would see the compiled frame's variables instead of the function's own.",
        "Take the values by name instead of through {name}.",
    ),
)

# Skips: a whole frame is not compiled.
_SKIPS = (
    Reason(
        "generator",
        "{name} is a generator",
        "The body of a generator runs in steps, and its caller decides what happens in between.",
        "Compile the function that loops over it: there the generator is captured to its end.",
    ),
    Reason(
        "coroutine",
        "{name} is a coroutine",
        "An async function may be suspended at every await, so its body is not one piece of work.",
        "Put the tensor code into a plain function, and await around it.",
    ),
    Reason(
        "class body",
        "the body of class {name}",
        "A class statement runs once, to make the class; there is nothing to speed up.",
        "Nothing needs to change.",
    ),
    Reason(
        "module body",
        "the top level of {name}",
        "The top level of a file runs once; there is nothing to speed up.",
        "Put the code into a function to have it compiled.",
    ),
    Reason(
        "strange globals",
        "{name} has globals of another class than dict",
        "Global names are looked up by a mapping class of the program's own, which may answer differently each time.",
        "Evaluate the code with a dict for its globals.",
    ),
    Reason(
        "stdlib",
        "{name} is part of Python's library",
        "Frames of the standard library are not compiled by themselves, only as part of what calls them.",
        "Nothing needs to change.",
    ),
    Reason(
        "torch internals",
        "{name} is part of PyTorch",
        "Frames of PyTorch's own code are not compiled by themselves, only as part of what calls them.",
        "Compile the function that calls {name}.",
    ),
    Reason(
        "torchdynamo",
        "{name} is part of torchdynamo",
        "The compiler does not compile itself.",
        "Nothing needs to change.",
    ),
    Reason(
        "no tensors",
        "{name} does nothing with tensors",
        "The frame has no tensor operations, so there is nothing to compile.",
        "Nothing needs to change.",
    ),
    Reason(
        "cache limit",
        "{name} was compiled too often",
        "{name} already has as many compiled versions as torchdynamo.config.cache_size_limit allows; "
        "what kept changing: {what}.",
        "Make the changing value a tensor, pass dynamic=True if it is a size, or raise the limit.",
    ),
    Reason(
        "foreign mode",
        "{what} is active",
        "Another system intercepts all tensor operations now ({what}); a compiled graph would hide them from it.",
        "Compile outside of it.",
    ),
    Reason(
        "internal error",
        "torchdynamo failed: {what}",
        "This is a bug in torchdynamo, not in your program ({what}). The function runs as plain Python.",
        "Please report it, with the traceback that torchdynamo.config.suppress_errors = False shows.",
    ),
)

REASONS: dict[str, Reason] = {row.id: row for row in _BREAKS + _SKIPS}
SKIPS: frozenset[str] = frozenset(row.id for row in _SKIPS)


class _Fields(dict[str, Any]):
    """Fields of a message; one that nobody filled reads as "it", so that a message never raises."""

    def __missing__(self, name: str) -> str:
        return "it"


def title(reason_id: str, **fields: Any) -> str:
    """Return the title of a reason, the first line of its message."""
    return REASONS[reason_id].title.format_map(_Fields(fields))


def message(reason_id: str, **fields: Any) -> str:
    """Return the sentence that says what happened."""
    return REASONS[reason_id].text.format_map(_Fields(fields))


def hint(reason_id: str, **fields: Any) -> str:
    """Return the sentence that says what to write instead."""
    return REASONS[reason_id].hint.format_map(_Fields(fields))


def unsupported_text(
    reason: str,
    fields: Mapping[str, Any],
    filename: str,
    line: int | None,
    function: str,
    source_line: str,
    column: int | None,
    end_column: int | None,
    callers: Sequence[tuple[str, int | None, str, str]] = (),
) -> str:
    """Return the message of an `Unsupported`: title, place with a caret, why, what to write instead, id.

    callers: file, line, function and source line of the calls that led there, outermost first. Columns count bytes of
    the UTF-8 line, as in code objects.
    """
    lines = [title(reason, **fields), "Processing original code:"]
    for caller in callers:
        lines.append(place(*caller[:3]))
        if caller[3].strip():
            lines.append(f"    {caller[3].strip()}")
    lines.append(place(filename, line, function))
    if source_line.strip():
        lines += quote(source_line, column, end_column)
    lines += [
        "",
        f"Why: {message(reason, **fields)}",
        f"Instead: {hint(reason, **fields)}",
        f"Reason: {reason}",
    ]
    return "\n".join(lines)


def place(filename: str, line: int | None, function: str) -> str:
    """Return a line that names a place in a program, as tracebacks do."""
    return f'  File "{filename}", line {"?" if line is None else line}, in {function}'


def quote(source_line: str, column: int | None, end_column: int | None) -> list[str]:
    """Return the user's line and carets under the expression.

    All of the line is marked where columns are unknown, and all from `column` where the expression spans several lines.
    """
    raw = source_line.encode()
    text = source_line.strip()
    begin = len(raw) - len(source_line.lstrip().encode())  # indentation in bytes
    start = begin if column is None else max(column, begin)
    stop = begin + len(text.encode()) if end_column is None or column is None else end_column
    before = raw[begin:start].decode(errors="replace")
    marked = raw[start:stop].decode(errors="replace").rstrip()
    pad = "".join("\t" if char == "\t" else " " * _width(char) for char in before)
    return [f"    {text}", f"    {pad}{'^' * max(1, sum(map(_width, marked)))}"]


def _width(char: str) -> int:
    """Return how many terminal columns a character takes: wide ones two, combining ones none."""
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
