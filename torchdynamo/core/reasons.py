"""The table of all reasons why code is not in a graph, and their messages.

TD1xx are graph breaks, TD2xx frames that are not compiled, TD3xx failures and limits after which calls run eagerly.
Whoever breaks fills the fields in braces: mostly `name` (of what was called or read), `type` (of the value) and `what`;
a field that nobody filled reads as "it". Numbers and ids are public and never change their meaning.
"""

from __future__ import annotations

from typing import Any

from torchdynamo.core.break_reasons import BREAKS, Reason

__all__ = ["REASONS", "SKIPS", "Reason", "explained", "find", "hint", "message", "pointer", "title"]

LINK = "python -m torchdynamo reason {number}"  # where to read more; an address once the pages are published

# Skips: a whole frame is not compiled.
_SKIPS = (
    Reason(
        "TD201",
        "generator",
        "{name} is a generator",
        "The body of a generator runs in steps, and its caller decides what happens in between.",
        "Compile the function that loops over it: there the generator is captured to its end.",
    ),
    Reason(
        "TD202",
        "coroutine",
        "{name} is a coroutine",
        "An async function may be suspended at every await, so its body is not one piece of work.",
        "Put the tensor code into a plain function, and await around it.",
    ),
    Reason(
        "TD203",
        "class body",
        "the body of class {name}",
        "A class statement runs once, to make the class; there is nothing to speed up.",
        "Nothing needs to change.",
    ),
    Reason(
        "TD204",
        "module body",
        "the top level of {name}",
        "The top level of a file runs once; there is nothing to speed up.",
        "Put the code into a function to have it compiled.",
    ),
    Reason(
        "TD205",
        "strange globals",
        "{name} has globals of another class than dict",
        "Global names are looked up by a mapping class of the program's own, which may answer differently each time.",
        "Evaluate the code with a dict for its globals.",
    ),
    Reason(
        "TD206",
        "stdlib",
        "{name} is part of Python's library",
        "Frames of the standard library are not compiled by themselves, only as part of what calls them.",
        "Nothing needs to change.",
    ),
    Reason(
        "TD207",
        "torch internals",
        "{name} is part of PyTorch",
        "Frames of PyTorch's own code are not compiled by themselves, only as part of what calls them.",
        "Compile the function that calls {name}.",
    ),
    Reason(
        "TD208",
        "torchdynamo",
        "{name} is part of torchdynamo",
        "The compiler does not compile itself.",
        "Nothing needs to change.",
    ),
    Reason(
        "TD209",
        "no tensors",
        "{name} does nothing with tensors",
        "The frame has no tensor operations, so there is nothing to compile.",
        "Nothing needs to change.",
    ),
    Reason(
        "TD210",
        "foreign mode",
        "{what} is active",
        "Another system intercepts all tensor operations now ({what}); a compiled graph would hide them from it.",
        "Compile outside of it.",
    ),
)

# Fallbacks: calls run eagerly, or by another graph, where a compiled one was wanted.
_FALLBACKS = (
    Reason(
        "TD301",
        "internal error",
        "torchdynamo failed: {what}",
        "This is a bug in torchdynamo, not in your program ({what}). The function runs as plain Python.",
        "Please report it, with the traceback that torchdynamo.config.suppress_errors = False shows.",
    ),
    Reason(
        "TD302",
        "cache limit",
        "{name} was compiled too often",
        "{name} already has as many compiled versions as torchdynamo.config.cache_size_limit allows; "
        "what kept changing: {what}.",
        "Make the changing value a tensor, pass dynamic=True if it is a size, or raise the limit.",
    ),
    Reason(
        "TD303",
        "backend failed",
        "backend {name} failed",
        "The backend raised an error when it was given a graph ({what}). The graph runs eagerly.",
        "Choose another backend, or report the error to the backend's authors: torchdynamo.config.verbose = True shows "
        "the traceback, and with TORCHDYNAMO_REPRO=FOLDER in the environment the message ends with a command that "
        "repeats the failure.",
    ),
    Reason(
        "TD304",
        "graph failed",
        "a graph compiled by {name} raised an error",
        "The backend's code for a graph raised an error where eager PyTorch does not ({what}). The call ran eagerly.",
        "Choose another backend, or report the error to the backend's authors: torchdynamo.config.verbose = True shows "
        "the traceback, and with TORCHDYNAMO_REPRO=FOLDER in the environment the message ends with a command that "
        "repeats the failure.",
    ),
    Reason(
        "TD305",
        "seldom used",
        "{name} is not worth compiling",
        "The compiled versions of {name} served few calls, so compiling more costs more than it saves; what kept "
        "changing: {what}.",
        "Make the changing value a tensor, or an argument that takes few values.",
    ),
    Reason(
        "TD306",
        "backend needs constants",
        "backend {name} takes no symbols",
        "The backend compiles a graph for one set of sizes and numbers only, and has made as many graphs as "
        "torchdynamo.config.cache_size_limit allows. With further sizes and numbers the graph runs eagerly.",
        "Choose a backend that traces with fake tensors, or pad sizes up to a few "
        '(options={{"buckets": {{"x": {{0: (64, 128)}}}}}}).',
    ),
    Reason(
        "TD307",
        "bucket not possible",
        "{name} cannot be padded",
        "The result depends on what lies beyond the size of {name}, so padding it up to a bucket would change the "
        "result. The graph is compiled at its own sizes.",
        "Mask what lies beyond the size, or leave that dimension out of the buckets.",
    ),
    Reason(
        "TD308",
        "wrong result",
        "a graph compiled by {name} differs from eager",
        "Under torchdynamo.config.verify_correctness a compiled graph gave other results than eager PyTorch ({what}).",
        "Compare backends eager, aot_eager and the one in use to find the part that differs, and report it there.",
    ),
)

REASONS: dict[str, Reason] = {row.id: row for row in BREAKS + _SKIPS + _FALLBACKS}
SKIPS: frozenset[str] = frozenset(row.id for row in _SKIPS + _FALLBACKS)  # no graph ends there: none was made, or used


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


def pointer(reason_id: str) -> str:
    """Return the last words of a message: the reason's number and slug, and where to read more."""
    row = REASONS[reason_id]
    return f"{row.number} {row.slug}: {LINK.format(number=row.number, slug=row.slug)}"


def explained(text: str, reason_id: str) -> str:
    """Return a message that says what happened, with the reason's number and where to read more at its end."""
    return f"{text} ({pointer(reason_id)})"


def find(name: str) -> Reason | None:
    """Return the reason of a number, slug or id, in letters of any case; None if there is none."""
    wanted = name.strip().lower().replace(" ", "-")
    return next((row for row in REASONS.values() if wanted in (row.number.lower(), row.slug)), None)
