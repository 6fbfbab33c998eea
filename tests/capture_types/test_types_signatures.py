"""Each model, called by its own names, with too few and with too many arguments: CPython says what it takes."""

from __future__ import annotations

import builtins
import collections
import functools
import inspect
import io
import itertools
import multiprocessing
import operator
import re
import threading
import types
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from following import check

import torchdynamo
from torchdynamo.capture.vm import model, signatures
from torchdynamo.capture.vm.lookup import class_lookup
from torchdynamo.core.signals import Break
from torchdynamo.core.value import Known

REAL = {id(obj): obj for obj in model._kept}
# What CPython says of how many arguments there are, and of their names; other errors are about what they are.
ABOUT_SHAPE = re.compile(
    r"needs at least|cannot create|takes (no|at|exact|from|\d|1 or)|expected (at|exactly|\d+ arg)|unexpected keyword"
    r"|invalid keyword|must have at least|missing \d|missing (a )?required|positional arg|got some"
    r"|needs an argument|multiple values|given by name"
    r"|takes \w+ (positional )?argument|keyword argument|missing string argument|requires \d"
)


GROUP: Any = getattr(builtins, "BaseExceptionGroup", None)
ODICT: Any = collections.OrderedDict()
QUEUE: Any = collections.deque()
ITERATORS: list[Any] = [
    iter(memoryview(b"")),
    *(
        iter(each)
        for each in ([], (), "", b"", bytearray(), {}, set(), range(1), QUEUE, ODICT, {}.items(), {}.values())
    ),
    *(reversed(each) for each in ([], (), {}, QUEUE, {}.items(), {}.values(), ODICT)),
    *(
        iter(list, 1),
        iter(type("Sized", (), {"__getitem__": len})()),
        enumerate([]),
        zip(),
        map(len, []),
        filter(len, []),
    ),
    *(itertools.count(), itertools.cycle([]), itertools.repeat(1), itertools.accumulate([]), itertools.chain()),
    *(itertools.compress([], []), itertools.dropwhile(len, []), itertools.filterfalse(len, []), itertools.groupby([])),
    *(itertools.islice([], 1), itertools.starmap(len, []), itertools.takewhile(len, []), itertools.zip_longest()),
    *(itertools.product(), itertools.permutations([]), itertools.combinations([], 1), itertools.pairwise([])),
    *(itertools.combinations_with_replacement([], 1), itertools.tee([])[0], next(itertools.groupby([1]))[1]),
    *([itertools.batched([], 1)] if hasattr(itertools, "batched") else []),  # type: ignore[attr-defined, unused-ignore]
]


class Case(NamedTuple):
    """A callable and its model."""

    name: str
    fn: Any
    row: Any
    polyfill: bool = False


def cases() -> Iterator[Case]:
    for key, row in model.FUNCTIONS.items():
        if not type(REAL[key]).__name__.startswith("cython"):  # which are run for real, on generators of our own
            yield Case(getattr(REAL[key], "__qualname__", "an object"), REAL[key], row)
    for key, row in model.POLYFILLS.items():
        if REAL[key] is not getattr(operator, "call", None):
            yield Case(getattr(REAL[key], "__qualname__", "an object"), REAL[key], row, True)
    for (cls, slot), row in model.MODELS.items():
        fn = class_lookup(cls, slot)
        if type(fn) in (staticmethod, classmethod):
            fn = fn.__func__
        elif type(fn) is types.ClassMethodDescriptorType:
            fn = getattr(cls, slot)
        if "cython" in (type(fn).__name__ + cls.__name__):
            continue
        if slot[0] not in ".=" and slot != "__call__" and callable(fn):  # of a call, what is called decides
            yield Case(f"{cls.__qualname__}.{slot}", fn, row)


CASES = {f"{at} {case.name}": case for at, case in enumerate(cases())}


class Anything:
    """An argument that is refused for how it is given, not for what it is."""

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __call__(self, *args: Any) -> Any:
        return self


class Refused(Exception):
    pass


def refuse(kind: type, *args: Any) -> Refused:
    assert kind is TypeError
    return Refused(*args)


def traceback() -> types.TracebackType | None:
    try:
        raise ValueError
    except ValueError as error:
        return error.__traceback__


