"""Plain Python: functions, cells, globals, builtins, classes, properties, containers, settings."""

from __future__ import annotations

import enum
import sys
import types
from collections import OrderedDict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np
import torch
from mutating import Mutation, Row, changing, mutation, one, setting, setting_code, x

FACTOR = 2.0
TABLE = {"a": 1.0, "b": 2.0}
NUMBERS = [1.0, 2.0]
TENSOR = torch.ones(2)


def helper(x: torch.Tensor, plus: float = 1.0, *, times: float = 1.0) -> torch.Tensor:
    return (x + plus) * times


def other_helper(x: torch.Tensor, plus: float = 1.0, *, times: float = 1.0) -> torch.Tensor:
    return x - plus


def in_globals(**names: Any) -> Any:
    """Names of this file are given other values until the row is done."""
    return lambda stack: stack.enter_context(mock.patch.dict(globals(), names))


@mutation
def global_number() -> Mutation:
    return Mutation(lambda x: x * FACTOR, one, in_globals(FACTOR=3.0))


@mutation
def global_number_of_another_type() -> Mutation:
    return Mutation(lambda x: (x * FACTOR, str(FACTOR)), one, in_globals(FACTOR=2))


@mutation
def global_function() -> Mutation:
    return Mutation(lambda x: helper(x), one, in_globals(helper=other_helper))


@mutation
def global_tensor() -> Mutation:
    return Mutation(lambda x: x + TENSOR, one, in_globals(TENSOR=torch.zeros(2)))


@mutation
def global_deleted() -> Mutation:
    def change(stack: ExitStack) -> None:
        stack.enter_context(mock.patch.dict(globals()))
        globals().pop("FACTOR", None)

    return Mutation(lambda x: x * FACTOR, one, change)


@mutation
def builtin_shadowed_by_a_global() -> Mutation:
    return Mutation(lambda x: x * len(NUMBERS), one, in_globals(len=lambda items: 7))


@mutation
def builtin_patched() -> Mutation:
    import builtins

    return Mutation(lambda x: x * abs(FACTOR), one, setting(builtins, "abs", lambda number: 9.0))


@mutation
def global_nobody_reads() -> Mutation:
    return Mutation(lambda x: x * FACTOR, one, in_globals(UNREAD=1), seen=False, free=True)


@mutation
def code_of_a_function() -> Mutation:
    return Mutation(lambda x: helper(x), one, setting_code(helper, other_helper))


@mutation
def defaults_of_a_function() -> Mutation:
    def local(x: torch.Tensor, plus: float = 1.0) -> torch.Tensor:
        return x + plus

    return Mutation(lambda x: local(x), one, lambda stack: setattr(local, "__defaults__", (5.0,)))


@mutation
def keyword_defaults_of_a_function() -> Mutation:
    def local(x: torch.Tensor, *, times: float = 1.0) -> torch.Tensor:
        return x * times

    return Mutation(lambda x: local(x), one, lambda stack: setattr(local, "__kwdefaults__", {"times": 5.0}))


@mutation
def keyword_default_set_in_place() -> Mutation:
    def local(x: torch.Tensor, *, times: float = 1.0) -> torch.Tensor:
        return x * times

    return Mutation(lambda x: local(x), one, lambda stack: local.__kwdefaults__.__setitem__("times", 4.0))


@mutation
def defaults_of_the_frame_itself() -> Mutation:
    def fn(x: torch.Tensor, plus: float = 1.0) -> torch.Tensor:
        return x + plus

    return Mutation(fn, one, lambda stack: setattr(fn, "__defaults__", (5.0,)))


@mutation
def attribute_of_a_function() -> Mutation:
    def local(x: torch.Tensor) -> torch.Tensor:
        return x * local.scale  # type: ignore[attr-defined]

    local.scale = 2.0  # type: ignore[attr-defined]
    return Mutation(lambda x: local(x), one, lambda stack: setattr(local, "scale", 3.0))


@mutation
def closure_cell() -> Mutation:
    scale = 2.0

    def change(stack: ExitStack) -> None:
        nonlocal scale
        scale = 3.0

    return Mutation(lambda x: x * scale, one, change)


@mutation
def closure_cell_of_a_callee() -> Mutation:
    scale = 2.0

    def inner(x: torch.Tensor) -> torch.Tensor:
        return x * scale

    def change(stack: ExitStack) -> None:
        nonlocal scale
        scale = 3.0

    return Mutation(lambda x: inner(x), one, change)


