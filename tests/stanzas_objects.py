"""More lines that belong together: classes with special methods, control flow that leaves in every way, texts, tensors.

The places in capitals are those of stanzas.py.
"""

from __future__ import annotations

CALM = """
class Vec:
    def __init__(self, t):
        self.t = t
    def __eq__(self, other):
        return isinstance(other, Vec) and other.t is self.t
    def __hash__(self):
        return 7
    def __len__(self):
        return 2
    def __getitem__(self, at):
        return self.t * at
v = Vec(T)
k = int(v == Vec(v.t)) + int(v != Vec(T + 1)) + len({v, Vec(T)}) + len(v)
z = v[I]
---
class Kept(Box):
    made = []
    by = T
    def __init__(self, a, n):
        super().__init__(a, n)
        Kept.made.append(n)
    def grow(self, by=I):
        return super().grow(by) + self.by
o = Kept(T, I)
z = o.grow() * len(Kept.made)
---
class Tagged(type):
    def __new__(meta, name, bases, space, **named):
        space["tag"] = name.lower() + str(len(named))
        return super().__new__(meta, name, bases, space)
    def __init__(cls, name, bases, space, **named):
        super().__init__(name, bases, space)
        cls.count = 0
    def __call__(cls, *args):
        cls.count += 1
        return super().__call__(*args)
class Tag(Box, metaclass=Tagged, by=I):
    def __init__(self, t):
        super().__init__(t, Tag.count)
o = Tag(T)
LOG.append(Tag.tag)
z = o.a * Tag.count
---
made = type("Made", (Box,), {"extra": T, "kind": "made"})
o = made(T, I)
z = o.extra + o.grow()
---
from collections import namedtuple
Pair = namedtuple("Pair", "t n", defaults=(I,))
p = Pair(T)
d["pair"] = p
z = p.t * p.n
---
class Table:
    def __init__(self):
        self.rows = {}
    def __getitem__(self, key):
        return self.rows[key]
    def __setitem__(self, key, row):
        self.rows[key] = row
    def __delitem__(self, key):
        del self.rows[key]
    def __contains__(self, key):
        return key in self.rows
    def __iter__(self):
        return iter(self.rows.values())
tb = Table()
tb["a"], tb[I] = T, T + 1
tb["a"] += 1
if I in tb:
    del tb[I]
z = sum(tb, T)
---
class Upto:
    def __init__(self, n):
        self.n = n
    def __iter__(self):
        self.at = 0
        return self
    def __next__(self):
        if self.at >= self.n:
            raise StopIteration
        self.at += 1
        return self.at
k = sum(Upto(3)) + len(list(Upto(2)))
z = T
for n in Upto(2):
    z = z * n
---
class Checked:
    @property
    def t(self):
        return self._t
    @t.setter
    def t(self, value):
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"no tensor: {value!r}")
        self._t = value
    @t.deleter
    def t(self):
        del self._t
c = Checked()
c.t = T
z = c.t * 2
try:
    c.t = I
except TypeError as e:
    LOG.append(str(e))
del c.t
k = hasattr(c, "t") + 0
---
O.flag = I
if I > 1:
    del O.flag
k = hasattr(O, "flag") + 0
---
O.flag = T
z = O.flag + 1
del O.flag
O.other, O.flag = I, I
k = list(vars(O)).index("flag")
---
class Lazy:
    def __getattr__(self, name):
        if name.startswith("q"):
            return len(name)
        raise AttributeError(name)
    def __setattr__(self, name, value):
        object.__setattr__(self, "_" + name, value)
lz = Lazy()
lz.t = T
z = lz._t * lz.qq
k = getattr(lz, "nope", I)
---
class Bag:
    __slots__ = ("t", "n")
    def __init__(self, t, n=1):
        self.t, self.n = t, n
    def __bool__(self):
        return self.n > 1
    def __call__(self, by):
        self.n += by
        return self.t * self.n
    def __lt__(self, other):
        return self.n < other.n
    def __neg__(self):
        return Bag(-self.t, -self.n)
    def __iadd__(self, other):
        self.t = self.t + other
        return self
    def __radd__(self, other):
        return Bag(self.t + other, self.n)
b = Bag(T, I)
z = b(2) if b else (-b).t
b += T
k = sorted([b, Bag(T, 0)])[0].n + (1 + b).n
z = z + b.t
---
class Base:
    names = []
    def __init_subclass__(cls, **more):
        super().__init_subclass__()
    @classmethod
    def make(cls, t):
        return cls(t)
    @staticmethod
    def twice(t):
        return t * 2
    def __init__(self, t):
        self.t = t
    def run(self):
        return self.t
class Left(Base):
    def run(self):
        return super().run() + 1
class Right(Base):
    def run(self):
        return super().run() * 3
class Both(Left, Right):
    pass
z = Both.make(T).run() + Base.twice(T)
---
class Ring(list):
    def __getitem__(self, at):
        return super().__getitem__(at % len(self))
    def first(self):
        return self[0]
r = Ring(IL)
r.append(I)
k = r[7] + r.first() + len(r)
---
class Counts(dict):
    def __missing__(self, key):
        self[key] = 0
        return 0
cs = Counts(a=1)
for n in IL:
    cs[n] += 1
k = cs["a"] + cs[I] + len(cs)
e = dict(cs)
---
class Stop(Exception):
    def __init__(self, t, n):
        super().__init__(n)
        self.t = t
try:
    raise Stop(T, I)
except Stop as s:
    z = s.t + s.args[0]
---
def guarded(t):
    try:
        if I > 1:
            raise ValueError("big")
        t = t + 1
    except ValueError:
        return t * 2
    else:
        t = t + 2
    finally:
        LOG.append("done")
    return t
z = guarded(T)
---
def override(t):
    for n in range(2):
        try:
            raise KeyError(n)
        finally:
            if n:
                return t + n
            continue
z = override(T)
---
def cleanup(items):
    try:
        for item in items:
            yield item
    finally:
        LOG.append("closed")
g = cleanup(TL)
z = next(g, T)
g.close()
---
def thrown():
    n = 0
    while n < 3:
        try:
            got = yield n
            n += got or 1
        except ValueError as e:
            LOG.append(str(e))
            n += 1
    return n
g = thrown()
k = next(g)
k = g.throw(ValueError("in"))
try:
    k = g.send(5)
except StopIteration as e:
    k = e.value
---
from contextlib import contextmanager, ExitStack, suppress, nullcontext
@contextmanager
def scaled(by):
    LOG.append(by)
    try:
        yield T * by
    except KeyError as e:
        LOG.append("caught")
    finally:
        LOG.append("out")
with scaled(I) as s, nullcontext(2) as two:
    z = s + two
    if C:
        raise KeyError("x")
---
with ExitStack() as stack:
    stack.callback(LOG.append, "called")
    stack.enter_context(Noted(LOG))
    z = T - 1
---
with suppress(KeyError, IndexError):
    k = D["nope"]
    z = T * 9
---
acc = []
def note(t, *rest, sep="-", **more):
    acc.append((len(rest), sep, sorted(more)))
    return t
z = note(T, *IL, **{"a": 1})
z = note(*[T, 1], sep="+")
k = len(acc)
---
def order(a, /, b, *, c=I):
    return a - b * c
z = order(T, b=2) + order(T, 1, c=0)
try:
    order(a=T, b=1)
except TypeError as e:
    LOG.append(str(e)[-40:])
---
text = "%s/%d/%5.2f" % ("a", I, 1.5) + "{:>4}|{!r:<6}|{n:03d}".format(I, "b", n=2) + f"{I=}{T.shape[0]:^5}{'x' * 2}"
k = len(text) + text.count("|") + text.find("b")
LOG.append(text.upper().replace("A", "_").split("/"))
---
word = "".join(str(n) for n in IL) + "-end"
head, sep, tail = word.partition("-")
k = len(head) + tail.startswith("e") + (head or "0").isdigit()
LOG.append(word[::-1].title().strip("D"))
---
st = set(IL)
st |= {I, 9}
st -= {1}
st ^= {2, 5}
st.update([4], (6,))
k = len(st) + (9 in st) + (st > {9}) + st.isdisjoint({100}) + sum(st & {4, 6}) + min(st)
fz = frozenset(st)
LOG.append(sorted(fz - {9}))
---
e = dict(zip("abc", IL))
e["z"] = e.pop("a", None)
e |= {"w": 1}
first = next(iter(e))
k = len(e.keys() & {"b", "w"}) + len(list(reversed(e))) + ("z" in e) + (e.get("w") == 1)
LOG.append(e.popitem())
e = {v: n for n, v in e.items() if v is not None}
---
grid = [[t * n for n in range(2)] for t in TL]
flat = [c for row in grid for c in row if C]
z = sum(flat, T)
k = len({len(row) for row in grid}) + len({n: m for n, m in enumerate(IL)})
---
match (I, T.dim(), D):
    case (0 | 1 as n, 1, {"a": a}) if a:
        k = n
    case (n, _, {"b": 2, **rest}):
        k = n + len(rest)
    case [_, *others]:
        k = len(others)
---
match O:
    case Box(n=0 | 1):
        k = 1
    case Box(a=torch.Tensor() as t, n=n):
        z = t * n
---
IL[1:1] = [7, 8]
IL[::2] = IL[::2]
del IL[-1:]
k = sum(IL) + IL.count(7)
---
ys = TL[:]
ys[0], ys[-1] = T, T * 2
ys *= 2
k = len(ys)
z = ys.pop(0) + ys[-1]
---
from functools import cached_property, wraps, lru_cache
class Once:
    def __init__(self, t):
        self.t, self.n = t, 0
    @cached_property
    def big(self):
        self.n += 1
        return self.t * 10
oc = Once(T)
z = oc.big + oc.big
k = oc.n
---
def twice(fn):
    def inner(*args, **kwargs):
        return fn(fn(*args, **kwargs))
    return inner
@twice
def plus(t, n=I):
    return t + n
z = plus(T)
---
def counter():
    n = 0
    def up():
        nonlocal n
        n += 1
        return n
    def get():
        return n
    return up, get
up, get = counter()
up(); up()
k = get() + up()
---
try:
    try:
        k = IL[10]
    except IndexError:
        raise KeyError("second")
except KeyError as e:
    k = len(repr(e)) + (type(e.__context__) is IndexError)
---
try:
    try:
        z = T.view(7)
    except RuntimeError as e:
        k = len(e.args)
        raise ValueError("shape") from None
except ValueError as e:
    k = int(e.__suppress_context__)
---
import enum
class Color(enum.Enum):
    RED = 1
    BLUE = 2
k = Color(1).value + len(Color) + (Color["BLUE"] is Color.BLUE)
---
from dataclasses import dataclass, field, replace, astuple
@dataclass(order=True)
class Item:
    n: int
    xs: list = field(default_factory=list, compare=False)
    def __post_init__(self):
        self.n += 1
it = Item(I)
it.xs.append(T)
k = replace(it, n=5).n + (Item(1) < Item(2)) + (it == Item(I)) + len(repr(Item(3)))
---
from collections import namedtuple, Counter, ChainMap
Pt = namedtuple("Pt", "t n", defaults=[3])
p0 = Pt(T)
z = p0._replace(n=I).t * p0.n
k = Counter("abca").most_common(1)[0][1] + ChainMap({"a": 1}, D)["a"]
---
import itertools as it_
k = sum(it_.chain([1], IL)) + len(list(it_.islice(it_.count(I), 3))) + [*it_.accumulate(IL)][-1:].count(0)
z = sum((a * b for a, b in it_.zip_longest(TL, IL, fillvalue=1)), T)
for key, group in it_.groupby(sorted(IL), lambda n: n % 2):
    k += len(list(group))
---
import operator as op_
z = op_.itemgetter(0)([T]) + op_.attrgetter("a")(O)
k = op_.methodcaller("count", 1)(IL) + op_.index(3)
---
a, (b, *c), d0 = 1, (2, 3, 4), I
k = a + b + len(c) + d0
---
k = [n for n in range(5) if n % 2 if n > I].__len__()
---
s0, s1 = O, O
s0.n = I
k = s1.n
s1.__dict__["n"] = 4
k += s0.n + len(vars(O))
---
def rec(n, seen):
    seen.append(n)
    return 1 if n <= 0 else n * rec(n - 1, seen)
k = rec(4, IL)
---
def gen_all(depth):
    if depth:
        yield depth
        yield from gen_all(depth - 1)
k = sum(gen_all(3))
z = T * max(gen_all(2))
---
del_me = {"a": T, "b": [T]}
view = del_me.items()
del del_me["a"]
k = len(view)
---
k = sum(n if n > 1 else -n for n in IL)
k = k if (m := len(TL)) > 1 else m
---
z = T
for n, t in reversed(list(enumerate(TL))):
    z = z + t if n else z - t
---
for t in TL:
    if t is T:
        break
else:
    z = T + 1
---
k = len([*map(str, IL), *"ab"]) + len({**D, **{"new": 1}}) + len((*TL, 1))
---
flags = [bool(t.dim()) and not C for t in TL]
k = all(flags) + any(flags) + flags.count(True)
---
import types
ns_ = types.SimpleNamespace(t=T, n=I)
ns_.n += 1
z = ns_.t * ns_.n
---
k = divmod(-I, 3)[1] + pow(2, 3, 5) + round(2.5) + abs(-I) + int("ff", 16) + ord("a") + (I << 2) + (I ^ 3) + ~I
---
k = bytes([1, 2]).hex().count("0") + len("é".encode()) + bytearray(b"ab")[0]
---
nums = [3, 1, 2]
nums.sort(key=lambda n: (-n, n), reverse=True)
k = nums[0] + nums.index(2) + max(nums, key=lambda n: -n)
"""

