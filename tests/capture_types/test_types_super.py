"""super(), in whole graphs and in programs that raise."""

from __future__ import annotations

import pytest
import torch
from following import check
from pictures import assert_alike

import torchdynamo

X = torch.arange(4.0)


class Descriptor:
    def __get__(self, obj, owner):
        return (obj is None, owner.__name__)


class Base:
    seen = Descriptor()
    __made__ = "base"

    @classmethod
    def name(cls):
        return cls.__name__

    @staticmethod
    def twice(x):
        return x * 2

    @property
    def size(self):
        return 3

    def grow(self, x):
        return x + 1


class Middle(Base):
    pass


class Below(Middle):
    @classmethod
    def name(cls):
        return super().name(), super().seen, super().twice(cls is Below)

    def all_of_it(self, x):
        s = super()
        y = super().grow(s.twice(x)) + s.size
        return y, s.name(), super(Middle, self).name(), s.seen, s.__thisclass__, s.__self_class__, s.__made__

    def on_class(self, x):
        return super(Below, Below).grow(self, x), super(Below, Below).seen, super(Below, type(self)).name()


class Lower(Below):
    pass


def on_instance(x):
    return Lower().all_of_it(x)


def on_class(x):
    return Lower().on_class(x), x


def through_classmethod(x):
    return Lower.name(), x + 1


@pytest.mark.parametrize("fn", [on_instance, on_class, through_classmethod])
def test_as_eager(fn):
    check(fn, (X,))


class Other:
    def wrong_object(self, x):
        y = x + 1
        super(Base, self).grow(y)

    def no_class(self, x):
        y = x + 1
        super(3, self).grow(y)

    def missing(self, x):
        y = x + 1
        return super().nothing(y)

    def deleted(self, x):
        y = x + 1
        del self
        return super().__init__(y)

    def replaced(self, x):
        y = x * 2
        self = Lower()
        print("between")
        return y, super(Below, self).name(), super().__init__()


@pytest.mark.parametrize("name", [name for name in vars(Other) if name[0] != "_"])
def test_errors_as_eager(name):
    fn = getattr(Other(), name)
    results = []
    for call in (fn, torchdynamo.compile(fn, backend="eager")):
        try:
            results.append(call(X))
        except Exception as error:
            results.append((type(error), error.args))
    assert_alike(results[0], results[1])