VM: Any = types.SimpleNamespace(error=refuse, make_tuple=Known, make_dict=lambda items: Known(dict(items)))
Call = tuple[list[Any], dict[str, Any]]
# Of what no instance can be made by `__new__` alone.
SELVES: dict[Any, Any] = {
    types.GenericAlias: lambda: list[int],
    types.GeneratorType: lambda: (each for each in ()),
    types.FunctionType: lambda: refuse,
    type: lambda: Anything,
    GROUP: lambda: GROUP("several", [ValueError()]),
    re.Pattern: lambda: ABOUT_SHAPE,
    np.generic: lambda: np.float64(1),
    torch._C.TensorBase: lambda: torch.ones(2),
    **{
        type(make()): make
        for make in (
            *(threading.Lock, threading.RLock, lambda: multiprocessing.Lock()._semlock, types.CellType, io.StringIO),
            *(io.BytesIO, lambda: Anything().__iter__, lambda: [].append, lambda: [].__len__, lambda: re),
            *(lambda: types.MappingProxyType({}), lambda: range(3), lambda: slice(3), lambda: memoryview(b"b")),
            *(lambda: weakref.ref(Anything), lambda: functools.partial(len), lambda: functools.lru_cache(len)),
            *(lambda: property(len), lambda: staticmethod(len), lambda: classmethod(len), lambda: {}.keys()),
            *({}.values, {}.items, ODICT.keys, ODICT.values, ODICT.items, lambda: operator.itemgetter(1)),
            *(
                lambda: functools.cmp_to_key(len)(1),
                lambda: torch.device("cpu"),
                traceback,
                lambda: weakref.proxy(ODICT),
            ),
            lambda: np.zeros(2),
        )
    },
    **{type(made): lambda made=made: made for made in ITERATORS},
}


def instance(case: Case) -> list[Any]:
    """Return what stands before the arguments: the object whose method it is, or the class that is made."""
    fn = case.fn
    if fn.__name__ == "__new__" and isinstance(getattr(fn, "__self__", None), type):
        return [fn.__self__]
    owner = getattr(fn, "__objclass__", None)
    if owner is None or type(fn) is types.ClassMethodDescriptorType:
        return []
    made = next((SELVES[base] for base in owner.__mro__ if base in SELVES), None)
    return [made() if made else model.plain_new(owner)(owner)]


def calls(case: Case) -> Iterator[Call]:
    """Give every number of arguments near what it takes, and each of its model's names by itself and after those."""
    code = case.row.__code__
    named = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount][(not case.polyfill) + len(instance(case)) :]
    shapes: list[tuple[int, Any]] = [(count, ()) for count in range(len(named) + 3)]
    for count in range(len(named) + 1):
        shapes += [(count, (name,)) for name in (*named[count:], "nonsense")]
        shapes.append((count, named[count:]))
    for count, names in shapes:
        yield [*instance(case), *(Anything() for _ in range(count))], {name: Anything() for name in names}


def ours(case: Case, call: Call) -> str | None:
    """Return what is raised before the model is asked; None where it is asked."""
    args, kwargs = [Known(arg) for arg in call[0]], {name: Known(value) for name, value in call[1].items()}
    try:
        of_class = isinstance(getattr(case.fn, "__self__", None), type) and case.fn.__name__ != "__new__"
        signatures.check(VM, case.fn, args, kwargs, None if case.polyfill or of_class else case.row)
    except Refused as error:
        return str(error)
    except Break:
        return "break"
    return None


def theirs(case: Case, call: Call, refused: bool) -> str | None:
    """Return what CPython raises; None where that is not about how it is called. A function in Python is not run."""
    fn = case.fn
    if type(fn) is types.FunctionType:
        code = fn.__code__.replace(
            co_code=nothing.__code__.co_code, co_consts=(None,), co_freevars=(), co_cellvars=(), **NO_HANDLERS
        )
        fn = types.FunctionType(code, {}, fn.__name__, fn.__defaults__)
        fn.__qualname__, fn.__kwdefaults__ = case.fn.__qualname__, case.fn.__kwdefaults__
    try:
        fn(*call[0], **call[1])
    except TypeError as error:
        return str(error) if refused or ABOUT_SHAPE.search(str(error)) else None
    except Exception:
        return None
    return None


def nothing() -> None:
    return None


# Python 3.10 has none; its `list` and `tuple` ignore the keywords that a subclass hands on.
NO_HANDLERS: dict[str, Any] = {"co_exceptiontable": b""} if hasattr(nothing.__code__, "co_exceptiontable") else {}


def acts(fn: Any) -> bool:
    """Return whether a call that is taken might change the process: then it is not made."""
    module = str(getattr(fn, "__module__", None))
    whole = f"{fn!r} {getattr(fn, '__self__', None)!r}"
    inside = "torch" in whole or "pybind11" in whole or module.startswith(("torch", "_warnings", "_thread"))
    return fn in (breakpoint, input, open) or inside


def is_nameless(fn: Any) -> bool:
    """Return whether only torch or functools themselves call it, by place: a name ends the graph."""
    inside = str(getattr(fn, "__module__", None)).startswith("torch._functorch")
    return inside or fn is type(functools.lru_cache(len)).__new__


def is_said(fn: Any) -> bool:
    """Return whether somebody says how it is called; where nobody does, its model calls it, or refuses by itself."""
    if type(fn) is types.FunctionType:
        return True
    of_numpy = "numpy" in f"{fn!r} {getattr(fn, '__module__', None)}"
    return not of_numpy and signatures.shape_of(fn)._replace(named=True) != signatures.UNKNOWN


