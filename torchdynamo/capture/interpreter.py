"""The loop: one handler per canonical instruction, its stack effect in its declaration."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torchdynamo.bytecode.instruction import Code, Instruction
from torchdynamo.bytecode.versions import EXCEPTION_TABLE
from torchdynamo.capture import block_stack
from torchdynamo.capture.frame import Frame
from torchdynamo.capture.vm.self_inspection import inspects_itself
from torchdynamo.core.call_sites import call_site
from torchdynamo.core.signals import Break, Raised, Stop
from torchdynamo.core.value import ABSENT, Known, Value
from torchdynamo.hook import frames, interrupts
from torchdynamo.hook.interrupts import waiting

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine

Handler = Callable[..., Any]
# op -> (handler, values popped or a function of the argument, values pushed; None: the handler moves the counter)
OPS: dict[str, tuple[Handler, int | Callable[[Any], int], int | None]] = {}
FINISHED = -1
MANY = 99  # `-- *items`: however many the handler returns
Plan = list[tuple[Handler, int, int | None, Instruction]]


def op(names: str, effect: str, pops: Callable[[Any], int] | None = None) -> Callable[[Handler], Handler]:
    """Register the handler of canonical instructions; the effect is written `"a b -- c"`.

    `"*items -- x"` takes as many as `pops(arg)` says. After `--`, `jump` means the handler returns the index of the
    next instruction (None: the following one) and pushes for itself.
    """
    left, _, right = effect.partition("--")
    count: int | Callable[[Any], int] = pops if pops is not None else len(left.split())
    outputs = right.split()
    pushes = None if outputs == ["jump"] else MANY if outputs[:1] and outputs[0][0] == "*" else len(outputs)

    def register(fn: Handler) -> Handler:
        for name in names.split():
            OPS[name] = (fn, count, pushes)
        return fn

    return register


def plan(code: Code) -> Plan:
    """Return the handlers of a code object's instructions, looked up once."""
    found: Plan | None = code.analyses.get("plan")
    if found is None:
        found = []
        for inst in code.instructions:
            handler, pops, pushes = OPS.get(inst.op, UNKNOWN)
            found.append((handler, pops if isinstance(pops, int) else pops(inst.arg), pushes, inst))
        code.analyses["plan"] = found
    return found


def unknown_instruction(vm: Machine, frame: Frame, inst: Instruction) -> None:
    raise Break("unsupported instruction", name=inst.op)


UNKNOWN: tuple[Handler, int, int] = (unknown_instruction, 0, 0)


def run(vm: Machine, frame: Frame) -> Value:
    """Execute a frame to its return; a generator to its next yield."""
    frame.passed, vm.passed = vm.passed, ()
    frame.caller = call_site(vm.frames, frame.passed)
    vm.frames.append(frame)
    frame.ops = vm.ops
    vm.count_turn(frame.raw.co_name)
    if vm.stops:
        frame.level = level(vm, frame)
    try:
        while True:
            try:
                return run_until_raise(vm, frame)
            except Raised as raised:
                if not unwind(vm, frame, raised):
                    raise
    except Break as why:
        if why.where is None:
            why.where = frame.position()
            why.callers = tuple(each.position() for each in vm.frames[:-1] if each.globals.source is not None)
            why.inner = directly_called(vm)
        raise
    except Stop as stop:
        stop.frames.append(frame)
        raise
    finally:
        vm.frames.pop()


def level(vm: Machine, frame: Frame) -> int:
    """Return the index of a frame among those that are left where capture stops; -1 for any other."""
    if frame.root:
        return 0
    below = vm.frames[-2] if frame.direct else frame
    leads_here = below.level >= 0 and below.level + 1 < len(vm.stops)
    return below.level + 1 if leads_here and len(below.path) - 1 == vm.stops[below.level] else -1


def directly_called(vm: Machine) -> list[Frame]:
    """Return the frames above the root that can be left and continued one by one: each in the call of an instruction.

    Frames without an operator so far are left out: Python calls them as well, since nothing of theirs would be in the
    graph.
    """
    found: list[Frame] = []
    for frame in vm.frames[1:]:
        ours = frame.globals.source is None or frame.namespace is not None
        if not frame.direct or ours or frame.handling or inspects_itself(frame.raw):
            break
        if frames.skip_reason(frame.raw, frame.globals.real) is not None:
            break  # what it does before the break is not for graphs either
        found.append(frame)
    while found and found[-1].ops == vm.ops:
        found.pop()
    return found


def run_up_to(vm: Machine, frame: Frame, end: int) -> Value:
    """Execute instructions from where a frame is up to another. Return its result if it returns before, else ABSENT."""
    steps = list(plan(frame.code))
    if end >= 0:
        steps[end] = (arrive, 0, None, steps[end][3])
    return run_until_raise(vm, frame, steps)


def arrive(vm: Machine, frame: Frame, inst: Instruction) -> int:
    frame.result = ABSENT
    return FINISHED


def run_until_raise(vm: Machine, frame: Frame, given: Plan | None = None) -> Value:
    """Execute instructions until the frame returns, yields or raises. This is the hot loop."""
    steps = given or plan(frame.code)
    stack = frame.stack
    root = frame.root
    path = frame.path
    stop = vm.stops[-1] if frame.level >= 0 and frame.level + 1 == len(vm.stops) else -1
    pc = frame.pc
    while True:
        frame.pc = pc
        if waiting:
            interrupts.deliver()
        handler, pops, pushes, inst = steps[pc]
        if stop == len(path):
            raise Stop
        path.append(pc)
        if root:
            vm.step += 1
        if pops == 0:
            result = handler(vm, frame, inst)
        elif pops == 1:
            result = handler(vm, frame, inst, stack.pop())
        else:
            args = stack[-pops:]
            del stack[-pops:]
            result = handler(vm, frame, inst, *args)
        if pushes == 1:
            stack.append(result)
            pc += 1
        elif pushes is None:
            if result is None:
                pc += 1
            elif result is FINISHED:
                return frame.result
            else:
                pc = result
        else:
            if pushes:
                stack.extend(result)
            pc += 1


def unwind(vm: Machine, frame: Frame, raised: Raised) -> bool:
    """Go to the handler of the current instruction, if there is one."""
    vm.note_raised(raised.value)
    if not EXCEPTION_TABLE:
        return block_stack.unwind(vm, frame, raised.value)
    region = frame.code.lookup(frame.pc)
    if region is None:
        return False
    came: Value = Known(frame.pc)
    if region.lasti:
        inst = frame.code.instructions[frame.pc]
        if inst.op == "RERAISE" and inst.arg:  # the frame stays where it was when that was first raised
            came = frame.stack[-inst.arg]
    del frame.stack[region.depth :]
    if region.lasti:
        frame.stack.append(came)
    frame.stack.append(raised.value)
    frame.pc = region.handler
    return True
