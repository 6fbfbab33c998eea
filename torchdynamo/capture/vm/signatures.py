"""Check the arguments of a call against the signature, before the model of the callable is asked.

A model's own parameters say what it needs, and are not the signature that a program sees: `{}.get(key=1)` is an error.
"""

from __future__ import annotations

import builtins
import inspect
import sys
import types
from typing import TYPE_CHECKING, Any, NamedTuple

from torchdynamo import _native
from torchdynamo.capture.frame import FunctionParts, Globals
from torchdynamo.capture.vm.binding import bind
from torchdynamo.capture.vm.c_signatures import BOTH_LOOK, SAID
from torchdynamo.capture.vm.lookup import class_lookup, is_class
from torchdynamo.capture.vm.model import Model, is_open, plain_new
from torchdynamo.core.naming import called
from torchdynamo.core.signals import Break, Raised
from torchdynamo.core.value import NONE, Known, TensorNode, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine

KEYWORDS, NO_ARGUMENTS, ONE = 0x2, 0x4, 0x8  # METH_KEYWORDS, METH_NOARGS, METH_O
MANY = 1 << 30
UNWRITTEN = "<unrepresentable>"  # a default, in the text of a function
METHODS = (types.MethodDescriptorType, types.WrapperDescriptorType)
IN_C = (*METHODS, types.BuiltinFunctionType, types.ClassMethodDescriptorType, type)
CONSTRUCTING = ("__new__", "__init__")


class Shape(NamedTuple):
    """How many arguments a callable takes by position, and which by name (`signature`; None: nobody says)."""

    fewest: int
    most: int
    named: bool  # whether it takes any by name
    signature: inspect.Signature | None

    def takes(self, count: int, names: dict[str, Value]) -> bool | None:
        """Return whether it takes `count` arguments by position and these by name; None if that is not known."""
        if not names:
            return self.fewest <= count <= self.most
        if not self.named or self.signature is None:
            return None if self.named else False
        try:
            self.signature.bind(*range(count), **names)
        except TypeError:
            return False
        return True


UNKNOWN = Shape(0, MANY, True, None)
_shapes: dict[int, tuple[Any, Shape]] = {}  # by id; with what has it, which must live


def shape_of(fn: Any) -> Shape:
    """Return how a callable in C takes its arguments, `self` of a method and the class of `__new__` included."""
    lasting = lasting_of(fn)
    known = _shapes.get(id(lasting))
    if known is None:
        known = _shapes[id(lasting)] = lasting, find_shape(fn)
    return known[1]


def lasting_of(fn: Any) -> Any:
    """Return what of a callable in C lives as long as its type: a class method is made anew each time it is read."""
    if type(fn) is types.BuiltinFunctionType and isinstance(fn.__self__, type) and fn.__name__ != "__new__":
        return class_lookup(fn.__self__, fn.__name__)
    return fn


def find_shape(fn: Any) -> Shape:
    """Look at the flags that CPython calls it by, then at its text, then at what is written here."""
    owner = owner_of(fn)
    if owner is not None:
        return constructor_shape(fn, owner)
    flags = _native.call_flags(fn)
    bound = type(fn) in METHODS
    if flags is not None and flags & (NO_ARGUMENTS | ONE):
        count = bound + bool(flags & ONE)
        return Shape(count, count, False, None)
    signature = signature_of(fn)
    named = isinstance(fn, type) or (fn.__name__ == "__call__" if flags is None else bool(flags & KEYWORDS))
    return UNKNOWN._replace(named=named) if signature is None else shape_by(signature, named)


def owner_of(fn: Any) -> type | None:
    """Return the type in C whose `__new__` or `__init__` this is."""
    if type(fn) is types.WrapperDescriptorType and fn.__name__ == "__init__":
        return fn.__objclass__
    if type(fn) is types.BuiltinFunctionType and fn.__name__ == "__new__" and isinstance(fn.__self__, type):
        return fn.__self__
    return None


def constructor_shape(fn: Any, owner: type) -> Shape:
    """Return what `__init__` takes, or `__new__` where the type has no `__init__`: else it takes anything.

    `object` looks at what else the class has: its models say what that gives.
    """
    signature = None
    if owner is object:
        return UNKNOWN
    if fn.__name__ == "__init__" or "__init__" not in owner.__dict__ or owner in BOTH_LOOK:
        signature = signature_of(owner)
    if signature is None:
        return UNKNOWN
    first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    return shape_by(signature.replace(parameters=[first, *signature.parameters.values()]), True)


def signature_of(fn: Any) -> inspect.Signature | None:
    known = _said.get(id(fn))
    if known is not None:
        return known
    namespace = vars(sys.modules.get(module_of(fn), builtins))
    untouched = "__builtins__" not in namespace
    try:
        return inspect.signature(fn)
    except (TypeError, ValueError):  # it has no text, or one that says nothing
        text = getattr(fn, "__text_signature__", None) or ""
        return of_text(text.replace("$module, /, ", "").replace("$self", "self")) if UNWRITTEN in text else None
    finally:
        if untouched:
            namespace.pop("__builtins__", None)  # inspect evaluates defaults there, and `eval` adds that name


