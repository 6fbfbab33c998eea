"""What is iterated must stay as it is, and keys are hashed and compared as often as Python does it."""

from __future__ import annotations

import copy
from collections import OrderedDict, defaultdict, deque

import pytest

import torchdynamo
from torchdynamo import config

# ruff: noqa: B007, B015, C416, F601, F841, RET504


class Seq:
    n = 0

    def __iter__(self):
        self.n += 1
        self.i = 0
        return self

    def __next__(self):
        self.i += 1
        if self.i > 3:
            raise StopIteration
        return self.i


class OD(OrderedDict):
    def __init__(self, *a, **k):
        self.made = 1
        super().__init__(*a, **k)

    def __getitem__(self, k):
        return ("got", super().__getitem__(k))


class DD(defaultdict):
    def __init__(self, *a):
        self.seen = len(a)
        super().__init__(*a)


class H:
    def __init__(self, n):
        self.n = n
        self.h = self.e = 0

    def __hash__(self):
        self.h += 1
        return hash(self.n)

    def __eq__(self, o):
        self.e += 1
        return self.n == o.n


class Backwards(dict):
    def keys(self):
        return reversed(list(dict.keys(self)))

    __iter__ = keys


def call(exc, f, *a):
    try:
        f(*a)
    except exc:
        return "caught"
    return "not"


def escapes():
    d, s = {1: 1}, {1}
    its = iter(d), iter(d.items()), iter(s), iter(deque([1]))
    d[2] = 2
    s.add(2)
    return its


def escaped():
    return [call(RuntimeError, next, it) for it in escapes()]


def copies():
    d = Backwards([("a", 1), ("b", 2)])
    return list(dict(d)), list(d.copy()), list({**d}), list({} | d), list(Backwards(d)), [*d]


def of_entry(d):
    return len(d), 5 in d, list(d), d.get(7)


def hashed_in_a_guard():
    k = H(1)
    return call(ZeroDivisionError, of_entry, {k: 1}), k.h


def grows():
    d = {}
    d[1] = 1
    for i in d:
        d[i + 1] = 1
    return d


def same_size():
    d = {0: 0}
    for i in d:
        del d[0]
        d[0] = 0


def same_size_values():
    d = {0: 0}
    for i in d.values():
        del d[0]
        d[0] = 0


def equality_clears():
    class X(int):
        def __hash__(self):
            return 13

        def __eq__(self, other):
            if len(d) > 1:
                d.clear()
            return False

    def iter_and_mutate():
        for result in d.items():
            if result[0] == 2:
                d[2] = None

    d = {1: 1, X(2): 2}
    return call(RuntimeError, iter_and_mutate)


def fails_at_once():
    class Exc(Exception):
        pass

    class BadSeq:
        def __iter__(self):
            return self

        def __next__(self):
            raise Exc()

    return call(Exc, dict.fromkeys, BadSeq())


def asked_once():
    s = Seq()
    a = list(s)
    b = [x for x in s]
    c, d, e = s
    return a, b, c, d, e, s.n


def views():
    d = {1: [1], 2: float("nan")}
    nan = d[2]
    return (
        d.keys() == [1, 2],
        d.keys() == {1, 2},
        d.items() == d.copy().items(),
        nan in d.values(),
        (2, nan) in d.items(),
        (1,) in d.items(),
        (1, [1]) in d.items(),
        d.keys() < {1, 2, 3},
        d.keys() > {1},
        d.keys() != {1},
        d.keys() >= d.keys(),
        d.values() == d.values(),
        {1, 2} == d.keys(),
        {1} <= d.keys(),
    )


def first_key():
    d = {1: "a", 1.0: "b", True: "c"}
    return d


def missing_keys():
    class K:
        pass

    k = K()
    try:
        {}[k]
    except KeyError as e:
        a = e.args[0] is k
    try:
        del {}[k]
    except KeyError as e:
        b = e.args[0] is k
    try:
        {}.pop(k)
    except KeyError as e:
        c = e.args[0] is k
    return a, b, c


def no_pairs():
    out = []
    for bad in ([(1,)], [1], [(1, 2, 3)], 5):
        try:
            {}.update(bad)
        except Exception as e:
            out.append((type(e).__name__, str(e)))
    return out


