"""`__torch_function__`: what modes and subclasses of Tensor make of a call of torch's.

Nobody knows all of what torch hands over for a call (`x + 1` is `Tensor.add`, `x.T` is `Tensor.T.__get__`), so torch is
asked: the call is made with objects that do nothing but report. Then the user's method is followed with what they
got. Nodes of the graph hold plain tensors; of which class a tensor is, is known beside it.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from torchdynamo.capture.torch.tensor_subclasses import DISABLED, PLAIN, overrides, watch
from torchdynamo.capture.vm.descriptors import describe
from torchdynamo.capture.vm.heap import MISSING
from torchdynamo.capture.vm.lookup import PLAIN_METHODS, class_lookup, guarded_lookup
from torchdynamo.capture.vm.model import is_open
from torchdynamo.core.signals import Break
from torchdynamo.core.value import NONE, Known, Object, Symbol, TensorNode, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine


class Reported(Exception):
    """Raised to report that a call got as far as `__torch_function__`."""

    def __init__(self, func: Any, types: Any, args: Any, kwargs: Any) -> None:
        super().__init__(func)
        self.call = func, types, args, kwargs


class Reporter(TorchFunctionMode):
    """Report the call that a mode of the user's would see."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise Reported(func, types, args, kwargs)


class Reporting(torch.Tensor):
    """Report the call that the user's subclass of Tensor would see."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise Reported(func, types, args, kwargs)


class ReportingOther:
    """Report the call that a class of the user's with `__torch_function__`, which is no Tensor, would see."""

    __torch_function__ = Reporting.__torch_function__


class Number(int):
    """An integer of the graph, with its value in this call, as an object that is told from equal ones."""


class Probes:
    """Tensors of no content in the place of arguments, of classes that are related as the arguments' are."""

    def __init__(self, vm: Machine) -> None:
        self.vm = vm
        self.classes: dict[type, type] = {}  # the user's -> ours
        self.values: dict[int, Value] = {}
        self.kept: list[Any] = []
        self.constants: set[int] = set()
        self.numbers: list[Value] = []

    def class_for(self, cls: type) -> type:
        """Return the class of ours that stands for one of the user's."""
        if cls not in self.classes:
            above = next((base for base in cls.__mro__[1:] if overrides(base) and base is not torch.Tensor), None)
            plain = Reporting if issubclass(cls, torch.Tensor) else ReportingOther
            base = plain if above is None else self.class_for(above)
            self.classes[cls] = type("Reporting", (base,), {})
        return self.classes[cls]

    def of(self, value: Value) -> Any:
        """Return the object that torch is handed for a value."""
        if isinstance(value, TensorNode):
            made: Any = torch.empty((), device="meta")
            if overriding(self.vm, value):
                made = torch.Tensor._make_subclass(self.class_for(value.pytype), made)
            elif value.pytype is torch.nn.Parameter:
                made = torch.nn.Parameter(made)
        elif isinstance(value, Symbol) and value.pytype is int and not self.vm.builder.numbers.unknown(value.fake):
            made = Number(self.vm.builder.numbers.now(value.fake))
            self.numbers.append(value)
        elif isinstance(value, Object) and value.pytype in (list, tuple, torch.Size):
            made = value.pytype([self.of(item) for item in self.vm.iterate(value)])
        elif isinstance(value, Object) and value.pytype is slice:
            made = slice(*map(self.of, self.vm.entity(value).items))
        elif is_other(self.vm, value):
            made = self.class_for(value.pytype)()
        else:
            made = self.vm.concretely(value)
            self.constants.add(id(made))
            self.kept.append(made)
            return made
        self.values[id(made)] = value
        self.kept.append(made)
        return made

    def back(self, obj: Any) -> Value:
        """Return the value of an object that torch has handed on."""
        vm, found = self.vm, self.values.get(id(obj))
        if found is not None:
            return found
        if type(obj) is tuple:
            return vm.make_tuple([self.back(item) for item in obj])
        if type(obj) is list:
            return vm.new(list, [self.back(item) for item in obj])
        if type(obj) is dict:
            return vm.make_dict((vm.constant(key), self.back(item)) for key, item in obj.items())
        if type(obj) in (int, float, bool) and id(obj) not in self.constants:
            for number in self.numbers:  # torch has computed with them
                vm.concretely(number)
        return Known(obj) if callable(obj) else vm.constant(obj)

    def theirs(self, classes: Any) -> list[type]:
        """Return the user's classes that stand behind ours."""
        names = {ours: cls for cls, ours in self.classes.items()}
        return [names.get(cls, cls) for cls in classes]


