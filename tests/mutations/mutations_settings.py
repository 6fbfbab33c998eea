"""Settings that what is run at capture rests on: NumPy's, names of builtins, where modules are looked for, texts."""

from __future__ import annotations

import builtins
import codecs
import functools
import importlib
import importlib.machinery
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy as np
import torch
from mutating import Mutation, x

Program = Callable[[torch.Tensor], Any]
ARRAY, PLAIN = np.array([1.23456789, 2.0]), np.array([1.0, 0.0])
ONE, NOUGHT, LARGE = np.float64(1), np.float64(0), np.float64(1e300)


def raising(compute: Callable[[], Any]) -> Program:
    """A program that goes another way where NumPy raises."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        try:
            compute()
        except FloatingPointError:
            return x * 3
        return x * 2

    return fn


def texts(write: Callable[[], str]) -> Program:
    return lambda x: x * len(write())


def error_state(**modes: Any) -> Callable[[ExitStack], None]:
    """NumPy is told something else of errors, for good as far as the program knows."""

    def change(stack: ExitStack) -> None:
        stack.callback(functools.partial(np.seterr, **np.geterr()))
        np.seterr(**modes)

    return change


def print_options(**options: Any) -> Callable[[ExitStack], None]:
    def change(stack: ExitStack) -> None:
        stack.callback(functools.partial(np.set_printoptions, **np.get_printoptions()))
        np.set_printoptions(**options)

    return change


QUIET = {"divide": "ignore", "invalid": "ignore", "over": "ignore", "under": "ignore"}
COMPUTING: dict[str, Callable[[], Any]] = {
    "array / 0": lambda: PLAIN / 0,
    "0 / 0": lambda: PLAIN / PLAIN,
    "number / 0": lambda: ONE / NOUGHT,
    "1 / number": lambda: 1 / NOUGHT,
    "np.sqrt": lambda: np.sqrt(-1.0),
    "np.log": lambda: np.log(PLAIN),
    "overflow": lambda: LARGE * LARGE,
    "underflow": lambda: np.exp(np.float64(-1000)),
    "power": lambda: np.power(LARGE, 2),
    "a sum": lambda: np.array([1e308, 1e308]).sum(),
    "in place": lambda: np.ones(2).__itruediv__(NOUGHT),
    "a cast": lambda: np.array([1e300]).astype(np.float32),
}
WRITTEN: dict[str, Callable[[], str]] = {
    "str": lambda: str(ARRAY),
    "repr": lambda: repr(ARRAY),
    "f-string": lambda: f"{ARRAY}",
    "array2string": lambda: np.array2string(ARRAY),
    "array_str": lambda: np.array_str(ARRAY),
    "array_repr": lambda: np.array_repr(ARRAY),
}


def computing(name: str, before: str, after: str) -> Mutation:
    """NumPy ignores an error and then raises, warns and then raises, raises and then ignores it."""
    fn = raising(COMPUTING[name])
    modes = dict.fromkeys(QUIET, before)

    def quietly(x: torch.Tensor) -> Any:
        return fn(x)

    def change(stack: ExitStack) -> None:
        np.seterr(**dict.fromkeys(QUIET, after))  # type: ignore[arg-type]
        stack.callback(functools.partial(np.seterr, **DEFAULTS))

    np.seterr(**modes)  # type: ignore[arg-type]
    return Mutation(quietly, lambda: (x(),), change)


DEFAULTS: Any = np.geterr()


def writing(name: str, **options: Any) -> Mutation:
    return Mutation(texts(WRITTEN[name]), lambda: (x(),), print_options(**options))


def asked(read: Callable[[], Any], change: Callable[[ExitStack], None]) -> Mutation:
    return Mutation(lambda x: x * len(str(read())), lambda: (x(),), change)


# ---- Names and modules ----------------------------------------------------------------------------------------------


def a_name_in_builtins(caught: bool) -> Mutation:
    if caught:

        def fn(x: torch.Tensor) -> Any:
            try:
                return x * nowhere_name  # type: ignore[name-defined]
            except NameError:
                return x + 1

    else:

        def fn(x: torch.Tensor) -> Any:
            return x * nowhere_name  # type: ignore[name-defined] # noqa: F821

    return Mutation(
        fn,
        lambda: (x(),),
        lambda stack: stack.enter_context(mock.patch.object(builtins, "nowhere_name", 3, create=True)),
    )


class Finder:
    """Finds one module, which is made up."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        return importlib.machinery.ModuleSpec(name, self) if name.endswith("nowhere_module") else None  # type: ignore[arg-type]

    def create_module(self, spec: Any) -> types.ModuleType:
        made = types.ModuleType(spec.name)
        made.k = 3.0  # type: ignore[attr-defined]
        return made

    def exec_module(self, module: types.ModuleType) -> None: ...


def statement(x: torch.Tensor) -> Any:
    try:
        import nowhere_module  # type: ignore[import-not-found]
    except ImportError:
        return x + 1
    return x * nowhere_module.k


def from_it(x: torch.Tensor) -> Any:
    try:
        from nowhere_module import k
    except ImportError:
        return x + 1
    return x * k


def by_name(x: torch.Tensor) -> Any:
    try:
        return x * importlib.import_module("nowhere_module").k
    except ModuleNotFoundError:
        return x + 1


