"""`cls.__dict__`: what a class itself says, asked name by name; each answer is a guard."""

from __future__ import annotations

import torch
from following import check
from pictures import assert_alike

import torchdynamo

X = torch.arange(3.0)


class Base:
    inherited = 1


class Says(Base):
    number: int = 2

    @staticmethod
    def still(a):
        return a


def asked(x):
    own = Says.__dict__
    try:
        own["inherited"]
    except KeyError as error:
        missing = str(error)
    return (
        *(x * own["number"], "inherited" in own, "inherited" in vars(Base), own.get("none"), own.get("none", 3)),
        *(type(own).__name__, missing, list(own.get("__annotations__")), isinstance(own["still"], staticmethod)),
    )


def test_as_eager():
    check(asked, (X,))


def test_a_class_that_comes_to_say_more():
    class Later(Base):
        pass

    def told(x):
        return x + 1, "inherited" in Later.__dict__, vars(Later).get("new")

    compiled = torchdynamo.compile(told, backend="eager", fullgraph=True)
    assert_alike(told(X), compiled(X))
    Later.new = 5
    Later.inherited = 2
    assert_alike(told(X), compiled(X))
    del Later.new
    assert_alike(told(X), compiled(X))


def test_handed_out():
    def out(x):
        return x + 1, Says.__dict__

    compiled = torchdynamo.compile(out, backend="eager", fullgraph=True)
    assert compiled(X)[1] == Says.__dict__
