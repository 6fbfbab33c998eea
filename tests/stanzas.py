"""Several lines at a time for the writer of programs: constructs with corners, each in the words people use for them.

In capitals, a place for a value of that kind: T a tensor, I an int, TL IL lists of tensors and ints, D a dict, O an
object, C a condition. Lower-case names are assigned here. WILD ones may end a graph, print, or raise.
"""

from __future__ import annotations

import re

CALM = """
z = T
z += T
---
v = T[1:]
v.add_(I)
z = v.sum() + T.sum()
---
v = T.view(-1)
v[0] = 7
z = v * 1
---
a = b = [T, T]
a.append(I)
z = b[0]
k = len(b)
---
fs = [lambda t, n=n: t + n for n in range(3)]
z = sum([g(T) for g in fs])
---
fs = []
for n in range(2):
    fs.append(lambda t: t * n)
z = fs[0](T)
---
def make(n=I):
    def add(t):
        return t + n
    return add
z = make()(T) + make(2)(T)
---
def count():
    total = 0
    def step(by=1):
        nonlocal total
        total += by
        return total
    return step
step = count()
step(); k = step(I)
---
def collect(t, into=[]):
    into.append(t)
    return len(into)
k = collect(T)
---
class Local(Box):
    kind = "local"
    def grow(self, by=2):
        return super().grow(by) + 1
q = Local(T, I)
z = q.grow()
k = q.n
---
try:
    z = T + 1
    raise KeyError("one")
except KeyError as e:
    try:
        raise ValueError("two") from e
    except ValueError as e2:
        k = len(str(e2.__cause__))
---
try:
    try:
        raise ValueError(I)
    finally:
        LOG.append("finally")
except ValueError as e:
    LOG.append(str(e))
---
def early(t):
    for n in range(3):
        try:
            if n == 1:
                return t + n
        finally:
            LOG.append(n)
    return t
z = early(T)
---
def swallow(t):
    with Noted(LOG, True):
        raise ValueError("gone")
    return t * 2
z = swallow(T)
---
for n in range(3):
    with Noted(LOG):
        if n == 1:
            continue
        if n == 2:
            break
        z = T + n
---
while True:
    k = I
    if k >= 0:
        break
    k += 1
    break
---
gen = (t * 2 for t in TL)
z = next(gen, T)
k = len(list(gen))
---
def talk():
    got = yield 1
    while got is not None:
        got = yield got + 1
    return "end"
g = talk()
next(g)
z = g.send(T)
---
def outer(items):
    yield from items
    yield from [T]
z = list(outer(TL))[-1]
---
it = iter(TL)
z = next(it, T)
k = sum(1 for _ in it)
---
z, *tail = [T, *TL]
k = len(tail)
---
(i, j), z = (j, i), T
---
z = {"t": T}["t"]
e = {T: 1, "b": 2}
k = len(e)
---
k = IL.index(IL[0]) if IL else -1
---
k = sorted(IL, key=lambda n: -n)[0] if IL else 0
---
text = f"{I:>4}|{T.shape}|{O.n!r}"
k = len(text)
---
z = getattr(O, "a") + (O.extra if hasattr(O, "extra") else 0)
---
O.b = T
O.b += 1
z = O.b
---
O.items = TL
O.items.append(T)
k = len(TL)
---
p, o.link = o, T
z = p.link
---
D.setdefault("list", []).append(I)
k = len(D["list"])
---
for key, value in list(D.items()):
    if isinstance(value, int):
        D[key] = value + 1
---
D["t"] = T
D["t"].add_(1)
z = D.pop("t")
---
e = {**D, "own": [I]}
e["own"].append(T)
k = len(e)
---
ms = [n for n in IL if n % 2]
ms.sort()
IL[:] = ms
---
k, ms = any(n > 2 for n in IL), [max(IL, default=0), min(I, 3)]
---
ys = [t.clone() for t in TL]
for t in ys:
    t.mul_(2)
z = sum(ys, T)
---
for t in TL:
    t += 1
---
for n, t in enumerate(TL):
    TL[n] = t + n
---
ys = TL
ys += [T]
k = len(TL)
---
ys = TL + [T]
ys[0] = T
k = len(TL)
---
ys = list(reversed(TL))
ys.insert(1, T)
z = torch.cat([t.reshape(-1) for t in ys])[:3]
---
z = torch.stack([T, T]).max(dim=0).values
---
x0, y0 = torch.stack([T, T]).unbind()
x0.add_(1)
z = x0 + y0
---
z = T.clone()
z[z > 0] = 0
---
z = T.detach()
z.add_(1)
---
z = torch.zeros(3)
torch.mul(T, 2, out=z)
---
z = T.expand(2, 3).sum(0).to(torch.float32)
---
with torch.no_grad():
    z = T * 2
    w = z.requires_grad
k = int(w)
---
@torch.no_grad()
def quiet(t):
    return t + 1
z = quiet(T)
---
k = T.numel() + T.stride(0) + T.dim()
---
z = T if T is T else -T
---
k = [T is t for t in TL].count(True)
---
match D:
    case {"a": int() as n, **more}:
        k = n + len(more)
    case _:
        k = 0
---
match TL:
    case [first, *others]:
        z = first + len(others)
    case []:
        z = T
---
from functools import partial, reduce
z = reduce(lambda a, b: a + b, TL, T) * partial(scale, by=2)(T)
---
import itertools
for a, b in itertools.product(TL, IL[:2]):
    z = a * b
---
import copy
p = copy.copy(O)
p.n += 1
q = copy.deepcopy(IL)
q.append(1)
---
from collections import deque, OrderedDict, defaultdict
dq = deque(IL, maxlen=2)
dq.append(I)
dd = defaultdict(list)
dd["x"].append(T)
k = len(dq) + len(dd["x"])
---
from dataclasses import dataclass
@dataclass
class Point:
    t: object
    n: int = 3
pt = Point(T)
pt.n += 1
z = pt.t * pt.n
---
from typing import NamedTuple
pair = (T, I)
z, k = pair
---
k = I if C else I
z = T if C else T
---
z0 = T
del z0
---
assert C or True
---
i, j = divmod(I, 3)
---
k = int(str(I)) + bool(IL) + (I == I) * 2
---
k = (lambda *a, **kw: len(a) + len(kw))(*IL, **{"p": 1})
---
Box.kind = "changed"
k = len(O.kind)
Box.kind = "box"
---
s = {1, 2} | set(IL)
s.discard(I)
k = len(s)
---
t = (T, [I])
t[1].append(2)
k = len(t[1])
---
z = torch.nn.functional.relu(T) + torch.softmax(T, -1)
---
z = T.pow(2).sum().sqrt() + T.mean()
---
z = torch.arange(3) + T
---
z = T.to(torch.float64).to(torch.float32)
---
COUNT += len(LOG)
LOG.clear()
---
LOG.append(TL)
TL.append(T)
---
LOG.append(T)
LOG[-1].add_(1)
---
Box.made = getattr(Box, "made", 0) + 1
k = O.made
---
if Box.kind is None:
    Box.kind = T
Box.kind = None
---
WEIGHT.seen = getattr(WEIGHT, "seen", 0) + I
k = WEIGHT.seen
---
if T.shape[0] > 1 and asked():
    z = T * 2
---
z = T * 2 if T.shape[0] > 1 and counted() else T
---
k = looked_up(T.shape[0]) + looked_up(I)
---
with LOCK:
    Box.held = I
    LOG.append(I)
z = T + Box.held
---
with LOCK:
    OWN = LOG.copy()
k = len(OWN)
"""