WILD = """
class Noisy:
    def __eq__(self, other):
        print("eq")
        return True
    __hash__ = None
k = int(Noisy() == I)
---
class Echo:
    def __getattr__(self, name):
        print("get", name)
        return I
k = Echo().thing
---
try:
    print("a")
    raise ValueError("b")
except ValueError as e:
    print("c", e)
    z = T + 1
finally:
    print("d")
---
def talk2():
    try:
        got = yield T
        print("got", got)
        yield T + 1
    finally:
        print("finally")
g = talk2()
z = next(g)
z = g.send("x")
g.close()
---
with Noted(LOG):
    for n in range(2):
        print("turn", n)
        if n:
            break
z = T * 2
---
def three(t):
    return two_(t) + 1
def two_(t):
    return one_(t) * 2
def one_(t):
    print("deep", t.shape)
    return t - 1
z = three(T)
---
z = torch.stack([noisy(t, 1) for t in TL]).sum(0)[:3]
---
k = {n: int(t.sum()) for n, t in enumerate(TL)}.get(0, 0)
---
class Late:
    def __init__(self, t):
        self.t = t
        print("made")
    def __enter__(self):
        return self.t
    def __exit__(self, *a):
        print("exit")
        return True
with Late(T) as t0:
    z = t0 + 1
    raise ValueError("eaten")
---
nz = T.nonzero()
k = nz.shape[0]
---
tot = 0.0
for t in TL:
    tot += float(t.sum())
k = int(tot)
---
lst = T.tolist()
k = len(lst)
z = T + lst[0]
"""