def ordered():
    od = OrderedDict(a=1, b=2, c=3)
    out = []
    try:
        for k in od:
            od["z" + k] = 1
    except RuntimeError as e:
        out.append(str(e))
    od = OrderedDict(a=1, b=2)
    for k in od:
        if k == "b":
            od["z"] = 1
    out.append(list(od))
    od.move_to_end("a", last=False)
    od.move_to_end("b")
    out.append(list(od))
    out.append(list(reversed(od)))
    out.append(od.popitem(last=False))
    out.append(od.popitem())
    try:
        OrderedDict().popitem()
    except KeyError as e:
        out.append(e.args)
    it = iter(od)
    od["q"] = 1
    try:
        list(it)
    except RuntimeError as e:
        out.append(str(e))
    out.append(list(it))
    return out


def ordered_copies():
    d = OD(a=1)
    e = d.copy()
    f = OrderedDict(a=1).copy()
    return type(e).__name__, e.made, list(dict.items(e)), f, dict(d), {**d}


def defaults():
    d = defaultdict(list, a=[1])
    e = d.copy()
    e["b"].append(2)
    g = d | {"z": 1}
    return e, d, type(e).__name__, g, type(g).__name__, e.default_factory


def default_subclass():
    d = DD(int, {"x": 1})
    e = d.copy()
    return type(e).__name__, e.seen, e["q"], dict(e)


def says_it_again():
    d = {1: 1, 2: 2}
    it = iter(d)
    next(it)
    d[3] = 1
    out = []
    for _ in range(2):
        try:
            out.append(next(it))
        except RuntimeError as e:
            out.append(str(e))
        except StopIteration:
            out.append("end")
    return out


def after_the_end():
    d = {1: 1}
    it = iter(d)
    list(it)
    d[3] = 1
    return list(it)


def backwards():
    d = {1: 1, 2: 2, 3: 3}
    try:
        for k in reversed(d.items()):
            d[k[0] + 10] = 1
    except RuntimeError as e:
        return str(e), d


def dict_counts():
    a, b, c = H(1), H(1), H(2)
    d = {}
    out = []

    def snap():
        out.append([(x.h, x.e) for x in (a, b, c)])

    d[a] = 1
    snap()
    d[b] = 2
    snap()
    d.get(c)
    snap()
    d[c] = 3
    snap()
    d.pop(b)
    snap()
    d.setdefault(a, 1)
    snap()
    e = dict(d)
    snap()
    e.update(d)
    snap()
    f = {**d}
    snap()
    d == e
    snap()
    dict.fromkeys(d)
    snap()
    s = set(d)
    snap()
    list(d.items())
    snap()
    g = d.copy()
    snap()
    g |= d
    snap()
    b in d
    snap()
    del d[b]
    snap()
    dict.fromkeys(s)
    snap()
    s2 = set(s)
    snap()
    s | s2
    snap()
    s & s2
    snap()
    d.keys() & e.keys()
    snap()
    s.add(b)
    snap()
    s.discard(b)
    snap()
    s == s2
    snap()
    s <= s2
    snap()
    s.copy()
    snap()
    return out


def set_counts():
    a, b, c = H(1), H(1), H(2)
    out = []

    def snap():
        out.append([(x.h, x.e) for x in (a, b, c)])

    s = {a, c}
    snap()
    s.remove(b)
    snap()
    a in s
    snap()
    s.pop()
    snap()
    s.update([a, b, c])
    snap()
    t = s - {b}
    snap()
    s.symmetric_difference_update({b})
    snap()
    u = {a: 1, b: 2, c: 3}
    snap()
    u.popitem()
    snap()
    u.clear()
    snap()
    return out


def merge_and_clear():
    class X:
        def __hash__(self):
            return 0

        def __eq__(self, o):
            other.clear()
            return False

    other = {}
    other = {X(): i for i in range(10)}
    d = {X(): 0, 1: 1}
    try:
        d.update(other)
    except RuntimeError as e:
        return str(e)


def other_keys():
    class C:
        pass

    c = C()
    c.x = 1
    c.y = 2
    d = c.__dict__
    d[1] = 5
    return list(d), list(vars(c).values())


def instance_grows():
    class C:
        pass

    c = C()
    c.x = 1
    c.y = 2
    out = []
    try:
        for k in c.__dict__:
            setattr(c, k + "q", 1)
    except RuntimeError as e:
        out.append(str(e))
    for k in c.__dict__:
        setattr(c, k, 7)
    return out, c.__dict__


