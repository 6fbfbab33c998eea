"""async for, async with, await: what is no call and no wait in them."""

from __future__ import annotations

from typing import NoReturn

from torchdynamo.bytecode.instruction import Instruction
from torchdynamo.capture.frame import Frame
from torchdynamo.capture.interpreter import op
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.core.signals import Break, Raised
from torchdynamo.core.value import Value


@op("END_ASYNC_FOR", "iterator exc --")
def end_async_for(vm: Machine, frame: Frame, inst: Instruction, iterator: Value, exc: Value) -> None:
    """End the loop, or raise what its iterator has raised."""
    if not issubclass(exc.pytype, StopAsyncIteration):
        raise Raised(vm.as_object(exc))


@op("GET_AITER GET_AWAITABLE", "obj -- awaited")
def of_one(vm: Machine, frame: Frame, inst: Instruction, obj: Value) -> NoReturn:
    raise Break("unsupported instruction", name=inst.op)


@op("GET_ANEXT", "-- awaited")
def get_anext(vm: Machine, frame: Frame, inst: Instruction) -> NoReturn:
    raise Break("unsupported instruction", name=inst.op)


@op("ASYNC_WITH_ENTER", "manager -- exit awaited")
def async_with_enter(vm: Machine, frame: Frame, inst: Instruction, manager: Value) -> NoReturn:
    raise Break("unsupported instruction", name=inst.op)