TENSORS = """
z = T.view(-1)
z[1:] += 1
z = T[:2].sum() + T
---
v = T.unsqueeze(0)
v[0, 1] = I
z = v.squeeze(0)
---
v = T[::2]
v *= 2
w = v.clone()
w.fill_(I)
z = T + w.sum()
---
a0, b0, c0 = T.split(1)
a0.add_(b0)
z = torch.cat([a0, b0, c0])
---
z = T.expand(2, 3).clone()
z[1].sub_(1)
z.t()[0].mul_(2)
z = z.sum(0)
---
z = torch.empty(3).copy_(T)
z.index_fill_(0, torch.tensor([1]), I)
z.masked_fill_(z > 1, -1)
---
z = torch.zeros(2, 3)
z[0] = T
z[:, 1] += I
z[z < 0] = 0
z = z.sum(dim=0)
---
z = T.detach().clone()
z.data.add_(1)
k = int(z.requires_grad) + int(T.is_leaf) + z.element_size()
---
with torch.no_grad():
    v = T.view(3)
    v.mul_(2)
z = T + v
---
z = torch.where(T > I, T, -T)
z.clamp_(min=0).add_(T, alpha=2)
---
z = T.to(torch.int64).to(torch.float32) + T.type(torch.float64).float()
---
z = torch.einsum("i,j->ij", T, T).diagonal()
k = z.stride(0) + z.storage_offset()
---
z = T[None, :, None][0, :, 0][[2, 1, 0]]
z[torch.tensor([0, 2])] = 1
---
m, at = T.sort(descending=True)
z = m + T[at]
k = len(torch.topk(T, 2).values)
---
z = T.reshape(3, 1) @ T.reshape(1, 3)
z = z.tril().sum(1)
---
z = torch.nn.functional.linear(T, torch.eye(3), T)
z = torch.nn.functional.layer_norm(z, (3,))
---
torch.manual_seed(I)
z = T + torch.rand(3)
---
g_ = torch.Generator()
g_.manual_seed(3)
z = T + torch.randn(3, generator=g_)
---
z = torch.nn.functional.dropout(T, 0.5, training=True)
---
v = T.view(3, 1)
v.squeeze_()
z = v + 1
---
e = {"t": T}
e["t"] += 1
e["u"] = e["t"]
e["u"].neg_()
z = e["t"]
---
pair = (T, T)
pair[0].add_(1)
z = pair[1] * 2
---
LOG.append(T.view(-1))
LOG[-1].add_(1)
---
O.a = T[1:]
O.a.add_(1)
z = T
---
TL[0] = TL[0].view(-1)
TL[0] *= 2
z = TL[0]
---
z = T.sum(); z += I; z = T + z
---
z = torch.add(T, 1, out=torch.empty(3))
torch.sin(T, out=z)
---
z = T ** 2 // 1 % 3
z = (z > 1) & (z < 3) | ~(T == 0)
z = z.float()
---
q = torch.nn.Linear(3, 3, bias=False)
with torch.no_grad():
    q.weight.fill_(1)
z = q(T).detach()
---
z = torch.tensor([1.0, I, 3]) + torch.full((3,), float(I)) + torch.ones_like(T)
---
z = T.abs().max() * torch.linspace(0, 1, 3) + T.norm()
"""