def in_a_package(x: torch.Tensor) -> Any:
    try:
        from json import nowhere_module  # type: ignore[attr-defined]
    except ImportError:
        return x + 1
    return x * nowhere_module.k


def by_dotted_name(x: torch.Tensor) -> Any:
    try:
        import json.nowhere_module  # type: ignore[import-not-found]
    except ImportError:
        return x + 1
    return x * json.nowhere_module.k


def gone(stack: ExitStack) -> None:
    """What was found is forgotten in the end."""

    def forget() -> None:
        for name in [each for each in sys.modules if each.endswith("nowhere_module")]:
            del sys.modules[name]
        vars(importlib.import_module("json")).pop("nowhere_module", None)
        importlib.invalidate_caches()

    stack.callback(forget)


def finder(stack: ExitStack) -> None:
    gone(stack)
    stack.enter_context(mock.patch.object(sys, "meta_path", sys.meta_path))  # the list itself is written to
    made = Finder()
    sys.meta_path.append(made)
    stack.callback(sys.meta_path.remove, made)


def other_list_of_finders(stack: ExitStack) -> None:
    gone(stack)
    stack.enter_context(mock.patch.object(sys, "meta_path", [*sys.meta_path, Finder()]))


def folder(stack: ExitStack) -> None:
    gone(stack)
    place = stack.enter_context(TemporaryDirectory())
    Path(place, "nowhere_module.py").write_text("k = 4.0\n")
    sys.path.append(place)
    stack.callback(sys.path.remove, place)


def folder_of_a_package(stack: ExitStack) -> None:
    folder(stack)
    inner = importlib.import_module("json").__path__
    inner.append(sys.path[-1])
    stack.callback(inner.pop)


def module_itself(stack: ExitStack) -> None:
    gone(stack)
    sys.modules["nowhere_module"] = Finder().create_module(types.SimpleNamespace(name="nowhere_module"))


def importing(fn: Program, change: Callable[[ExitStack], None]) -> Mutation:
    return Mutation(lambda x: fn(x), lambda: (x(),), change)


# ---- Texts ----------------------------------------------------------------------------------------------------------


def digits(x: torch.Tensor) -> Any:
    try:
        return x * len(str(10**5000))
    except ValueError:
        return x + 1


def digits_read(x: torch.Tensor) -> Any:
    try:
        return x * (int("9" * 5000) % 7)
    except ValueError:
        return x + 1


def digits_formatted(x: torch.Tensor) -> Any:
    try:
        return x * len(f"{10**5000}")
    except ValueError:
        return x + 1


def more_digits(stack: ExitStack) -> None:
    stack.callback(sys.set_int_max_str_digits, sys.get_int_max_str_digits())
    sys.set_int_max_str_digits(0)


def encoded(x: torch.Tensor) -> Any:
    try:
        return x * len("abc".encode("nowhere-codec"))
    except LookupError:
        return x + 1


def codec(stack: ExitStack) -> None:
    def search(name: str) -> Any:
        return codecs.lookup("utf-8") if name in ("nowhere-codec", "nowhere_codec") else None

    codecs.register(search)
    stack.callback(codecs.unregister, search)


def rows() -> Iterator[Callable[[], Mutation]]:
    def named(name: str, row: Callable[..., Mutation], *args: Any, **kwargs: Any) -> Callable[[], Mutation]:
        made: Any = functools.partial(row, *args, **kwargs)
        made.__name__ = name
        return made  # type: ignore[no-any-return]

    for name in COMPUTING:
        yield named(f"{name}: ignored, then raised", computing, name, "ignore", "raise")
    for name in ("array / 0", "number / 0", "np.sqrt"):
        yield named(f"{name}: raised, then ignored", computing, name, "raise", "ignore")
        yield named(f"{name}: warned, then raised", computing, name, "warn", "raise")
    for name in WRITTEN:
        yield named(f"{name}: precision", writing, name, precision=2)
    for option, value in {"linewidth": 8, "sign": "+", "suppress": True, "edgeitems": 1, "floatmode": "fixed"}.items():
        if option in ("linewidth", "sign"):
            yield named(f"str: {option}", writing, "str", **{option: value})
    yield named("str: a formatter", writing, "str", formatter={"float": lambda number: "a number"})
    yield named("np.geterr", asked, np.geterr, error_state(all="ignore"))
    yield named("np.get_printoptions", asked, np.get_printoptions, print_options(precision=12))
    for caught in (False, True):
        yield named(f"a name in builtins, {'caught' if caught else 'raised'}", a_name_in_builtins, caught)
    for fn in (statement, from_it, by_name):
        for change in (finder, other_list_of_finders, folder, module_itself):
            yield named(f"{fn.__name__}: {change.__name__}", importing, fn, change)
    for fn in (in_a_package, by_dotted_name):
        for change in (finder, folder_of_a_package):
            yield named(f"{fn.__name__}: {change.__name__}", importing, fn, change)
    for fn in (digits, digits_read, digits_formatted):
        yield named(f"{fn.__name__}: more digits", importing, fn, more_digits)
    yield named("encoded: a codec", importing, encoded, codec)


SETTINGS: list[Callable[[], Mutation]] = list(rows())
