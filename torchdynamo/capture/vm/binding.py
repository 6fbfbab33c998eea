"""Bind arguments to the parameters of a Python function, by Python's rules and with its messages of errors."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from torchdynamo.capture.frame import FunctionParts
from torchdynamo.core.signals import Raised
from torchdynamo.core.value import Known, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine

Given = dict[str, Value]


def bind(vm: Machine, parts: FunctionParts, args: list[Value], kwargs: Given) -> Given:
    """Bind arguments to the parameters of a function; return its locals as its body begins."""
    code = parts.code
    names, count = code.co_varnames, code.co_argcount
    total = count + code.co_kwonlyargcount
    local: Given = dict(zip(names[:count], args))
    extra = total
    if code.co_flags & inspect.CO_VARARGS:
        local[names[extra]] = vm.make_tuple(args[count:])
        extra += 1
    rest = bind_keywords(vm, parts, local, kwargs) if kwargs else {}
    if code.co_flags & inspect.CO_VARKEYWORDS:
        local[names[extra]] = vm.make_dict((Known(name), value) for name, value in rest.items())
    if len(args) > count and not code.co_flags & inspect.CO_VARARGS:
        raise wrong(vm, parts, too_many(parts, len(args), sum(name in local for name in names[count:total])))
    first = count - parts.defaults
    absent = [name for name in names[len(args) : first] if name not in local]
    if absent:
        raise wrong(vm, parts, missing(absent, "positional"))
    for index in range(max(len(args), first), count):
        if names[index] not in local:
            local[names[index]] = parts.default(index - first)
    absent = [name for name in names[count:total] if name not in local and name not in parts.kwdefaults]
    if absent:
        raise wrong(vm, parts, missing(absent, "keyword-only"))
    for name in names[count:total]:
        if name not in local:
            local[name] = parts.kwdefault(name)
    return local


def bind_keywords(vm: Machine, parts: FunctionParts, local: Given, kwargs: Given) -> Given:
    """Bind keyword arguments to parameters; return those that have none."""
    code = parts.code
    accepted = code.co_varnames[code.co_posonlyargcount : code.co_argcount + code.co_kwonlyargcount]
    rest: Given = {}
    for name, value in kwargs.items():
        if name not in accepted:
            if not code.co_flags & inspect.CO_VARKEYWORDS:
                raise wrong(vm, parts, unexpected(parts, name, kwargs))
            rest[name] = value
        elif name in local:
            raise wrong(vm, parts, f"got multiple values for argument {name!r}")
        else:
            local[name] = value
    return rest


# -- errors -----------------------------------------------------------------------------------------------------------
def wrong(vm: Machine, parts: FunctionParts, text: str) -> Raised:
    return vm.error(TypeError, f"{parts.qualname()}() {text}")


def unexpected(parts: FunctionParts, name: str, kwargs: Given) -> str:
    by_place = [first for first in parts.code.co_varnames[: parts.code.co_posonlyargcount] if first in kwargs]
    if by_place:
        return f"got some positional-only arguments passed as keyword arguments: '{', '.join(by_place)}'"
    return f"got an unexpected keyword argument {name!r}"


def plural(count: int) -> str:
    return "" if count == 1 else "s"


def too_many(parts: FunctionParts, given: int, named: int) -> str:
    """Return the TypeError for too many positional arguments; `named` counts keyword-only ones that were given."""
    count = parts.code.co_argcount
    takes = f"from {count - parts.defaults} to {count}" if parts.defaults else f"{count}"
    several = "s" if parts.defaults or count != 1 else ""
    also = f" positional argument{plural(given)} (and {named} keyword-only argument{plural(named)})" if named else ""
    verb = "was" if given == 1 and not named else "were"
    return f"takes {takes} positional argument{several} but {given}{also} {verb} given"


def missing(names: list[str], kind: str) -> str:
    quoted = [repr(name) for name in names]
    listed = " and ".join(quoted) if len(quoted) < 3 else f"{', '.join(quoted[:-1])}, and {quoted[-1]}"
    return f"missing {len(names)} required {kind} argument{plural(len(names))}: {listed}"
