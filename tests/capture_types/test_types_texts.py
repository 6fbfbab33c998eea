"""Texts and bytes taken apart and put together in captured frames."""

from __future__ import annotations

import copy
import json
import re
from collections import OrderedDict, defaultdict, namedtuple
from enum import Enum
from typing import Any

import pytest
import torch
from following import check

import torchdynamo

X = torch.arange(4.0)


def substitutes(x):
    seen = []

    def following(match):
        seen.append(match.group())
        return str(int(match.group()) + 1)

    text = re.sub(r"\d+", following, "a1b22c", count=1)
    kept = re.compile("b").sub(lambda match: None, "abab"), re.subn("x*", lambda match: "-", "axb")
    return x + len(seen), text, seen, kept, re.sub("a", r"<\g<0>>", "banana"), re.compile("a").subn("b", "aa")


def finds(x):
    spans = [match.span() for match in re.finditer("a.", "abacad")]
    steps = re.compile(b"\\d").finditer(b"1a2")
    return x + len(spans), spans, next(steps).group(), [match.group() for match in steps], re.split("(,)", "a,b")


def fails(x):
    try:
        re.sub("a", lambda match: 1 / 0, "banana")
    except ZeroDivisionError as error:
        return x + 1, str(error), re.sub("z", lambda match: 1 / 0, "banana")


def iterated(x):
    return x + 1, type(iter("abc")), type(iter("äbc")), list(iter("äb"))


def made_of_bytes(x):
    made = bytearray(b"abc"), bytearray(3), bytearray("ä", "utf8"), bytearray([1, 2]), bytearray(at for at in range(3))
    return x + len(made), made, bytearray.fromhex("0aff"), bytes(made[0]), made[0].hex(), made[0].decode(), repr(made)


def bytes_changed(x):
    box = bytearray(b"hello world")
    same = box
    box.append(33)
    box[0] = 72
    box += b"zz"
    box.extend(at for at in (1, 2))
    del box[1]
    box[1:3] = b"__"
    box.reverse()
    box *= 2
    found = box.find(b"w"), b"l" in box, 33 in box, box == bytes(box), box != b"", box < b"z", len(box), list(box)[:3]
    parts = box.split(b"o"), box[2:5], box + b"1", b"1" + box, box.upper(), box.pop(), box.replace(b"o", b"0")
    for item in box[:2]:
        x = x + item
    return (
        x,
        box,
        same is box,
        found,
        parts,
        copy.deepcopy(box) is box,
        b"".join([box, b"q"]),
        int.from_bytes(box[:2], "big"),
    )


def bytes_fail(x):
    said = []
    for change in (lambda box: box.append(300), lambda box: box[9], lambda box: box.remove(9), hash):
        try:
            change(bytearray(b"ab"))
        except (ValueError, IndexError, TypeError) as error:
            said.append((type(error), str(error)))
    return x + 1, said


def views_of_bytes(x):
    view, box = memoryview(b"abcdef"), bytearray(b"abcdef")
    over = memoryview(box)
    over[1:3] = b"XY"
    over[0] = 65
    with over[2:] as part:
        parts = part.tolist(), bytes(part), part[0], len(part), part.nbytes
    facts = view.format, view.itemsize, view.shape, view.readonly, over.readonly, view.obj, view.ndim
    return (
        x + view[0],
        box,
        parts,
        facts,
        bytes(view[::2]),
        view == b"abcdef",
        next(iter(view[:2])),
        over.obj is box,
    )


def not_read_as_json(x):
    try:
        return json.loads("[1,")
    except json.JSONDecodeError as error:
        return x + error.pos, error.msg, error.doc, str(error)


def test_what_is_no_json() -> None:
    assert str(torchdynamo.compile(not_read_as_json, backend="eager")(X)) == str(not_read_as_json(X))


def bytes_given(x, box, keep):
    box.append(7)
    memoryview(box)[0] = 1
    keep["box"] = box
    return x + len(box), keep["box"][0]


class Encoder(json.JSONEncoder):
    def default(self, thing):
        return {"kind": type(thing).__name__} if isinstance(thing, set) else super().default(thing)


