"""Writes small Python programs over tensors: a function `f` with a bit of everything ordinary code does.

Names stand for types, so that most programs run: x y z are tensors, i j k ints, xs ys lists of tensors, ns a list of
ints, d a dict, o an object. Some programs raise all the same; that has to be alike too.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random
from typing import Any

import stanzas
import stanzas_objects
import torch

PRELUDE = """
import functools
import threading

COUNT = 0
CACHED = []
LOCK = threading.Lock()
LOG = []
WEIGHT = torch.tensor([0.5, -1.0, 2.0])

class Box:
    kind = "box"
    def __init__(self, a, n):
        self.a = a
        self.n = n
    def grow(self, by=1):
        self.n += by
        return self.a * self.n
    @property
    def twice(self):
        return self.a * 2
    def __add__(self, other):
        return Box(self.a + other, self.n)

class Noted:
    def __init__(self, log, eats=False):
        self.log = log
        self.eats = eats
    def __enter__(self):
        self.log.append("enter")
        return self
    def __exit__(self, kind, error, trace):
        self.log.append(("exit", kind and kind.__name__))
        return self.eats

def scale(t, by=2, *rest, off=0, **more):
    return t * by + off + len(rest) + len(more)

def push(items, t):
    items.append(t)
    return len(items)

def bump(t):
    t.add_(1)
    return t

def noisy(t, n):
    print("noisy", n)
    return t + n

def picky(t):
    if t.sum() > 1:
        return t - 1
    return -t

def fail(n):
    global COUNT
    COUNT += 1
    if n > 1:
        raise ValueError(f"too large: {n}")
    return n + 1

def steps(items, by):
    for item in items:
        yield item + by

class Heard:
    def __init__(self, t, n):
        self.t, self.n = t, n
    def __del__(self):
        WEIGHT.heard = self.n

def asked():
    LOG.append("asked")
    return False

def counted():
    Box.asked = getattr(Box, "asked", 0) + 1
    return True

@functools.lru_cache(None)
def looked_up(n):
    CACHED.append(n)
    return n * 2

def bumped(t):
    Box.bumped = getattr(Box, "bumped", 0) + 1
    return t.sin()

def deeper(t, n):
    return t if n <= 0 else deeper(t * 1.5, n - 1) + n
