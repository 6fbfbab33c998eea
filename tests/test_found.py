"""Programs that random writing has found, in their smallest form: each was once captured wrongly, or not at all."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any

import pytest
import torch
import worlds

from torchdynamo.bytecode import versions

CASES: list[Any] = []
Call = Callable[[], list[Any]]


def case(name: str, source: str, *calls: Call, whole: bool = True) -> None:
    """A program, the arguments of its calls, and whether it is one graph."""
    CASES.append(pytest.param(textwrap.dedent(source), calls, whole, id=name))


def tensor() -> torch.Tensor:
    return torch.tensor([1.0, -2.0, 3.0])


def computed() -> torch.Tensor:
    return torch.ones(3, requires_grad=True) * 2


# -- numbers that vary ------------------------------------------------------------------------------------------------
NUMBERS = [(lambda i=i: [tensor(), i]) for i in (1, 2, 3, 3)]

case("missing_key_that_varies", "def f(x, i):\n    return x + {'a': 1}.get(i, 0)", *NUMBERS)
case(
    "given_dict_asked_for_a_number_that_varies",
    """
    def f(x, d, i):
        d.setdefault(i, 3)
        return x + d.get(i + 1, 0) + (i in d)
    """,
    *[(lambda i=i: [tensor(), {"a": i}, i]) for i in (1, 2, 3)],
)
case(
    "order_of_a_set_of_numbers_that_vary",
    """
    def f(x, ns, i):
        st = set(ns)
        st |= {i, 9}
        return x + sum(st) + min(st), list(st)
    """,
    *[(lambda i=i: [tensor(), [i, 7], i * 2]) for i in (1, 2, 3)],
)
case(
    "deep_copy_of_numbers_that_vary",
    """
    import copy
    def f(x, ns):
        return x + len(copy.deepcopy(ns)), copy.deepcopy(ns)
    """,
    *[(lambda i=i: [tensor(), [i, i]]) for i in (1, 2, 3)],
)
case(
    "number_that_a_fact_ties_to_another",
    """
    def f(x, i, ns):
        ns[0] += i
        return x * ns.count(1) + i
    """,
    *[(lambda i=i, n=n: [tensor(), i, [n, 1]]) for i, n in ((1, 3), (2, 3), (3, 3), (1, 1), (0, 1), (2, -1))],
)

# -- views ------------------------------------------------------------------------------------------------------------
case(
    "view_made_and_written_without_gradients",
    """
    def f(x):
        with torch.no_grad():
            v = x.view(-1)
            v.add_(1)
        return x * 2
    """,
    lambda: [computed()],
    lambda: [tensor()],
)

# -- classes ----------------------------------------------------------------------------------------------------------
case(
    "deleter_of_a_property",
    """
    def f(x):
        class Checked:
            @property
            def t(self):
                return self._t
            @t.setter
            def t(self, value):
                self._t = value
            @t.deleter
            def t(self):
                del self._t
        c = Checked()
        c.t = x
        try:
            del c.t
        except AttributeError:
            return x
        return x + 1, hasattr(c, "t")
    """,
    lambda: [tensor()],
)
case(
    "property_without_a_deleter",
    """
    class Box:
        t = property(lambda self: 1)
    def f(x):
        said = []
        for act in (lambda b: delattr(b, "t"), lambda b: setattr(b, "t", 1)):
            try:
                act(Box())
            except AttributeError as error:
                said.append(str(error))
        return x, said
    """,
    lambda: [tensor()],
)
case(
    "descriptor_that_is_told_of_deletes",
    """
    class Told:
        def __get__(self, owner, cls):
            return owner.log
        def __delete__(self, owner):
            owner.log.append("deleted")
    class Box:
        t = Told()
    def f(x):
        b = Box()
        b.log = []
        del b.t
        return x, b.t
    """,
    lambda: [tensor()],
)
case(
    "bases_that_hear_of_a_class",
    """
    class Reg:
        def __init_subclass__(cls, k=0, **more):
            super().__init_subclass__(**more)
            cls.k = k
            LOG.append(cls.__name__)
    LOG = []
    def f(x):
        class A(Reg, k=3):
            pass
        class B(A):
            pass
        try:
            class C(Reg, unknown=1):
                pass
        except TypeError as error:
            LOG.append(str(error))
        return x * A.k, B.k, A.__bases__ == (Reg,), [c.__name__ for c in B.__mro__]
    """,
    lambda: [tensor()],
)
case(
    "bases_of_the_frame_that_hear",
    """
    def f(x):
        class Base:
            def __init_subclass__(cls, **more):
                super().__init_subclass__()
                cls.tag = cls.__name__
            def run(self):
                return 1
        class Left(Base):
            def run(self):
                return super().run() + 1
        class Right(Base):
            def run(self):
                return super().run() * 3
        class Both(Left, Right):
            pass
        return x * Both().run(), Both.tag, Left.tag
    """,
    lambda: [tensor()],
)
case(
    "class_that_a_base_keeps",
    """
    class Reg:
        subs = []
        def __init_subclass__(cls):
            Reg.subs.append(cls.__name__)
    def f(x):
        class A(Reg):
            pass
        return x, list(Reg.subs), A
    """,
    lambda: [tensor()],
)

case(
    "attribute_set_after_it_was_deleted",
    """
    class Box:
        pass
    def f(x):
        box = BOX
        del box.n
        box.extra = x
        box.n = 0
        del box.m
        box.m = 1
        del box.m
        return x + 1, list(vars(box)), box
    BOX = Box()
    BOX.a, BOX.n, BOX.m = 1, 2, 3
    """,
    lambda: [tensor()],
)

case(
    "cell_deleted_before_the_frame_ends_by_it",
    """
    LOG = []
    def f(x, y):
        e = 1
        def own():
            return e, y
        LOG.append("written")
        del e, y
        return x + e
    """,
    lambda: [tensor(), tensor()],
    whole=False,
)

case(
    "empty_cells_are_told_apart_by_whose_they_are",
    """
    def f(x):
        said = []
        e = 1
        def inner():
            try:
                return e
            except NameError as error:
                said.append(f"{type(error)}: {error}")
        del e
        inner()
        try:
            e
        except NameError as error:
            said.append(f"{type(error)}: {error}")
        try:
            del e
        except NameError as error:
            said.append(f"{type(error)}: {error}")
        return x + len(said), said
    """,
    lambda: [tensor()],
)

case(
    "an_empty_cell_is_the_frame_s_own_after_a_break",
    """
    LOG = []
    def f(x, again):
        e = 1
        def own():
            return e
        print("break")
        try:
            raise TypeError("first")
        except TypeError as e:
            LOG.append(str(e))
        print("break")
        try:
            LOG.append(e)
        except UnboundLocalError as error:
            LOG.append((str(error), error.__context__))
        for turn in range(2):
            print("break")
            e = turn
            del e
            if again:
                x = x + e
        def clear():
            nonlocal y
            del y
        y = 1
        clear()
        try:
            print(y)
        except UnboundLocalError as error:
            LOG.append(str(error))
        del e
        return x
    """,
    lambda: [tensor(), True],
    lambda: [tensor(), False],
    whole=False,
)

case(
    "what_was_done_before_an_operator_raises",
    """
    class Counter:
        def __init__(self):
            self.calls = 0
    COUNTER = Counter()
    def f(x, index, d):
        COUNTER.calls += 1
        d["index"] = index
        return x[index] * 2
    """,
    lambda: [tensor(), torch.tensor([1]), {}],
    lambda: [tensor(), torch.tensor([7]), {}],
    lambda: [tensor(), torch.tensor([0]), {}],
)

case(
    "what_was_done_before_a_number_that_varies_is_in_vain",
    """
    def f(x, ns, d):
        d["most"] = max(ns, default=0)
        torch.as_tensor((x, x, ns))
    """,
    lambda: [tensor(), [1], {}],
    lambda: [tensor(), [3, 1, 2], {}],
    whole=False,
)

case(
    "equal_tuples_that_were_made_are_two",
    """
    def f(x, n):
        a, b = tuple([n, 0]), (n, 0)
        print("break")
        return x + 1, a is b, [a, b, [b]]
    """,
    lambda: [tensor(), 1],
    whole=False,
)


@pytest.mark.parametrize(("source", "calls", "whole"), CASES)
def test_agrees(source: str, calls: tuple[Call, ...], whole: bool) -> None:
    if not versions.EXCEPTION_TABLE and "own()" in source:
        pytest.skip("a cell of the function's own is a free variable of its continuations there")
    arguments = [lambda space, call=call: (call(), {}) for call in calls]
    assert worlds.compare(source, arguments).whole == whole