def written_as_json(x):
    data = {"a": [1, 2.5, None, True, -1e300], "b": {"ä": 'q"\n', 1: 2, None: 3, 1.5: (4,)}, "shape": x.shape, "": {}}
    plain = json.dumps(data), json.dumps(data, ensure_ascii=False, separators=(",", ":")), json.dumps("text")
    spread = json.dumps(data["b"], indent=2, skipkeys=True), json.dumps({"b": 1, "a": [{}]}, indent=1, sort_keys=True)
    own = json.dumps([{1}], cls=Encoder), json.dumps({2}, default=lambda each: sorted(each)), json.dumps(float("inf"))
    return x + len(plain[0]), plain, spread, own


def not_json(x):
    said, circle = [], []
    circle.append(circle)
    for made in (
        lambda: json.dumps({1}),
        lambda: json.dumps(float("nan"), allow_nan=False),
        lambda: json.dumps(circle),
    ):
        try:
            made()
        except (TypeError, ValueError) as error:
            said.append(str(error))
    return x + 1, said


def read_as_json(x):
    data = json.loads('{"a": [1, 2.5, {"b": null}], "c": "\\u00e4", "d": true}')
    data["a"].append(3)
    again = json.loads(json.dumps(data)), json.loads("[]"), json.loads(b"[1]"), json.loads(" 1 ")
    hooked = json.loads('{"a": 1, "b": {"c": 2}}', object_hook=lambda each: sorted(each))
    return x * data["a"][0], data, again, hooked, json.loads('{"a": 1.5}', parse_float=str)


PROGRAMS = [
    written_as_json,
    not_json,
    read_as_json,
    substitutes,
    finds,
    fails,
    iterated,
    made_of_bytes,
    bytes_changed,
    bytes_fail,
    views_of_bytes,
]


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_as_eager(fn: Any) -> None:
    check(fn, (X,))


def test_bytes_that_were_there() -> None:
    compiled = torchdynamo.compile(bytes_given, backend="eager")
    for text in (b"abc", b"abd", b"a"):
        box, other = bytearray(text), bytearray(text)
        (got, *rest), (wanted, *others) = compiled(X, box, {}), bytes_given(X, other, {})
        assert torch.equal(got, wanted) and rest == others and box == other


def test_bytes_that_are_shown_keep_their_size() -> None:
    def fn(x: torch.Tensor, box: bytearray) -> Any:
        y = x + 1
        box[0] = 7
        try:
            box.append(1)
        except BufferError as error:
            return y * 2, str(error)
        return y * 3, ""

    def shows(x: torch.Tensor) -> Any:
        box = bytearray(b"abc")
        _shows = memoryview(box)
        print(end="")
        return fn(x, box)

    torchdynamo.reset()
    for each in (fn, shows):
        compiled = torchdynamo.compile(each, backend="eager")
        for shown in (True, False):
            boxes = [bytearray(b"abc"), bytearray(b"abc")]
            views = [memoryview(box) for box in boxes if shown]
            args = [[X, box] if each is fn else [X] for box in boxes]
            wanted, got = each(*args[0]), compiled(*args[1])
            assert torch.equal(got[0], wanted[0]) and got[1] == wanted[1] and boxes[0] == boxes[1]
            del views


@pytest.mark.parametrize("text", ["abc", "äbc"])
def test_iterators_over_texts_that_are_returned(text: str) -> None:
    def fn(x: torch.Tensor) -> tuple[torch.Tensor, object, object]:
        return x + 1, reversed(text), iter(text)

    wanted, got = fn(X), torchdynamo.compile(fn, backend="eager", fullgraph=True)(X)
    assert [type(each) for each in got] == [type(each) for each in wanted]
    assert [[*each] for each in got[1:]] == [[*text[::-1]], [*text]]


# -- texts of objects --------------------------------------------------------------------------------------------------
class Named:
    def __init__(self, name: Any) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def __format__(self, spec: str) -> str:
        return f"{self.name}:{spec}"


class Listed(list[Any]):
    def __repr__(self) -> str:
        return "of " + super().__repr__()