WILD = """
print("n", I)
z = T + 1
---
with Noted(LOG):
    print("inside")
    z = T + 1
---
with torch.no_grad():
    print("inside")
    z = T * 2
---
try:
    print("try")
    k = D["missing"]
except KeyError as e:
    print("caught", e)
finally:
    LOG.append("f")
---
try:
    k = int(T.sum().item())
except Exception as e:
    raise
else:
    z = T + k
---
for t in TL:
    print("loop")
    if t.sum() > 3:
        break
    z = t
else:
    print("else")
---
ys = [noisy(t, n) for n, t in enumerate(TL)]
---
z = picky(T) + picky(T)
---
z = noisy(T, I) if C else T
---
if T.sum() > 0 and C:
    z = T
---
k = 1 if (T > 0).all() else 2
---
z = T[T > 0].sum()
---
while T.abs().sum() < 2:
    LOG.append("while")
    break
---
def speaks(t):
    nonlocal i
    i += 1
    print("i", i)
    return t * i
z = speaks(T)
k = i
---
def loud():
    for n in range(2):
        print("yield", n)
        yield n
ms = list(loud())
---
with Noted(LOG, True) as c:
    z = T + 1
    fail(5)
    z = T - 1
---
from torch.utils.checkpoint import checkpoint
z = checkpoint(bumped, T, use_reentrant=False)
---
from torch.utils.checkpoint import checkpoint
ms = []
z = checkpoint(lambda t: (ms.append(1), t.sin())[1], T, use_reentrant=False)
k = len(ms)
---
q = Heard(T, I)
z = q.t + 1
del q
WEIGHT.heard = 5
---
z = Heard(T, I).t * 2
LOG.append("after")
---
k = sum(int(t.sum() > 0) for t in TL)
---
e = {n: print(n) for n in IL[:2]}
---
print(T is T, [t is T for t in TL])
---
class Loud:
    def __enter__(self):
        print("enter")
    def __exit__(self, *a):
        print("exit", a[0])
with Loud():
    z = T * 3
    if C:
        z = T
---
try:
    with Noted(LOG):
        print("deep")
        raise IndexError("deep")
except IndexError:
    z = T + 5
---
q = T.detach().clone().requires_grad_()
(q * 2).sum().backward()
z = q.grad + 1
---
q = T.clone()
print(q.add_(1).tolist())
z = q
---
print(O.grow(1).tolist(), O.n)
---
xs = [T, T]
xs[0].add_(1)
print(len(xs))
---
w = [T]
w.append(w[0])
print("alias", w[0] is w[1])
w[0].add_(1)
z = w[1]
---
a = [1]
b = [a, a]
print(len(b))
b[0].append(2)
k = len(b[1])
---
fn = lambda t: t + j
print("made")
j = j + 1
z = fn(T)
---
g = (t + 1 for t in TL)
z = next(g, T)
print("between")
k = len(list(g))
---
it = iter(TL)
z = next(it, T)
print("between")
k = len(list(it))
---
r = range(3)
print(r)
p = Box(T, 1)
print(p.n)
p.n += 1
z = p.a
---
import random as rnd
rnd.seed(1)
k = rnd.randint(0, 5)
---
exec("k = 1")
---
k = len(locals())
---
z = eval("1") + T
---
LOG.append(sorted(D, key=str))
print(LOG[-1])
"""

PLACES = re.compile(r"\b(TL|IL|T|I|D|O|C)\b")
ASSIGNED = {"T": "z", "I": "k", "TL": "ys", "IL": "ms", "D": "e", "O": "p"}


def split(text: str) -> list[list[str]]:
    """The stanzas, as lines."""
    return [stanza.strip("\n").split("\n") for stanza in text.split("---\n")]


def assigned(lines: list[str]) -> list[str]:
    """The kinds of the names that a stanza surely assigns: on a line of its own, not in a block."""
    return [kind for kind, name in ASSIGNED.items() if any(re.match(rf"{name} = ", line) for line in lines)]
