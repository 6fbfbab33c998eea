"""range() of numbers that vary, where only a loop sees it: how many turns there are is decided, and no more.

`range(0, n, 64)` is the same turns for many n, and `range(n, n + 4)` for all. A range that is kept says what it was
made of, and so is a constant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchdynamo.capture.torch.symbols import is_symbol, unknown
from torchdynamo.capture.vm.model import function, passes_on
from torchdynamo.capture.vm.scalar_subclasses import indexed
from torchdynamo.core.value import Known, Symbol, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine

ZERO, ONE = Known(0), Known(1)
MOST = 1 << 12  # turns


@function(range)
@passes_on
def range_(vm: Machine, /, *args: Value, **kwargs: Value) -> Value:
    direct, vm.direct = vm.direct, False
    if direct and not kwargs and 1 <= len(args) <= 3 and in_a_loop(vm) and all(map(is_int, args)):
        start, stop, step = (ZERO, *args, ONE) if len(args) == 1 else (*args, ONE)[:3]
        by_ones = start.__class__ is Known and step.__class__ is Known and step.obj in (1, -1)
        found = None if by_ones else turns(vm, start, stop, step)
        if found is not None:
            return found
    return vm.run_pure(range, [indexed(vm, arg) for arg in args], dict(kwargs))


def in_a_loop(vm: Machine) -> bool:
    """Whether the range is gone through at once, and nobody else has it."""
    frame = vm.frames[-1]
    following = frame.code.instructions[frame.pc + 1 : frame.pc + 2]
    return bool(following) and following[0].op == "GET_ITER"


def is_int(value: Value) -> bool:
    return value.pytype is int and value.__class__ in (Known, Symbol)


def turns(vm: Machine, start: Value, stop: Value, step: Value) -> Value | None:
    """The range's numbers, or None where they cannot be told in this way."""
    parts = (start, stop, step)
    if not any(map(is_symbol, parts)) or any(unknown(vm, each) for each in parts):
        return None
    first, end, by = (now(vm, each) for each in parts)
    if by == 0 or not vm.truth(vm.binary(">" if by > 0 else "<", step, ZERO)):
        return None
    count = len(range(first, end, by))
    if count > MOST:
        return None
    last = vm.binary("+", start, vm.binary("*", step, Known(count - 1)))
    beyond = vm.binary("+", start, vm.binary("*", step, Known(count)))
    inside, outside = ("<", ">=") if by > 0 else (">", "<=")
    if (count and not vm.truth(vm.binary(inside, last, stop))) or not vm.truth(vm.binary(outside, beyond, stop)):
        return None
    if start.__class__ is Known and step.__class__ is Known:
        return Known(range(first, first + count * by, by))
    return vm.make_tuple([vm.binary("+", start, vm.binary("*", step, Known(turn))) for turn in range(count)])


def now(vm: Machine, value: Value) -> int:
    """What a number is in this call."""
    found: int = vm.builder.numbers.now(value.fake) if isinstance(value, Symbol) else vm.known(value, "number")
    return found
