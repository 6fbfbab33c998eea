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
@op("GET_ANEXT", "-- awaited")
@op("ASYNC_WITH_ENTER", "manager -- exit awaited")
def waits(vm: Machine, frame: Frame, inst: Instruction, *operands: Value) -> NoReturn:
    """End the graph: what is awaited is made, and a wait follows."""
    raise Break("unsupported instruction", name=inst.op)