def in_containers(x):
    one, kept = Named(1), {"a": Named(2), Named(3): []}
    return (
        x,
        repr([one, "b"]),
        str((one,)),
        f"{kept} {kept.keys()}",
        repr(kept.items()),
        str(Listed([one])),
        str([{}, ()]),
    )


def in_itself(x):
    items = [Named(1)]
    items.append(items)
    table = {"items": items}
    table["table"] = table
    return x, repr(items), str(table), str(({1: items}.values(), table))


def in_an_argument(x, held):
    return x, repr(held), f"{held['a']}, {held}"


def filled_in(x):
    one, two = Named("é"), [Named(2)]
    texts = []
    for template in ("%s and %r, 100%%", "%-9s|%.2r", "%a%s"):
        texts.append(template % (one, two))
    for template in ("{} {!r} {{}}", "{1} {0!s:>9}", "{0:>3}{1!a}", "{0:<4}{k}{1}"):
        texts.append(template.format(one, two, k=one))
    for each in (one, two, (two,)):
        template = "%s"
        texts.append(template % each)
    return x, texts, ascii([one])


def raising(x):
    class Silent:
        def __repr__(self):
            raise ValueError("silent")

    seen = []
    for make in (repr, "{!r}".format, "%s".__mod__):
        try:
            make([1, Silent()])
        except ValueError as error:
            seen.append(str(error))
    return x, seen, repr([Named(1)])


@pytest.mark.parametrize("fn", [in_containers, in_itself, filled_in, raising])
def test_objects_are_asked_for_their_texts(fn: Any) -> None:
    check(fn, (X,))


def test_objects_of_an_argument_are_asked_for_their_texts() -> None:
    check(in_an_argument, (X, {"a": [Named(1), 2], "b": (Named(3),)}))


@pytest.mark.parametrize("template", ["{} {0}", "{} {} {}", "{a.name}", "{:>{w}}", "{!x}", "{c}", "{", "{1:>9}"])
def test_templates_that_python_fills_in(template: str) -> None:
    """Where a template may raise, nobody is asked for a text before Python has looked at it."""
    attempt(lambda one: template.format(one, [one], a=one, w=9))


@pytest.mark.parametrize("template", ["%s", "%s %s %s", "%s %d", "%(a)s", "%*s", "", "%s %q", "%"])
def test_old_templates_that_python_fills_in(template: str) -> None:
    attempt(lambda one: template % (one, [one]))
    attempt(lambda one: template % {"a": one})


class Tone(Enum):
    """A member whose texts the program writes."""

    LOW = 1

    def __str__(self) -> str:
        return SAID[0]

    def __repr__(self) -> str:
        return f"<{SAID[0]}>"


class Telling(type):
    """A class of classes that say how they are written."""

    def __repr__(cls) -> str:
        return SAID[0]


SAID = ["first"]
Told = Telling("Told", (), {})
Pair = namedtuple("Pair", "first second")


@pytest.mark.parametrize("known", [Tone.LOW, Told])
@pytest.mark.parametrize(
    "text",
    [
        lambda known: f"{known} {known!r} {(known, 1)} {frozenset([known])}",
        lambda known: "{} {!r} {!s:>9} {k}".format(known, known, known, k=known),  # noqa: UP032
        lambda known: "%s %r" % (known, (known,)),  # noqa: UP031
        lambda known: (str((known,)), repr({known}), repr(Pair(known, 2)), repr([known]), str({known: known})),
    ],
)
def test_texts_of_members_and_classes_are_asked_for_in_each_call(text: Any, known: Any) -> None:
    compiled = torchdynamo.compile(lambda x: (x + 1, text(known)), backend="eager")
    for said in ("first", "second", "first"):
        SAID[0] = said
        assert compiled(X)[1] == text(known)


def test_dicts_that_write_themselves_otherwise() -> None:
    attempt(lambda one: repr(OrderedDict(a=one)) + repr(defaultdict(list, a=one)))


def attempt(fn: Any) -> None:
    """What a function makes of an object, or raises, is as in eager."""

    def attempted(x):
        try:
            return x + 1, fn(Named(1))
        except (TypeError, ValueError, LookupError) as error:
            return x, repr(error)

    assert repr(torchdynamo.compile(attempted, backend="eager")(X)) == repr(attempted(X))