@mutation
def closure_cell_emptied() -> Mutation:
    scale = 2.0

    def change(stack: ExitStack) -> None:
        nonlocal scale
        del scale

    return Mutation(lambda x: x * scale, one, change)


@mutation
def closure_cell_filled() -> Mutation:
    if FACTOR < 0:
        late = 1.0

    def fn(x: torch.Tensor) -> Any:
        try:
            return x * late
        except NameError:
            return x + 1

    def change(stack: ExitStack) -> None:
        nonlocal late
        late = 3.0

    return Mutation(fn, one, change)


@mutation
def closure_holds_another_function() -> Mutation:
    inner = helper

    def change(stack: ExitStack) -> None:
        nonlocal inner
        inner = other_helper

    return Mutation(lambda x: inner(x), one, change)


@mutation
def dict_value() -> Mutation:
    return Mutation(lambda x: x * TABLE["a"], one, lambda stack: stack.enter_context(mock.patch.dict(TABLE, a=5.0)))


@mutation
def dict_grows_and_is_walked() -> Mutation:
    def fn(x: torch.Tensor) -> torch.Tensor:
        for value in TABLE.values():
            x = x * value
        return x

    return Mutation(fn, one, lambda stack: stack.enter_context(mock.patch.dict(TABLE, c=5.0)))


@mutation
def dict_key_missing_then_there() -> Mutation:
    return Mutation(lambda x: x * TABLE.get("z", 1.0), one, lambda s: s.enter_context(mock.patch.dict(TABLE, z=5.0)))


@mutation
def dict_key_deleted() -> Mutation:
    table = {"a": 2.0, "b": 3.0}
    return Mutation(lambda x: x * table["a"] if "a" in table else x, one, lambda stack: table.pop("a"))


@mutation
def dict_order() -> Mutation:
    table = {"a": 2.0, "b": 3.0}

    def fn(x: torch.Tensor) -> Any:
        return x * next(iter(table.values())), list(table)

    return Mutation(fn, one, lambda stack: table.__setitem__("a", table.pop("a")))


@mutation
def dict_key_nobody_reads() -> Mutation:
    table = {"a": 2.0}
    return Mutation(lambda x: x * table["a"], one, lambda stack: table.__setitem__("b", 1.0), seen=False, free=True)


@mutation
def ordered_dict_moved() -> Mutation:
    table = OrderedDict(a=2.0, b=3.0)
    return Mutation(lambda x: x * next(iter(table.values())), one, lambda stack: table.move_to_end("a"))


@mutation
def list_item() -> Mutation:
    numbers = [1.0, 2.0]
    return Mutation(lambda x: x * numbers[0], one, lambda stack: numbers.__setitem__(0, 5.0))


@mutation
def list_grows() -> Mutation:
    numbers = [1.0, 2.0]
    return Mutation(lambda x: x * len(numbers), one, lambda stack: numbers.append(5.0))


@mutation
def list_slice_replaced() -> Mutation:
    numbers = [2.0, 3.0]

    def fn(x: torch.Tensor) -> torch.Tensor:
        for number in numbers:
            x = x * number
        return x

    return Mutation(fn, one, lambda stack: numbers.__setitem__(slice(None), [4.0, 5.0]))


@mutation
def list_becomes_true() -> Mutation:
    numbers: list[float] = []
    return Mutation(lambda x: x + 1 if numbers else x * 2, one, lambda stack: numbers.append(1.0))


@mutation
def set_member() -> Mutation:
    names = {"a", "b"}
    return Mutation(lambda x: x + 1 if "a" in names else x, one, lambda stack: names.discard("a"))


@mutation
def tuple_argument() -> Mutation:
    given = [(1.0, 2.0)]
    return Mutation(lambda x, pair: x * pair[0], lambda: (x(), given[0]), lambda s: given.__setitem__(0, (3.0, 2.0)))


@mutation
def string_argument() -> Mutation:
    given = ["sum"]
    return Mutation(lambda x, how: getattr(x, how)(), lambda: (x(), given[0]), lambda s: given.__setitem__(0, "mean"))


@mutation
def negative_zero() -> Mutation:
    given = [0.0]
    return Mutation(
        lambda x, zero: (x * zero, str(zero)), lambda: (x(), given[0]), lambda s: given.__setitem__(0, -0.0)
    )


@mutation
def true_for_one() -> Mutation:
    given: list[Any] = [1]
    return Mutation(lambda x, n: (x * n, str(n)), lambda: (x(), given[0]), lambda s: given.__setitem__(0, True))