def sets():
    out = []
    s = {1, 2}
    try:
        for x in s:
            s.add(x + 10)
    except RuntimeError as e:
        out.append(str(e))
    s = {1}
    try:
        for x in s:
            s.add(x + 10)
    except RuntimeError as e:
        out.append(str(e))
    s = {1, 2}
    it = iter(s)
    s.add(5)
    try:
        next(it)
    except RuntimeError as e:
        out.append(str(e))
    try:
        next(it)
    except RuntimeError as e:
        out.append(str(e))
    s = {1}
    for x in s:
        s.discard(1)
        s.add(9)
    out.append(s)
    return out


def deques():
    out = []
    d = deque([1, 2])
    it = iter(d)
    d.append(3)
    for _ in range(2):
        try:
            out.append(next(it))
        except (RuntimeError, StopIteration) as e:
            out.append(repr(e))
    d = deque()
    it = iter(d)
    d.append(1)
    try:
        out.append(next(it))
    except (RuntimeError, StopIteration) as e:
        out.append(repr(e))
    d = deque([1, 2, 3])
    for x in d:
        d[0] = 5
    try:
        for x in d:
            d.rotate(1)
    except RuntimeError as e:
        out.append(repr(e))
    try:
        for x in d:
            d.append(1)
            d.pop()
    except RuntimeError as e:
        out.append(repr(e))
    for x in d:
        d.reverse()
    for x in deque([1]):
        d.rotate(0)
    try:
        for x in reversed(d):
            d.pop()
    except RuntimeError as e:
        out.append(repr(e))
    r = reversed(d)
    out.append(type(r).__name__)
    try:
        d.index(77)
    except ValueError as e:
        out.append(str(e))
    return out, d


def too_many():
    out = []
    for f in (dict, {}.update, OrderedDict, OrderedDict().update):
        try:
            f((), ())
        except TypeError as e:
            out.append(str(e))
    return out


def past_its_order():
    od = OrderedDict(a=1, b=2)
    dict.__delitem__(od, "a")
    try:
        list(od.items())
    except KeyError:
        return "KeyError"


def reduced():
    od = OrderedDict(a=1)
    n = od.__reduce__()[2]
    od.x = [10]
    c = copy.copy(od)
    return n, od.__reduce__()[2], c.x is od.x, copy.deepcopy(od).x, c


def ordered_writes():
    od = OrderedDict(a=1, b=2)
    od["c"] = 3
    del od["a"]
    od.pop("b")
    od.setdefault("z", 1)
    od.update(q=1)
    x = od.popitem()
    return od, x


def merge_and_clear_set():
    class X:
        def __hash__(self):
            return hash(0)

        def __eq__(self, o):
            other.clear()
            return False

    other = set()
    other = {X() for _ in range(3)}
    s = {0}
    s.update(other)
    return len(other)


def no_factory():
    return [call(TypeError, defaultdict, given) for given in (1, {}, [], None, list, H(1))]


def emptied_by_comparing():
    class X:
        def __eq__(self, other):
            b.clear()
            return NotImplemented

    class Y:
        def __eq__(self, other):
            a.clear()
            return NotImplemented

    a, b = [X()], [Y()]
    return a == b


def too_long():
    try:
        [1, 2] * (1 << 62)
    except (MemoryError, OverflowError) as error:
        return type(error).__name__


CASES = [
    emptied_by_comparing,
    too_long,
    no_factory,
    too_many,
    past_its_order,
    reduced,
    ordered_writes,
    merge_and_clear_set,
    grows,
    same_size,
    same_size_values,
    equality_clears,
    fails_at_once,
    asked_once,
    views,
    first_key,
    missing_keys,
    no_pairs,
    ordered,
    ordered_copies,
    defaults,
    default_subclass,
    says_it_again,
    after_the_end,
    backwards,
    dict_counts,
    set_counts,
    merge_and_clear,
    other_keys,
    instance_grows,
    sets,
    deques,
    escaped,
    copies,
    hashed_in_a_guard,
]


def outcome(fn):
    try:
        return repr(fn())
    except Exception as error:  # whatever Python says to the program
        return repr(error)


@pytest.mark.parametrize("fn", CASES, ids=lambda fn: fn.__name__)
def test_as_eager(fn):
    wanted = outcome(fn)
    with config.patch(capture_everything=True):
        compiled = torchdynamo.compile(fn, backend="eager")
        for _ in range(2):
            assert outcome(compiled) == wanted