def overriding(vm: Machine, value: Value) -> bool:
    """Return whether operators on this value are overridden by its class, as things stand."""
    if value.__class__ is TensorNode:
        return not vm.subclasses_off and overrides(value.pytype)
    return is_other(vm, value)


def is_other(vm: Machine, value: Value) -> bool:
    """Return whether an object is no tensor, of a class with a `__torch_function__`."""
    if value.__class__ is not Object or not is_open(value.pytype):
        return False
    return guarded_lookup(vm, value.pytype, "__torch_function__") not in (MISSING, DISABLED)


def among(vm: Machine, values: list[Value]) -> Iterator[Value]:
    """Yield the arguments, and what is in lists and tuples among them."""
    for value in values:
        if isinstance(value, Object) and value.pytype in (list, tuple):
            yield from among(vm, list(vm.iterate(value)))
        else:
            yield value


def of_others(vm: Machine, run: Callable[..., Any], args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """Return what a call gives whose argument is no tensor and overrides it; None if none does.

    From then on all are asked.
    """
    if vm.watching or not any(is_other(vm, each) for each in among(vm, [*args, *kwargs.values()])):
        return None
    vm.watching = True
    return handled(vm, run, args, kwargs)


def handled(
    vm: Machine, run: Callable[..., Any], args: list[Value], kwargs: dict[str, Value] | None = None
) -> Value | None:
    """Return what a call gives that a mode or a class overrides; None if torch's own function is to run."""
    kwargs = kwargs or {}
    theirs = any(overriding(vm, each) for each in among(vm, [*args, *kwargs.values()]))
    modes = vm.modes if not vm.modes_off else []
    if (not modes and not theirs) or getattr(run, "__module__", None) == "torch._C._functorch":
        return None
    if modes and vm.devices:
        raise Break("unknown context manager", type="torch.device with another mode")
    there = Probes(vm)
    real, named = [there.of(arg) for arg in args], {name: there.of(arg) for name, arg in kwargs.items()}
    try:
        with Reporter() if modes else contextlib.nullcontext():
            run(*real, **named)
    except Reported as seen:
        func, classes, given, keywords = seen.call
        given = [there.back(given), *([] if keywords is None else [there.back(keywords)])]
        return dispatch(vm, Known(func), there.theirs(classes), given)
    except Exception:  # nobody was asked; if it is the program's mistake, it will be heard of when the call is made
        return None
    return None


def dispatch(vm: Machine, func: Known, classes: list[type], given: list[Value]) -> Value:
    """Ask the mode on top, then the arguments' classes, in torch's order; return what the first gives that answers.

    Raises TypeError, in the program, if all decline.
    """
    given = [func, vm.make_tuple([Known(cls) for cls in classes]), *given]
    if vm.modes and not vm.modes_off:
        mode = vm.modes.pop()
        try:
            answer = vm.call(vm.getattr(mode, "__torch_function__"), given, {})
        finally:
            vm.modes.append(mode)
        if not declines(answer):
            return answer
    for cls in filter(overrides, classes):
        if not isinstance(class_lookup(cls, "__torch_function__"), (classmethod, staticmethod)):
            raise Break("unsupported type", type=cls.__name__)
        answer = vm.call(vm.getattr(Known(cls), "__torch_function__"), given, {})
        if not declines(answer):
            return answer
    raise vm.error(TypeError, text_of_refusal(func.obj, [cls for cls in classes if overrides(cls)]))


def text_of_refusal(func: Any, classes: list[type]) -> str:
    """Return torch's message where all have declined a call, which differs for functions in Python and in C."""
    if type(func) is types.FunctionType:
        name, shown = f"{func.__module__}.{func.__name__}", ", ".join(map(type.__repr__, classes))
        return f"no implementation found for '{name}' on types that implement __torch_function__: [{shown}]"
    each = "".join(f"  - tensor subclass {type.__repr__(cls)}\n" for cls in classes)
    place = getattr(func, "__self__", None)
    if isinstance(place, types.ModuleType):  # torch._C._fft
        name = f"torch.{place.__name__.rpartition('._')[2]}.{func.__name__}"
    else:
        name = f"torch.{'Tensor.' * (type(func) in PLAIN_METHODS)}{func.__name__}"
    says = f"Multiple dispatch failed for '{name}'; all __torch_function__ handlers returned NotImplemented"
    return f"{says}:\n\n{each}\nFor more information, try re-running with TORCH_LOGS=not_implemented"


def declines(answer: Value) -> bool:
    return answer.__class__ is Known and answer.obj is NotImplemented


def of_class(vm: Machine, value: Value, cls: type) -> TensorNode:
    """Return `value.as_subclass(cls)`: a tensor of the same numbers."""
    asked, vm.watching = vm.watching, False  # nobody is, of this
    made: Any = vm.emit("call_function", torch.ops.aten.alias.default, [value], {})
    vm.watching = asked
    typed = TensorNode(made.node, made.fake, cls)
    vm.fakes[id(made.fake)] = typed
    if overrides(cls):
        watch(vm, cls)
    return typed


def as_class(tensor: Any, cls: type) -> Any:
    """Set the class of a result of the graph, as the program did, and return the result."""
    if type(tensor) is not cls:
        tensor.__class__ = cls
    return tensor


def method(name: str) -> Callable[..., Any]:
    """Return a function that calls a method."""

    def call(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(tensor, name)(*args, **kwargs)

    return call


def is_written(cls: type, name: str) -> bool:
    """Return whether a name is what the user's class says, and not Tensor."""
    return cls not in PLAIN and class_lookup(cls, name) is not class_lookup(torch.Tensor, name)


def attribute(vm: Machine, obj: TensorNode, name: str) -> Value | None:
    """Return an attribute that the user's class defines or overrides; None if it is torch's own."""
    if is_written(obj.pytype, name):
        found = guarded_lookup(vm, obj.pytype, name)
        if not (type(found) is property or vm.effects.written(obj.fake, name) is None):
            return None
        return describe(vm, obj, obj.pytype, name, found)
    found = class_lookup(torch.Tensor, name)
    if found is MISSING or type(found) in PLAIN_METHODS or name in ("__class__", "__dict__"):
        return None
    return handled(vm, lambda tensor: getattr(tensor, name), [obj])


def write(vm: Machine, obj: TensorNode, name: str, value: Value) -> bool:
    """Write an attribute of torch's own where somebody overrides that; return whether somebody does."""
    if class_lookup(torch.Tensor, name) is MISSING:
        return False
    return handled(vm, lambda tensor, new: setattr(tensor, name, new), [obj, value]) is not None


def access(vm: Machine, wrapper: Any, args: list[Value]) -> Value:
    """Call a getter or setter like `Tensor.shape.__get__(tensor)` or `Tensor.grad.__set__(tensor, value)`."""
    name = wrapper.__self__.__name__
    if wrapper.__name__ == "__get__" and args and args[0].__class__ is TensorNode:
        return vm.getattr(args[0], name)
    if wrapper.__name__ != "__set__" or len(args) != 2:
        raise Break("unknown call", name=f"Tensor.{name}.{wrapper.__name__}")
    vm.setattr(args[0], name, args[1])
    return NONE