class Config:
    scale = 2.0

    def __init__(self) -> None:
        self.depth = 2

    @property
    def double(self) -> float:
        return 2.0

    def method(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1

    @staticmethod
    def static(x: torch.Tensor) -> torch.Tensor:
        return x + 2

    @classmethod
    def made(cls, x: torch.Tensor) -> torch.Tensor:
        return x * cls.scale


class SubConfig(Config):
    pass


@mutation
def config_attribute() -> Mutation:
    config = Config()
    return Mutation(lambda x: x * config.depth, one, lambda stack: setattr(config, "depth", 3))


@mutation
def config_replaced() -> Mutation:
    config = Config()

    def change(stack: ExitStack) -> None:
        nonlocal config
        config = Config()
        config.depth = 4

    return Mutation(lambda x: x * config.depth, one, change)


@mutation
def class_attribute() -> Mutation:
    config = Config()
    return Mutation(lambda x: x * config.scale, one, setting(Config, "scale", 5.0))


@mutation
def class_attribute_of_the_base() -> Mutation:
    config = SubConfig()
    return Mutation(lambda x: x * config.scale, one, setting(Config, "scale", 5.0))


@mutation
def class_attribute_shadowed_in_between() -> Mutation:
    config = SubConfig()
    return Mutation(lambda x: x * config.scale, one, setting(SubConfig, "scale", 5.0))


@mutation
def class_attribute_shadowed_on_the_instance() -> Mutation:
    config = Config()
    return Mutation(lambda x: x * config.scale, one, lambda stack: setattr(config, "scale", 5.0))


@mutation
def class_attribute_read_of_the_class() -> Mutation:
    return Mutation(lambda x: x * Config.scale, one, setting(Config, "scale", 5.0))


@mutation
def property_replaced() -> Mutation:
    config = Config()
    return Mutation(lambda x: x * config.double, one, setting(Config, "double", property(lambda self: 7.0)))


@mutation
def property_replaced_by_a_value() -> Mutation:
    config = Config()
    return Mutation(lambda x: x * config.double, one, setting(Config, "double", 6.0))


@mutation
def property_reads_what_changed() -> Mutation:
    class Deep(Config):
        @property
        def doubled(self) -> int:
            return self.depth * 2

    config = Deep()
    return Mutation(lambda x: x * config.doubled, one, lambda stack: setattr(config, "depth", 5))


@mutation
def method_patched_on_the_class() -> Mutation:
    config = Config()
    return Mutation(lambda x: config.method(x), one, setting(Config, "method", lambda self, x: x * 7))


@mutation
def method_patched_on_the_instance() -> Mutation:
    config = Config()
    return Mutation(lambda x: config.method(x), one, lambda stack: setattr(config, "method", lambda x: x * 7))


@mutation
def method_patched_on_the_base() -> Mutation:
    config = SubConfig()
    return Mutation(lambda x: config.method(x), one, setting(Config, "method", lambda self, x: x * 7))


@mutation
def method_code_replaced() -> Mutation:
    def other(self: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 7

    config = Config()
    return Mutation(lambda x: config.method(x), one, setting_code(Config.method, other))


@mutation
def static_method_replaced() -> Mutation:
    config = Config()
    return Mutation(lambda x: config.static(x), one, setting(Config, "static", staticmethod(lambda x: x * 7)))


@mutation
def class_method_replaced() -> Mutation:
    config = Config()
    return Mutation(lambda x: config.made(x), one, setting(Config, "made", classmethod(lambda cls, x: x * 7)))


@mutation
def getattr_added_to_the_class() -> Mutation:
    config = Config()

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * getattr(config, "missing", 1.0)

    return Mutation(fn, one, setting(Config, "__getattr__", lambda self, name: 8.0))


@mutation
def getattribute_added_to_the_class() -> Mutation:
    class Plain:
        value = 2.0

    plain = Plain()

    def change(stack: ExitStack) -> None:
        Plain.__getattribute__ = lambda self, name: 8.0  # type: ignore[assignment]

    return Mutation(lambda x: x * plain.value, one, change)


@mutation
def operator_added_to_the_class() -> Mutation:
    class Number:
        def __mul__(self, other: torch.Tensor) -> torch.Tensor:
            return other * 2

    number = Number()

    def change(stack: ExitStack) -> None:
        Number.__mul__ = lambda self, other: other * 3  # type: ignore[method-assign]

    return Mutation(lambda x: number * x, one, change)


@mutation
def bool_added_to_the_class() -> Mutation:
    class Flag:
        pass

    flag = Flag()

    def change(stack: ExitStack) -> None:
        Flag.__bool__ = lambda self: False  # type: ignore[attr-defined]

    return Mutation(lambda x: x + 1 if flag else x - 1, one, change)


@mutation
def len_added_to_the_class() -> Mutation:
    class Flag:
        pass

    flag = Flag()

    def change(stack: ExitStack) -> None:
        Flag.__len__ = lambda self: 0  # type: ignore[attr-defined]

    return Mutation(lambda x: x + 1 if flag else x - 1, one, change)


@mutation
def eq_added_to_the_class() -> Mutation:
    class Same:
        pass

    a, b = Same(), Same()

    def change(stack: ExitStack) -> None:
        Same.__eq__ = lambda self, other: True  # type: ignore[method-assign, assignment]

    return Mutation(lambda x: x + 1 if a == b else x - 1, one, change)


@mutation
def descriptor_added_to_the_class() -> Mutation:
    class Get:
        def __get__(self, obj: Any, owner: Any) -> float:
            return 9.0

        def __set__(self, obj: Any, value: Any) -> None:
            raise AttributeError

    config = Config()
    return Mutation(lambda x: x * config.depth, one, setting(Config, "depth", Get()))


@mutation
def descriptor_get_replaced() -> Mutation:
    class Get:
        def __get__(self, obj: Any, owner: Any) -> float:
            return 9.0

    class Holder:
        value = Get()

    holder = Holder()

    def change(stack: ExitStack) -> None:
        Get.__get__ = lambda self, obj, owner: 4.0  # type: ignore[method-assign]

    return Mutation(lambda x: x * holder.value, one, change)


@mutation
def class_of_an_object() -> Mutation:
    config = Config()

    class Other(Config):
        scale = 9.0

    return Mutation(lambda x: x * config.scale, one, lambda stack: setattr(config, "__class__", Other))


@mutation
def bases_of_a_class() -> Mutation:
    class Low:
        scale = 2.0

    class High:
        scale = 3.0

    class Leaf(Low):
        pass

    leaf = Leaf()
    return Mutation(lambda x: x * leaf.scale, one, lambda stack: setattr(Leaf, "__bases__", (High,)))


@mutation
def instance_check() -> Mutation:
    class Meta(type):
        def __instancecheck__(cls, obj: Any) -> bool:
            return False

    class Kind(metaclass=Meta):
        pass

    config = Config()

    def change(stack: ExitStack) -> None:
        Meta.__instancecheck__ = lambda cls, obj: True  # type: ignore[method-assign]

    return Mutation(lambda x: x + 1 if isinstance(config, Kind) else x * 2, one, change)


@mutation
def abstract_class_registers() -> Mutation:
    import abc

    class Kind(abc.ABC):  # noqa: B024
        pass

    class Thing:
        pass

    thing = Thing()
    return Mutation(lambda x: x + 1 if isinstance(thing, Kind) else x * 2, one, lambda stack: Kind.register(Thing))


@mutation
def metaclass_attribute() -> Mutation:
    class Meta(type):
        scale = 2.0

    class Kind(metaclass=Meta):
        pass

    def change(stack: ExitStack) -> None:
        Meta.scale = 3.0

    return Mutation(lambda x: x * Kind.scale, one, change)


class Slotted:
    __slots__ = ("scale", "unset")

    def __init__(self) -> None:
        self.scale = 2.0


@mutation
def slot_value() -> Mutation:
    slotted = Slotted()
    return Mutation(lambda x: x * slotted.scale, one, lambda stack: setattr(slotted, "scale", 3.0))


@mutation
def slot_set() -> Mutation:
    slotted = Slotted()
    return Mutation(
        lambda x: x + 1 if hasattr(slotted, "unset") else x * 2, one, lambda stack: setattr(slotted, "unset", 3.0)
    )


@mutation
def slot_deleted() -> Mutation:
    slotted = Slotted()
    return Mutation(lambda x: x * slotted.scale, one, lambda stack: delattr(slotted, "scale"))


@dataclass
class Options:
    rate: float = 0.5
    names: list[str] = field(default_factory=list)


@mutation
def dataclass_field() -> Mutation:
    options = Options()
    return Mutation(lambda x: x * options.rate, one, lambda stack: setattr(options, "rate", 0.25))


@mutation
def dataclass_list_field() -> Mutation:
    options = Options()
    return Mutation(lambda x: x + len(options.names), one, lambda stack: options.names.append("a"))


class Color(enum.Enum):
    RED = 1
    BLUE = 2


@mutation
def enum_member() -> Mutation:
    config = Config()
    config.color = Color.RED  # type: ignore[attr-defined]
    return Mutation(
        lambda x: x + 1 if config.color is Color.RED else x, one, lambda stack: setattr(config, "color", Color.BLUE)
    )


@mutation
def enum_argument() -> Mutation:
    given = [Color.RED]
    return Mutation(lambda x, c: x * c.value, lambda: (x(), given[0]), lambda stack: given.__setitem__(0, Color.BLUE))


def module(**names: Any) -> types.ModuleType:
    made = types.ModuleType("settings_of_a_row")
    vars(made).update(names)
    return made


settings = module(scale=2.0)


@mutation
def attribute_of_a_module() -> Mutation:
    return Mutation(lambda x: x * settings.scale, one, setting(settings, "scale", 3.0))


@mutation
def module_in_sys_modules() -> Mutation:
    name = "settings_of_a_row"
    sys.modules[name] = module(scale=2.0)

    def fn(x: torch.Tensor) -> torch.Tensor:
        import settings_of_a_row

        return x * settings_of_a_row.scale

    def change(stack: ExitStack) -> None:
        stack.enter_context(mock.patch.dict(sys.modules, {name: module(scale=3.0)}))

    return Mutation(fn, one, change)


@mutation
def attribute_of_a_module_deleted() -> Mutation:
    box = module(scale=2.0)

    def change(stack: ExitStack) -> None:
        del box.scale

    return Mutation(lambda x: x * getattr(box, "scale", 1.0), one, change)


@mutation
def identity_of_arguments() -> Mutation:
    a, b = Config(), Config()
    given = [a, b]
    return Mutation(
        lambda x, a, b: x + 1 if a is b else x * 2, lambda: (x(), *given), lambda stack: given.__setitem__(1, given[0])
    )


@mutation
def argument_of_another_class() -> Mutation:
    class Other(Config):
        scale = 7.0

    given: list[Any] = [Config()]
    return Mutation(lambda x, c: x * c.scale, lambda: (x(), given[0]), lambda stack: given.__setitem__(0, Other()))


@mutation
def bound_method_argument() -> Mutation:
    first, second = Config(), Config()
    second.method = lambda x: x * 9  # type: ignore[method-assign, assignment]
    given: list[Any] = [first.method]
    return Mutation(lambda x, f: f(x), lambda: (x(), given[0]), lambda stack: given.__setitem__(0, second.method))


@mutation
def partial_argument() -> Mutation:
    import functools

    given = [functools.partial(helper, plus=1.0)]
    return Mutation(
        lambda x, f: f(x),
        lambda: (x(), given[0]),
        lambda stack: given.__setitem__(0, functools.partial(helper, plus=2.0)),
    )


@mutation
def lists_that_become_one() -> Mutation:
    def fn(x: torch.Tensor, a: list[float], b: list[float]) -> Any:
        a.append(3.0)
        return x * len(b)

    same: list[int] = []

    def args() -> tuple[Any, ...]:
        a = [1.0, 2.0]
        return x(), a, a if same else [1.0, 2.0]

    return Mutation(fn, args, lambda stack: same.append(1))


def another_complex_number(number: complex) -> None:
    """Make a row of a number that a function multiplies by, where torch.fx prints another than this one."""

    def row() -> Mutation:
        held = [1j]

        def change() -> None:
            held[0] = number

        return changing(lambda x: torch.view_as_real(x * held[0]).atan2(x[0, 0]), change)

    row.__name__ = f"complex_number_{number}"
    mutation(row)


for _number in (complex(-0.0, 0.0), complex(0.0, -0.0), complex(1, float("-inf"))):
    another_complex_number(_number)


def becoming_one(make: Callable[[], Any]) -> Row:
    """Two equal objects, of which the second is replaced by the first."""

    def row() -> Mutation:
        held = [make(), make()]
        return changing(lambda x: x * (2 if held[0] is held[1] else 3), lambda: held.__setitem__(1, held[0]))

    return row


for _name, _make in {
    "numbers_of_numpy": lambda: np.int64(1),
    "texts_of_numpy": lambda: np.str_("ab"),
    "frozen_sets": lambda: frozenset([1, int("2")]),
    "slices": lambda: slice(1, int("2")),
    "floats": lambda: float("2.5"),
    "complex_numbers": lambda: complex("2j"),
    "sizes": lambda: torch.Size([1, 2]),
    "tuples": lambda: (1, int("2")),
}.items():
    _row = becoming_one(_make)
    _row.__name__ = f"{_name}_become_one"
    mutation(_row)