def module_of(fn: Any) -> str:
    """Return the name of the module in whose namespace inspect evaluates the defaults of a callable in C."""
    owner = fn if getattr(fn, "__module__", None) else getattr(fn, "__objclass__", None)
    return str(getattr(owner, "__module__", None))


def of_text(text: str) -> inspect.Signature:
    """Return the signature that a text in brackets says. A default that cannot be written down is any."""
    parameters = " ".join(text.replace(UNWRITTEN, "None")[1:-1].split())
    return inspect.signature(eval(f"lambda {parameters}: 0"))


_said = {id(fn): of_text(text) for text, fns in SAID.items() for fn in fns}


def by_place(fn: Any, args: tuple[Value, ...], kwargs: dict[str, Value]) -> tuple[Value, ...]:
    """Return the arguments of a call that `fn` takes, with those in place that are given by name."""
    signature = shape_of(fn).signature if kwargs else None
    return args if signature is None else signature.bind(*args, **kwargs).args


def shape_by(signature: inspect.Signature, named: bool) -> Shape:
    """Count the parameters."""
    kinds = [(each.kind, each.default is each.empty) for each in signature.parameters.values()]
    places = [needed for kind, needed in kinds if kind in (inspect.Parameter.POSITIONAL_ONLY, PLAIN)]
    most = MANY if any(kind is inspect.Parameter.VAR_POSITIONAL for kind, _ in kinds) else len(places)
    return Shape(sum(places), most, named, signature)


PLAIN = inspect.Parameter.POSITIONAL_OR_KEYWORD


# -- models -----------------------------------------------------------------------------------------------------------
def check(vm: Machine, fn: Any, args: list[Value], kwargs: dict[str, Value], row: Model | None = None) -> None:
    """Raise what CPython raises where `fn` does not take such arguments. `row`: its model, if it is no polyfill.

    Break where nobody knows which names it takes, and the model does not hand them on.
    """
    code: types.CodeType | None = getattr(row, "__code__", None)
    if not kwargs and row is not None and code is not None and is_exact(row, code, len(args)):
        return
    if type(fn) is types.FunctionType:
        bind(vm, parts_of(fn), args, kwargs)
    elif type(fn) in IN_C or is_class(fn):
        takes = shape_of(fn).takes(len(args), kwargs)
        if takes is False:
            raise refusal(vm, fn, args, kwargs)
        if takes is None and code is not None and not code.co_flags & inspect.CO_VARKEYWORDS:
            raise Break("unknown call", name=called(fn))


def is_exact(row: Any, code: types.CodeType, count: int) -> bool:
    """Return whether a model takes that many arguments and no other number: so does what it models."""
    more = row.__defaults__ or code.co_kwonlyargcount or code.co_flags & inspect.CO_VARARGS
    return code.co_argcount == count + 1 and not more


def parts_of(fn: types.FunctionType) -> FunctionParts:
    """Take a Python function apart for its signature alone, without looking at the values of defaults."""
    return FunctionParts(
        fn.__code__,
        Globals(fn.__globals__, None, {}),
        lambda: str(fn.__qualname__),
        len(fn.__defaults__ or ()),
        lambda index: NONE,
        frozenset(fn.__kwdefaults__ or ()),
        lambda name: NONE,
        {},
    )


def refusal(vm: Machine, fn: Any, args: list[Value], kwargs: dict[str, Value]) -> Raised:
    """Return CPython's own error, by calling it: it looks at how many arguments there are before it looks at them.

    Break where it takes them after all, as types do whose subclass has an `__init__` of its own, and some methods in C
    that look at no names: then it goes on, and what else it raises is about what it was given.
    """
    given = [placeholder(arg) for arg in args]
    if type(fn) in METHODS and not isinstance(given[0], fn.__objclass__):  # none could be made
        raise Break("unknown call", name=called(fn))
    if owner_of(fn) is not None and given:
        given[0] = bare(fn.__name__, given[0])
    try:
        fn(*given, **{name: placeholder(value) for name, value in kwargs.items()})
    except TypeError as error:
        if type(error) is TypeError:
            return vm.error(TypeError, *error.args)
    except Exception as error:
        raise Break("unknown call", name=called(fn)) from error
    raise Break("unknown call", name=called(fn))


def bare(method: str, first: Any) -> Any:
    """Return an object to call `__new__` or `__init__` with, past what a user's class overrides."""
    cls = first if method == "__new__" else type(first)
    if not is_open(cls):
        return first
    base = plain_new(cls).__self__
    own = {
        name: lambda self, *args, **kwargs: None
        for name in CONSTRUCTING
        if cls.__dict__.get(name) or any(name in each.__dict__ for each in cls.__mro__ if is_open(each))
    }
    made = type(cls.__name__, (base,), own)
    return made if method == "__new__" else plain_new(made)(made)


def placeholder(value: Value) -> Any:
    """Return an object of the value's type, to be refused: never the program's own, which might be changed."""
    if value.__class__ is Known:
        return value.obj
    if value.__class__ is TensorNode:
        return value.fake
    cls = value.pytype
    try:
        return plain_new(cls)(cls)
    except (TypeError, StopIteration):  # it takes more to make one
        return object()