"""


CALM = [
    lines for text in (stanzas.CALM, stanzas_objects.CALM, stanzas_objects.TENSORS) for lines in stanzas.split(text)
]
WILD = [lines for text in (stanzas.WILD, stanzas_objects.WILD) for lines in stanzas.split(text)]


class Writer:
    """One program: every choice is the given random number generator's."""

    def __init__(self, random: Random, size: int = 8) -> None:
        self.random = random
        self.lines: list[str] = []
        self.depth = 1
        self.loops = 0
        self.left = size
        self.fresh = 0
        self.inner = 0  # inside an inner function
        self.calm = self.chance(2)  # nothing that ends a graph on purpose, and few errors
        self.known: dict[str, list[str]] = {
            "T": ["x", "y"],
            "I": ["i", "j"],
            "TL": ["xs"],
            "IL": ["ns"],
            "D": ["d"],
            "O": ["o"],
        }

    # -- choosing -------------------------------------------------------------------------------------------------
    def pick(self, *options: Any) -> Any:
        return options[self.random.randrange(len(options))]

    def fitting(self, options: list[Any], wild: list[Any]) -> list[Any]:
        """The options; the wild ones only if this program may break graphs."""
        return options if self.calm else [*options, *wild]

    def chance(self, of: int) -> bool:
        return self.random.randrange(of) == 0

    def name(self, kind: str) -> str:
        return str(self.pick(*self.known[kind]))

    def new(self, kind: str) -> str:
        """A name to assign to: one in use, or another."""
        if self.chance(2):
            return self.name(kind)
        return {"T": "z", "I": "k", "TL": "ys", "IL": "ms", "D": "e", "O": "p"}[kind]

    def bind(self, kind: str, name: str) -> None:
        if name not in self.known[kind]:
            self.known[kind].append(name)

    def emit(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    # -- expressions ----------------------------------------------------------------------------------------------
    def number(self, depth: int = 2) -> str:
        plain = [
            lambda: str(self.pick(0, 1, 2, 3, -1)),
            lambda: self.name("I"),
        ]
        deep = [
            lambda: f"({self.number(depth - 1)} {self.pick('+', '-', '*', '%', '//')} {self.number(depth - 1)})",
            lambda: f"len({self.pick(self.name('TL'), self.name('IL'), self.name('D'))})",
            lambda: f"{self.name('O')}.n",
            lambda: f"{self.name('D')}.get({self.key()}, {self.number(0)})",
            lambda: f"{self.name('T')}.shape[0]",
            lambda: f"({self.number(0)} if {self.condition(0)} else {self.number(0)})",
            lambda: f"sum({self.name('IL')})",
            lambda: f"{self.name('IL')}[{self.pick(0, -1, 1)}]",
            lambda: f"push({self.name('TL')}, {self.tensor(0)})",
            lambda: "COUNT",
            lambda: f"max({self.number(0)}, {self.number(0)})",
            lambda: f"{self.name('T')}.dim()",
            lambda: f"(k := {self.number(0)})" if self.walrus() else "2",
            lambda: f"({self.number(0)} {self.pick('&', '|', '^')} {self.number(0)})",
            lambda: f"min({self.name('IL')}, default={self.number(0)})",
            lambda: f"next((n for n in {self.name('IL')} if n {self.pick('>', '<')} {self.number(0)}), 0)",
            lambda: f"[*{self.name('IL')}, {self.number(0)}].count({self.number(0)})",
            lambda: f"len(f'{{{self.name('I')}:>3}}{{{self.name('IL')}}}')",
            lambda: f"len({{*{self.name('IL')}, {self.number(0)}}})",
            lambda: f"{self.name('D')}.get({self.key()}, 0) * 1",
            lambda: f"sum(v for v in {self.name('D')}.values() if isinstance(v, int))",
            lambda: f"getattr({self.name('O')}, {self.pick(repr('n'), repr('late'))}, {self.number(0)})",
            lambda: f"int({self.condition(0)})",
        ]
        wild = [
            lambda: f"fail({self.number(0)})",
            lambda: f"int({self.name('T')}.sum() > {self.number(0)})",
        ]
        return str(self.pick(*plain, *(self.fitting(deep, wild) if depth > 0 else []))())

    def walrus(self) -> bool:
        self.bind("I", "k")
        return True

    def key(self) -> str:
        return str(self.pick("'a'", "'b'", "'c'", self.name("I")))

    def tensor(self, depth: int = 2) -> str:
        plain = [lambda: self.name("T"), lambda: self.name("T")]
        t = lambda: self.tensor(depth - 1)  # noqa: E731
        deep = [
            lambda: f"({t()} {self.pick('+', '-', '*', '/')} {self.pick(t, self.number)()})",
            lambda: f"({self.pick(2, 0.5, -1)} {self.pick('+', '-', '*')} {t()})",
            lambda: f"torch.{self.pick('abs', 'relu', 'sin', 'neg', 'clone')}({t()})",
            lambda: f"{t()}.{self.pick('abs()', 'clone()', 'detach()', 'cumsum(0)', 'flip(0)', 'float()')}",
            lambda: f"{self.name('T')}.{self.pick('view(-1)', 't()', 'unsqueeze(0)[0]', 'contiguous()')}",
            lambda: f"-{t()}",
            lambda: f"{self.name('TL')}[{self.pick(0, -1, 1)}]",
            lambda: f"{self.name('O')}.{self.pick('a', 'twice', 'grow()', 'grow(by=2)')}",
            lambda: f"scale({t()}{self.arguments()})",
            lambda: f"bump({self.pick(self.name('T'), t())})",
            lambda: f"deeper({t()}, {self.pick(0, 1, 3)})",
            lambda: f"torch.where({t()} > 0, {t()}, {t()})",
            lambda: f"torch.stack([{t()}, {t()}]).sum(0)",
            lambda: f"sum([{t()} for _ in range({self.pick(0, 1, 2)})], {t()})",
            lambda: f"sum(steps({self.name('TL')}, {self.number(0)}), {t()})",
            lambda: f"({t()} if {self.condition(1)} else {t()})",
            lambda: f"(lambda q, r={self.number(0)}: q * r)({t()})",
            lambda: f"torch.rand(3) * {t()}",
            lambda: "WEIGHT",
            lambda: f"{self.name('T')}.mul_({self.number(0)})",
            lambda: f"({self.name('O')} + {t()}).a",
            lambda: f"{self.name('T')}[{self.pick(':', '[2, 0, 1]', '...')}]",
            lambda: f"torch.{self.pick('max', 'minimum', 'add', 'atan2')}({t()}, {t()})",
            lambda: f"{t()}.clamp(min={self.number(0)})",
            lambda: f"{t()}.masked_fill({t()} > {self.number(0)}, {self.number(0)})",
            lambda: f"{self.name('T')}.{self.pick('view(3)', 'reshape(-1)', 'expand(2, 3)[1]', 'detach()[:]')}",
            lambda: f"{t()}.clone().{self.pick('add_', 'mul_')}({self.number(0)})",
            lambda: f"{t()}.to(torch.{self.pick('float64).float()', 'int32).float()', 'float32)')}",
            lambda: f"torch.{self.pick('zeros_like', 'ones_like')}({t()})",
            lambda: f"max({self.name('TL')}, key=lambda t: t.dim(), default={t()})",
            lambda: f"next(iter({self.name('TL')}), {t()})",
            lambda: f"{{'k': {t()}, **{self.name('D')}}}['k']",
            lambda: f"(lambda *a, **k: a[-1] + len(k))({t()}, {t()}, **{{'q': 1}})",
            lambda: f"dict(enumerate({self.name('TL')})).get({self.number(0)}, {t()})",
        ]
        wild = [lambda: f"picky({t()})", lambda: f"noisy({t()}, {self.number(0)})"]
        return str(self.pick(*plain, *(self.fitting(deep, wild) if depth > 0 else []))())

    def arguments(self) -> str:
        return str(
            self.pick(
                "",
                f", {self.number(0)}",
                f", by={self.number(0)}",
                f", *{self.name('IL')}",
                f", **{{'by': {self.number(0)}, 'more': 1}}",
                ", 1, 2, off=3",
            )
        )

    def condition(self, depth: int = 1) -> str:
        plain = [
            lambda: f"{self.number(0)} {self.pick('<', '>', '==', '!=', '<=')} {self.number(0)}",
            lambda: f"{self.pick(self.name('IL'), self.name('TL'))}",
            lambda: "flag",
            lambda: f"{self.name('T')} is {self.pick('', 'not ')}{self.name('T')}",
            lambda: f"{self.key()} in {self.name('D')}",
            lambda: f"isinstance({self.name('T')}, torch.Tensor)",
            lambda: f"{self.name('O')} is {self.pick('o', 'None')}",
        ]
        deep = [
            lambda: f"({self.condition(0)} {self.pick('and', 'or')} {self.condition(0)})",
            lambda: f"not {self.condition(0)}",
            lambda: f"0 <= {self.number(0)} < 3",
            lambda: f"{self.name('T')}.requires_grad",
        ]
        wild = [
            lambda: f"{self.name('T')}.sum() > {self.number(0)}",
            lambda: f"torch.equal({self.name('T')}, {self.name('T')})",
        ]
        return str(self.pick(*plain, *(self.fitting(deep, wild) if depth > 0 else []))())

    # -- statements -----------------------------------------------------------------------------------------------
    def block(self, most: int = 3) -> None:
        """Some statements, one deeper."""
        self.depth += 1
        before = {kind: list(names) for kind, names in self.known.items()}
        for _ in range(1 + self.random.randrange(most)):
            self.statement()
        if not self.chance(6):  # now and then a name is used that may not be bound
            self.known = before
        self.depth -= 1

    def statement(self) -> None:
        self.left -= 1
        simple: list[Callable[[], None]] = [
            self.assign_tensor,
            self.assign_tensor,
            self.assign_number,
            self.write_tensor,
            self.write_list,
            self.write_dict,
            self.write_object,
            self.write_global,
            self.make_container,
            self.unpack,
            self.alias,
            self.stanza,
            self.stanza,
        ]
        deep: list[Callable[[], None]] = [
            self.branch,
            self.for_loop,
            self.while_loop,
            self.try_block,
            self.with_block,
            self.inner_function,
            self.own_scope,
            self.generator,
            self.leave,
        ]
        simple = self.fitting(simple, [self.speak])
        deep = self.fitting(deep, [self.raise_])
        self.pick(*simple, *(deep if self.left > 0 and self.depth < 4 else []))()

    def stanza(self) -> None:
        """Some lines that belong together."""
        lines = self.pick(*self.fitting(CALM, WILD))
        kinds = {"T": "T", "TL": "TL", "IL": "IL", "D": "D", "O": "O"}

        def fill(place: re.Match[str]) -> str:
            kind = place[1]
            return self.number(0) if kind == "I" else self.condition(0) if kind == "C" else self.name(kinds[kind])

        for line in lines:
            self.emit(stanzas.PLACES.sub(fill, line))
        for kind in stanzas.assigned(lines):
            self.bind(kind, stanzas.ASSIGNED[kind])

    def assign_tensor(self) -> None:
        value, name = self.tensor(3), self.new("T")
        self.emit(f"{name} = {value}")
        self.bind("T", name)

    def assign_number(self) -> None:
        value, name = self.number(), self.new("I")
        self.emit(f"{name} = {value}")
        self.bind("I", name)

    def write_tensor(self) -> None:
        t = self.name("T")
        self.emit(
            self.pick(
                f"{t} += {self.tensor(1)}",
                f"{t} *= {self.number(0)}",
                f"{t}[{self.pick(0, '1:', -1)}] = {self.number(0)}",
                f"{t}.{self.pick('add_', 'mul_', 'copy_', 'sub_')}({self.tensor(1)})",
                f"{t}.zero_()",
                f"{t}.view(-1).add_({self.number(0)})",
                f"torch.add({t}, 1, out={t})",
            )
        )

    def write_list(self) -> None:
        ts, ns = self.name("TL"), self.name("IL")
        self.emit(
            self.pick(
                f"{ts}.append({self.tensor(1)})",
                f"{ns}.append({self.number(1)})",
                f"{ts}[{self.pick(0, -1)}] = {self.tensor(1)}",
                f"{ts}[{self.pick(0, -1)}] += {self.tensor(0)}",
                f"{ns}[{self.pick(0, -1)}] += {self.number(0)}",
                f"{ts}.{self.pick('pop()', 'pop(0)', 'reverse()', 'clear()')}",
                f"{ns}.{self.pick('sort()', 'pop()', 'reverse()', 'insert(0, 5)', 'remove(1)')}",
                f"{ts}.extend({self.pick(self.name('TL'), f'[{self.tensor(1)}]')})",
                f"{ts} += [{self.tensor(0)}]",
                f"{ns}[:] = [n * 2 for n in {self.name('IL')}]",
                f"del {self.pick(ts, ns)}[{self.pick(0, -1, '1:')}]",
            )
        )

    def write_dict(self) -> None:
        d = self.name("D")
        self.emit(
            self.pick(
                f"{d}[{self.key()}] = {self.number(1)}",
                f"{d}[{self.key()}] += {self.number(0)}",
                f"{d}.pop({self.key()}{self.pick('', ', None')})",
                f"{d}.update(a={self.number(0)}, c={self.number(0)})",
                f"{d}.setdefault({self.key()}, {self.number(0)})",
                f"del {d}[{self.key()}]",
                f"{d} |= {{'z': {self.number(0)}}}",
            )
        )

    def write_object(self) -> None:
        o = self.name("O")
        self.emit(
            self.pick(
                f"{o}.a = {self.tensor(1)}",
                f"{o}.n = {self.number(1)}",
                f"{o}.n += {self.number(0)}",
                f"{o}.a += {self.tensor(0)}",
                f"{o}.grow({self.number(0)})",
                f"{o}.extra = {self.tensor(0)}",
                f"del {o}.{self.pick('extra', 'n')}",
                f"setattr({o}, 'late', {self.number(0)})",
            )
        )

    def write_global(self) -> None:
        if self.inner:
            return self.assign_number()
        return self.emit(
            self.pick(
                f"COUNT = COUNT + {self.number(0)}",
                f"LOG.append({self.pick(self.number(1), self.tensor(0))})",
                "COUNT += 1",
                f"LOG[:] = [{self.number(0)}]",
                "WEIGHT.add_(1)",
            )
        )

    def make_container(self) -> None:
        kind = self.pick("TL", "IL", "D", "O")
        text = {
            "TL": lambda: self.pick(
                f"[{self.tensor(1)}, {self.tensor(1)}]",
                f"[t {self.pick('+', '*')} {self.number(0)} for t in {self.name('TL')}]",
                f"list({self.name('TL')})",
                f"{self.name('TL')}[{self.pick('1:', '::-1', ':1')}]",
                f"[t for n, t in zip({self.name('IL')}, {self.name('TL')}) if n {self.pick('>', '<')} 1]",
                f"list(map(lambda t: t + {self.number(0)}, {self.name('TL')}))",
                f"sorted({self.name('TL')}, key=len)",
            ),
            "IL": lambda: self.pick(
                f"[{self.number(1)}, {self.number(1)}]",
                f"list(range({self.number(0)}))",
                f"[n + {self.number(0)} for n in {self.name('IL')}]",
                f"sorted({self.name('IL')}, reverse=True)",
                f"[*{self.name('IL')}, {self.number(0)}]",
                f"[n for n, t in enumerate({self.name('TL')})]",
            ),
            "D": lambda: self.pick(
                f"{{'a': {self.number(1)}, {self.key()}: {self.number(0)}}}",
                f"dict({self.name('D')}, b={self.number(0)})",
                f"{{key: value for key, value in {self.name('D')}.items()}}",
                f"{{**{self.name('D')}, 'q': {self.number(0)}}}",
                f"{self.name('D')}.copy()",
            ),
            "O": lambda: self.pick(f"Box({self.tensor(1)}, {self.number(1)})", f"{self.name('O')} + {self.tensor(0)}"),
        }[kind]()
        name = self.new(kind)
        self.emit(f"{name} = {text}")
        self.bind(kind, name)

    def unpack(self) -> None:
        self.emit(
            self.pick(
                f"x, y = {self.tensor(1)}, {self.tensor(1)}",
                f"i, j = {self.number(1)}, {self.number(1)}",
                f"x, *xs = [{self.tensor(0)}, *{self.name('TL')}]",
                f"i, j, *ns = {self.name('IL')}",
                "x, y = y, x",
                f"x, y = {self.name('TL')}",
            )
        )

    def speak(self) -> None:
        self.emit(
            self.pick(
                f"print('number', {self.number(1)})",
                f"print(f'{{{self.name('I')}!r}} {{len({self.name('TL')}):>3}}')",
                f"print({self.name('D')}, {self.name('IL')})",
                f"print({self.tensor(1)}.tolist())",
                f"print({self.name('T')}.sum().item())",
            )
        )

    def alias(self) -> None:
        kind = self.pick("T", "TL", "IL", "D", "O")
        value, name = self.name(kind), self.new(kind)
        self.emit(f"{name} = {value}")
        self.bind(kind, name)

    def branch(self) -> None:
        self.emit(f"if {self.condition()}:")
        self.block()
        if self.chance(2):
            self.emit("else:")
            self.block()

    def for_loop(self) -> None:
        kind, over = self.pick(
            ("k", f"range({self.pick(0, 1, 2, 3, self.name('I'))})"),
            ("z", self.name("TL")),
            ("k", self.name("IL")),
            ("k, z", f"enumerate({self.name('TL')})"),
            ("z", f"steps({self.name('TL')}, {self.number(0)})"),
            ("k, z", f"zip({self.name('IL')}, {self.name('TL')})"),
            ("k", f"list({self.name('D')}.values())"),
        )
        if over.isidentifier():
            over = f"list({over})"  # the body may let it grow
        elif "enumerate" in over or "zip" in over or "steps" in over:
            over = f"list({over})"
        self.emit(f"for {kind} in {over}:")
        for name in kind.split(", "):
            self.bind("T" if name == "z" else "I", name)
        self.loop_body()

    def loop_body(self) -> None:
        self.loops += 1
        self.block(3)
        self.loops -= 1
        if self.chance(6):
            self.emit("else:")
            self.block(1)

    def while_loop(self) -> None:
        self.fresh += 1
        count = f"w{self.fresh}"
        self.emit(f"{count} = 0")
        self.emit(f"while {count} < {self.pick(1, 2, 3)}{self.pick('', f' and {self.condition(1)}')}:")
        self.depth += 1
        self.emit(f"{count} += 1")
        self.depth -= 1
        self.loop_body()

    def try_block(self) -> None:
        self.emit("try:")
        self.block()
        if self.chance(4):
            self.emit("finally:")
            self.block(1)
            return
        caught = self.pick("ValueError", "(KeyError, IndexError)", "Exception", "ZeroDivisionError")
        self.emit(f"except {caught} as err:")
        self.depth += 1
        self.emit(self.pick("print(type(err).__name__, err)", "LOG.append(str(err))", "j = len(err.args)"))
        self.depth -= 1
        self.block(1)
        if self.chance(3):
            self.emit("finally:")
            self.block(1)

    def with_block(self) -> None:
        self.emit(
            self.pick(
                "with torch.no_grad():",
                "with torch.enable_grad():",
                "with Noted(LOG):",
                "with Noted(LOG, True) as n:",
                "with torch.no_grad(), Noted(LOG):",
            )
        )
        self.block()

    def inner_function(self) -> None:
        self.fresh += 1
        name = f"g{self.fresh}"
        nonlocal_ = self.pick("", "", "i", "x") if not self.inner else ""
        self.emit(f"def {name}(x0, k={self.number(0)}):")
        self.depth += 1
        if nonlocal_:
            self.emit(f"nonlocal {nonlocal_}")
        saved, self.known = self.known, {**{k: list(v) for k, v in self.known.items()}}
        if not nonlocal_:
            # a name that is assigned is the function's own: read only what is never assigned in here
            self.known = {**self.known, "T": ["x0"], "I": ["k"]}
            self.emit("return " + self.pick(f"{self.tensor(1)} + {self.pick('x', 'i', 'len(xs)')}", self.tensor(1)))
        else:
            self.emit("i = i + k" if nonlocal_ == "i" else "x = x + x0")
            self.emit("return x0 * k")
        self.depth -= 1
        self.known = saved
        self.emit(f"z = {name}({self.tensor(1)}{self.pick('', ', 2', ', k=3')})")
        self.bind("T", "z")

    def scope(self, head: str) -> None:
        """The head of an inner function that shares all names."""
        self.emit(head)
        self.depth += 1
        names = sorted({name for kind in self.known.values() for name in kind})
        self.emit(f"nonlocal {', '.join(names)}")
        if not self.inner:
            self.emit("global COUNT")
        self.inner += 1

    def own_scope(self) -> None:
        """Statements in a function of their own that writes to the names around it."""
        self.fresh += 1
        name, loops, self.loops = f"h{self.fresh}", self.loops, 0
        self.scope(f"def {name}():")
        self.depth -= 1
        before = {kind: list(names) for kind, names in self.known.items()}
        self.block(4)
        self.known = before
        self.depth += 1
        self.emit(f"return {self.tensor(1)}")
        self.depth -= 1
        self.inner -= 1
        self.loops = loops
        self.emit(self.pick(f"z = {name}()", f"z = torch.as_tensor({name}())", f"{name}(); z = {self.name('T')}"))
        self.bind("T", "z")

    def generator(self) -> None:
        """The same, of a generator that something runs."""
        self.fresh += 1
        name, loops, self.loops = f"h{self.fresh}", self.loops, 0
        self.scope(f"def {name}():")
        self.depth -= 1
        before = {kind: list(names) for kind, names in self.known.items()}
        self.block(2)
        self.depth += 1
        self.emit(f"yield {self.tensor(1)}")
        self.depth -= 1
        self.block(2)
        self.known = before
        self.depth += 1
        self.emit(self.pick(f"yield {self.tensor(1)}", "return 5", f"yield from {self.name('TL')}[:2]"))
        self.depth -= 1
        self.inner -= 1
        self.loops = loops
        used = self.pick("z = next({}())", "ys = list({}())", "z, *ys = {}()", "z = sum({}(), x)", "z = next({}(), x)")
        self.emit(used.format(name))
        for kind, target in (("T", "z"), ("TL", "ys")):
            if f"{target} " in used or f"*{target} " in used:
                self.bind(kind, target)

    def leave(self) -> None:
        if self.loops and self.chance(2):
            self.emit(f"if {self.condition()}: {self.pick('break', 'continue')}")
        elif self.chance(3):
            self.emit(f"if {self.condition()}: return {self.result()}")
        else:
            self.assign_tensor()

    def raise_(self) -> None:
        thrown = f"{self.pick('ValueError', 'KeyError')}({self.pick('1', repr('why'), 'i')})"
        self.emit(
            self.pick(
                f"if {self.condition()}: raise {thrown}",
                f"assert {self.condition()}, {self.pick('i', repr('claim'))}",
                f"fail({self.number(0)})",
            )
        )

    def result(self) -> str:
        return str(
            self.pick(
                self.tensor(1),
                self.number(1),
                f"({self.tensor(1)}, {self.number(0)})",
                f"[{self.name('TL')}, {self.name('D')}]",
                f"{{'x': {self.tensor(0)}, 'o': {self.name('O')}}}",
                f"({self.name('T')}, {self.name('T')}, {self.name('IL')})",
            )
        )

    def write(self) -> str:
        while self.left > 0:
            self.statement()
        self.emit(f"return {self.result()}")
        head = "def f(x, y, i, j, xs, ns, d, o, flag=False):\n    global COUNT"
        if any("nonlocal" in line for line in self.lines):
            head += "\n    z, k, ys, ms, e, p = y, j, [x], [i], {}, o"  # what inner functions may name has to be there
        return "\n".join([PRELUDE, head, *self.lines, ""])


def inputs(variant: int, space: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a call: 0 is the usual case; the others differ in values, sharing, shapes or gradients."""
    x = torch.tensor([1.0, -2.0, 3.0])
    y = torch.tensor([0.5, 0.25, -4.0])
    i, j, flag = 1, 2, False
    ns = [3, 1, 2]
    if variant == 1:
        x, i, flag = -x, 0, True
    elif variant == 2:
        y = x
    elif variant == 3:
        x, y = torch.arange(6.0).view(3, 2).t()[0], torch.ones(3)
        ns = [1]
    elif variant == 4:
        x = torch.ones(3, requires_grad=True) * 2
    xs = [x, torch.full((3,), 2.0)] if variant != 3 else [y.clone(), y]
    d: dict[Any, Any] = {"a": i, "b": 2}
    o = space["Box"](x if variant == 2 else torch.tensor([1.0, 1.0, 1.0]), 2)
    return [x, y, i, j, xs, ns, d, o], {"flag": flag} if flag else {}
