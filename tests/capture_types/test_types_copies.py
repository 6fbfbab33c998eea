"""copy.copy and copy.deepcopy of what frames make and find: tensors, modules, objects of all layouts."""

from __future__ import annotations

import collections
import copy
import dataclasses
import enum
import typing
from typing import Any

import pytest
import torch
from following import check

import torchdynamo

X = torch.arange(4.0)


class Plain:
    pass


class Slotted:
    __slots__ = ("__private", "a", "b")

    def hide(self, value):
        self.__private = value
        return self

    def hidden(self):
        return self.__private


class Stateful:
    def __init__(self, n):
        self.n = n

    def __getstate__(self):
        return {"n": self.n + 1}

    def __setstate__(self, state):
        self.n = state["n"] * 10


class Reduced:
    def __init__(self, n):
        self.n = n

    def __reduce__(self):
        return Reduced, (self.n + 1,)


class Both:
    def __copy__(self):
        return "copied"

    def __deepcopy__(self, memo):
        return ["deeply", len(memo)]


class Rows(list):
    pass


class Table(dict):
    pass


class Number(int):
    pass


class Pair(typing.NamedTuple):
    a: Any
    b: Any


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: Any
    b: list


class Color(enum.Enum):
    RED = 1


def tensors(x):
    y = x * 2
    z = copy.deepcopy(y)
    z.add_(1)
    same = copy.deepcopy([x, x])
    return y, z, same, same[0] is same[1], copy.deepcopy({"a": (x, [y])})


def transposed(x):
    made = copy.deepcopy(x.reshape(2, 2).t())
    return made, made.stride()


def modules(x):
    layer = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    other = copy.deepcopy(layer)
    same = other[0].weight is layer[0].weight, other[1].running_mean is layer[1].running_mean
    return other.eval()(x[None]) - layer.eval()(x[None]), same, other[0].weight.requires_grad


def parameters(x):
    weight = torch.nn.Parameter(x.clone())
    other = copy.deepcopy(weight)
    return other.detach(), type(other), other.requires_grad, other is weight


def objects(x):
    thing = Plain()
    thing.x, thing.me, thing.items = x, thing, [[1], {2}]
    other, shallow = copy.deepcopy(thing), copy.copy(thing)
    other.items[0].append(3)
    return other.x + 1, other.me is other, other.items, thing.items, shallow.me is thing, shallow.items is thing.items


def slots(x):
    thing = Slotted().hide(5)
    thing.a = [x]
    other = copy.deepcopy(thing)
    return other.a[0] + 1, other.hidden(), hasattr(other, "b"), other.a is thing.a, copy.copy(thing).a is thing.a


def by_their_own_rules(x):
    made = copy.deepcopy(Stateful(1)).n, copy.copy(Reduced(1)).n, copy.copy(Both()), copy.deepcopy([Both()])
    return x + made[0], made


def containers(x):
    queue, frozen = collections.deque([1, [2]], maxlen=3), Frozen(1, [2])
    made = [
        *(copy.deepcopy(queue), copy.copy(queue), copy.deepcopy(collections.OrderedDict(a=[1]))),
        *(copy.deepcopy(collections.defaultdict(list, a=[1])), copy.deepcopy({1}), copy.deepcopy(frozen)),
        *(copy.deepcopy(Pair(1, [2])), copy.copy(Pair(1, 2)), copy.deepcopy(collections.Counter("aab"))),
        *(copy.deepcopy(Rows([1, [2]])), copy.copy(Table(a=1)), copy.deepcopy(Number(3)), copy.deepcopy(Table(a=[1]))),
    ]
    queue[1].append(4)
    frozen.b.append(5)
    return x + 1, made


def constants(x):
    made = copy.deepcopy((torch.float32, x.device, x.shape, Color.RED, range(3), None, ..., 1.5, "a", frozenset([1])))
    return x + 1, made, copy.deepcopy(Plain) is Plain, copy.copy(Color.RED) is Color.RED


def exceptions(x):
    error = ValueError("a", 1)
    error.more = [x]
    other = copy.deepcopy(error)
    return other.more[0] + 1, other.args, other.more is error.more, copy.copy(KeyError("k")).args


def refuses(x):
    y = x.clone().requires_grad_() * 2
    try:
        copy.deepcopy(y)
    except RuntimeError as error:
        return x + 1, str(error)


PROGRAMS = [
    *(tensors, transposed, modules, parameters, objects, slots, by_their_own_rules, containers, constants, exceptions),
    refuses,
]


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_as_eager(fn: Any) -> None:
    check(fn, (X,))


def found(x, thing):
    other = copy.deepcopy(thing)
    other.tensors[0].add_(x)
    return other, other.tensors[0] * 2, other.layer(x)


def things() -> Any:
    torch.manual_seed(0)
    thing = Plain()
    thing.tensors, thing.layer = [torch.ones(4), torch.zeros(4)], torch.nn.Linear(4, 2)
    return thing


def test_of_what_was_there() -> None:
    check(found, (X, things()))


def test_shared_memory() -> None:
    """Two tensors of one memory share it afterwards, too."""
    compiled = torchdynamo.compile(found, backend="eager")
    for shared in (False, True, False):
        thing = things()
        if shared:
            thing.tensors[1] = thing.tensors[0].view(2, 2)
        made, theirs = compiled(X, thing)[0], found(X, thing)[0]
        assert torch.equal(made.tensors[1], theirs.tensors[1])


def with_gradient(x, leaf):
    other = copy.deepcopy(leaf)
    return other, other.requires_grad, other.grad


def test_gradients() -> None:
    leaf = torch.ones(4, requires_grad=True)
    compiled = torchdynamo.compile(with_gradient, backend="eager")
    for _ in range(2):
        got, wanted = compiled(X, leaf), with_gradient(X, leaf)
        assert str(got) == str(wanted)
        leaf.grad = torch.full((4,), 2.0)
