"""re: patterns and matches are constants; a function that `sub` calls for each match is inlined."""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import re
from typing import Any

from torchdynamo.capture.vm.heap import MISSING
from torchdynamo.capture.vm.iteration import make_iterator
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import enters, models, polyfill, run_for_real
from torchdynamo.capture.vm.scalar_subclasses import plain_value
from torchdynamo.capture.vm.wrap import enter_singleton, lift
from torchdynamo.core.value import NONE, ZERO, Known, Object, Value

enters(re.Pattern, re.Match)(enter_singleton)  # they never change


run_for_real(re.compile, re.escape)


def plain_text(vm: Machine, text: Value) -> Value:
    """Return the text to search in as a constant. No method of a subclass of str is asked."""
    plain = plain_value(vm, text)
    if plain is None or text.__class__ is not Object:
        return text
    real = vm.entity(text).real
    return plain if real is MISSING else Known(real)


def model_search(name: str) -> None:
    def row(vm: Machine, self: Value, string: Value, *args: Value, **kwargs: Value) -> Value:
        return vm.run_pure(getattr(re.Pattern, name), [self, plain_text(vm, string), *args], kwargs)

    models(re.Pattern, name)(row)


for _name in ("match", "fullmatch", "search", "split", "findall"):
    model_search(_name)


@polyfill(re.match)
def match(pattern, string, flags=0):
    return re.compile(pattern, flags).match(string)


@polyfill(re.fullmatch)
def fullmatch(pattern, string, flags=0):
    return re.compile(pattern, flags).fullmatch(string)


@polyfill(re.search)
def search(pattern, string, flags=0):
    return re.compile(pattern, flags).search(string)


@polyfill(re.split)
def split(pattern, string, maxsplit=0, flags=0):
    return re.compile(pattern, flags).split(string, maxsplit)


@polyfill(re.findall)
def findall(pattern, string, flags=0):
    return re.compile(pattern, flags).findall(string)


@models(re.Pattern, "finditer")
def finditer(vm: Machine, self: Value, *args: Value, **kwargs: Value) -> Object:
    real = vm.known(self, "pattern").finditer
    seen = [vm.concretely(plain_text(vm, arg)) for arg in args]
    try:
        found = real(*seen, **{name: vm.concretely(arg) for name, arg in kwargs.items()})
    except TypeError as error:
        raise vm.error(TypeError, *error.args) from None
    return make_iterator(vm, (lift(vm, match) for match in found), None, type(found))


@polyfill(re.finditer)
def finditer_of(pattern, string, flags=0):
    return re.compile(pattern, flags).finditer(string)


def model_sub(name: str, at: Any) -> None:
    """Model `sub` or `subn`: with a replacement text, run at once; with a function, inlined match by match."""

    def row(vm: Machine, self: Value, repl: Value, string: Value, count: Value = ZERO) -> Value:
        if repl.__class__ is Known and isinstance(repl.obj, (str, bytes)):
            return vm.run_pure(getattr(re.Pattern, name), [self, repl, plain_text(vm, string), count], {})
        pair = vm.call(Known(replace_each), [self, repl, string, count], {})
        return vm.getitem(pair, at) if at is not NONE else pair

    models(re.Pattern, name)(row)


model_sub("sub", ZERO)
model_sub("subn", NONE)


def replace_each(pattern, repl, string, count):
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