GROUPS = 20


@pytest.mark.parametrize("group", range(GROUPS))
def test_what_is_taken_and_refused(group: int) -> None:
    for name, case in list(CASES.items())[group::GROUPS]:
        for call in calls(case):
            said = ours(case, call)
            if said == "break":
                assert acts(case.fn) or not is_said(case.fn) or theirs(case, call, False) is None, (name, call)
            elif said is not None:
                assert said == theirs(case, call, True), (name, call)
            elif type(case.fn) is types.FunctionType or (is_said(case.fn) and not acts(case.fn)):
                assert theirs(case, call, False) is None, (name, call)


def names_taken(fn: Any) -> set[str]:
    """Return the names by which CPython takes arguments."""
    signature = inspect.signature(fn, follow_wrapped=False) if type(fn) is types.FunctionType else None
    signature = signature or signatures.shape_of(fn).signature
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    named = type(fn) is types.FunctionType or signatures.shape_of(fn).named
    return {each.name for each in signature.parameters.values() if each.kind in kinds} if named and signature else set()


def test_models_have_the_names() -> None:
    for name, case in CASES.items():
        code = inspect.unwrap(case.row).__code__
        if not code.co_flags & inspect.CO_VARKEYWORDS and not is_nameless(case.fn):
            own = code.co_varnames[code.co_posonlyargcount : code.co_argcount + code.co_kwonlyargcount]
            assert names_taken(case.fn) <= set(own), name


def refused() -> Iterator[tuple[Any, list[Any], dict[str, Any]]]:
    """Give of each callable calls that are refused: too few arguments, too many, its model's names, one of nobody's."""
    for case in CASES.values():
        said: dict[Any, Call] = {}
        for args, kwargs in calls(case):
            if ours(case, (args, kwargs)) not in (None, "break"):
                said.setdefault((bool(kwargs), len(args) > len(instance(case)), "nonsense" in kwargs), (args, kwargs))
        yield from ((case.fn, *call) for call in said.values())


def attempt(x: Any, calls: Any) -> Any:
    said = []
    for fn, args, kwargs in calls:
        try:
            fn(*args, **kwargs)
        except TypeError as error:
            said.append(str(error))
    return x + 1, said


def test_refused_while_captured() -> None:
    """What the program catches says what CPython says."""
    compiled = torchdynamo.compile(attempt, backend="eager")
    found, x = list(refused()), torch.ones(2)
    assert len(found) > 2000
    for at in range(0, len(found), 20):
        torchdynamo.reset()
        some = found[at : at + 20]
        assert compiled(x, some)[1] == attempt(x, some)[1]


class Lines(list):  # type: ignore[type-arg]
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)


class Pair(tuple):  # type: ignore[type-arg]
    pass


D: dict[Any, Any] = {"a": 2}
WHOLE = [
    *(lambda: D.get(key="a"), lambda: len(obj=[1]), lambda: [].append(item=1), lambda: sum(items=[1]), lambda: D.get()),
    *(lambda: list(items=[1]), lambda: isinstance(obj=1, classes=int), lambda: collections.deque().rotate(steps=1)),
    *(
        lambda: D.get(1, 2, 3),
        lambda: dict(1, 2),
        lambda: D.update(self=1, vm=2),
        lambda: set(items=[1]),
        lambda: min(),
    ),
    *(lambda: sorted([1], foo=1), lambda: [].__getitem__(), lambda: dict.fromkeys(iterable=[1]), lambda: int(base=10)),
    *(
        lambda: list(enumerate(iterable="ab", start=1)),
        lambda: pow(2, exp=3),
        lambda: round(number=2.5),
        lambda: type(),
    ),
    *(
        lambda: Lines([1], items=1) if NO_HANDLERS else 0,
        lambda: Lines(),
        lambda: Pair(items=1) if NO_HANDLERS else 0,
        lambda: list.__init__([1], items=1),
    ),
    *(
        lambda: functools.partial(dict, vm=1)(),
        lambda: zip(foo=1),
        lambda: collections.deque(items=[1]),
        lambda: map(len),
    ),
    *(
        lambda: list.append([]),
        lambda: collections.deque.append([], 1),
        lambda: torch.ones(2).dim(1),
        lambda: type(1, 2),
    ),
    *(lambda: list(itertools.accumulate(iterable=[1, 2])), lambda: list(itertools.repeat(object=1, times=2))),
    *(lambda: collections.OrderedDict().pop(key=1, default=2), lambda: {}.pop(key=1), lambda: D.setdefault(key=1)),
]


def together(x: Any) -> Any:
    said = []
    for call in WHOLE:
        try:
            said.append(call())
        except TypeError as error:
            said.append(str(error))
    return x + 1, said


def test_calls_that_are_refused_end_no_graph() -> None:
    check(together, (torch.ones(2),))
