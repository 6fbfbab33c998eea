"""Regular expressions: patterns and matches are constants; a function that `sub` calls for each match is followed."""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from torchdynamo.capture.iteration import make_iterator
from torchdynamo.capture.model import enters, models, polyfill, run_for_real
from torchdynamo.capture.source import Source
from torchdynamo.capture.value import NONE, Known, Object, Value
from torchdynamo.capture.wrap import constant

if TYPE_CHECKING:
    from torchdynamo.capture.machine import Machine


@enters(re.Pattern, re.Match)
def enter_pattern(vm: Machine, obj: Any, source: Source) -> Value:
    """They never change."""
    vm.guard(source, "ID_MATCH", obj)
    return Known(obj, source)


run_for_real(re.compile, re.match, re.fullmatch, re.search, re.split, re.findall, re.escape)


@models(re.Pattern, "finditer")
def finditer(vm: Machine, self: Value, *args: Value, **kwargs: Value) -> Object:
    real = vm.known(self, "pattern").finditer
    try:
        found = real(*map(vm.concretely, args), **{name: vm.concretely(arg) for name, arg in kwargs.items()})
    except TypeError as error:
        raise vm.error(TypeError, *error.args) from None
    return make_iterator(vm, (constant(vm, match) for match in found), None, type(found))


@polyfill(re.finditer)
def finditer_of(pattern, string, flags=0):
    return re.compile(pattern, flags).finditer(string)


ZERO = Known(0)


def replaces(name: str, at: Any) -> None:
    """`sub` and `subn`: with a text, done at once; with a function, step by step."""

    def row(vm: Machine, self: Value, repl: Value, string: Value, count: Value = ZERO) -> Value:
        if repl.__class__ is Known and isinstance(repl.obj, (str, bytes)):
            return vm.run_pure(getattr(re.Pattern, name), [self, repl, string, count], {})
        pair = vm.call(Known(replaced), [self, repl, string, count], {})
        return vm.getitem(pair, at) if at is not NONE else pair

    models(re.Pattern, name)(row)


replaces("sub", ZERO)
replaces("subn", NONE)


def replaced(pattern, repl, string, count):
    pieces, end, done = [], 0, 0
    for match in pattern.finditer(string):
        if count and done >= count:
            break
        pieces.append(string[end : match.start()])
        piece = repl(match)
        if piece is not None:
            pieces.append(piece)
        end = match.end()
        done += 1
    pieces.append(string[end:])
    return string[:0].join(pieces), done


@polyfill(re.sub)
def sub(pattern, repl, string, count=0, flags=0):
    return re.compile(pattern, flags).sub(repl, string, count)


@polyfill(re.subn)
def subn(pattern, repl, string, count=0, flags=0):
    return re.compile(pattern, flags).subn(repl, string, count)
