"""Name what belongs to an entry among the constants of its code, and make it where the entry is read."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import CodeType, MethodType
from typing import Any
from weakref import ref

from torchdynamo import _native
from torchdynamo.cache.store.instructions import items_of, plain_items
from torchdynamo.cache.store.sites import SiteWriter, read_sites, within
from torchdynamo.cache.store.values import Malformed
from torchdynamo.codegen import outline, resume
from torchdynamo.codegen.deopt import Bailout
from torchdynamo.graph.tracebacks import Above


class EntryWriter:
    """Names what belongs to an entry among the constants of its code."""

    def __init__(self, code: CodeType, named: Sequence[CodeType], left: str, first_run: Any) -> None:
        """Make the writer. code: of the frame. named: that which the user wrote, first, and code that guards name.
        left: why continuations are not captured that go on in a loop. first_run: what the code calls at its end, if it
        sets something up.
        """
        self.code, self.named, self.left, self.first_run = code, named, left, first_run
        users = named[0]
        self.own = {id(const): at for at, const in enumerate(users.co_consts) if type(const) in (str, bytes, tuple)}

    def __call__(self, obj: Any) -> tuple[str, Any] | None:
        if id(obj) in self.own:
            return "own", self.own[id(obj)]
        if self.first_run is not None and obj is self.first_run:
            return "first run", ()
        if type(obj) is _native.AsWritten:
            return "as written", ()
        if type(obj) is MethodType and isinstance(obj.__self__, Bailout):
            return "after rerun", ()
        shape = resume.shape_of(obj) if type(obj) is CodeType else None
        if shape is not None:
            left = self.left if _native.skip_reason(obj) == self.left else None
            return "continuation", (self.placed(resume.origin(obj).code), tuple(shape), left)
        part = outline.place_of(obj) if type(obj) is CodeType else None
        if part is not None:
            return "part", (self.placed(part[0]), tuple(part[1]))
        rest = resume.rest_of(obj) if type(obj) is CodeType else None
        if rest is not None:
            return "rest", (
                *(self.placed(rest.code()), rest.names, plain_items(rest.items, self)),
                self.above(rest.way),
            )
        return ("inner", self.inner[id(obj)]) if id(obj) in self.inner else None

    def placed(self, code: CodeType | None) -> Any:
        """Return how code is written that something is made of: by its place in other code, if it has no other."""
        return self.inner.get(id(code), code)

    def above(self, way: Above | None) -> tuple[Any, ...]:
        """Return the rows of the functions that the traceback of an error gets, outermost first. Raises NotStorable."""
        writer = SiteWriter([self.code, *self.named])
        writer.row(None if way is None else way.site)
        return tuple((tuple(where), *rest) for where, *rest in writer.rows)

    @functools.cached_property
    def inner(self) -> dict[int, tuple[CodeType, tuple[int, ...]]]:
        """Where code lies that no guard names and another has among its constants, such as a comprehension's."""
        named = set(map(id, self.named))
        found = ((code, path, each) for code in self.named for path, each in within(code, []))
        return {id(each): (code, tuple(path)) for code, path, each in found if id(each) not in named}


class EntryReader:
    """Makes what belongs to an entry."""

    def __init__(self, code: CodeType, known: Sequence[ref[CodeType]], rerun: Bailout | None, first_run: Any) -> None:
        """Make the reader. known: the frame's code, and what the entry names. rerun: what runs the frame as written.
        first_run: what it calls once it is set up.
        """
        self.code, self.known = code, known
        self.users = resume.origin(code).code
        self.rerun = rerun
        self.first_run = first_run

    def __call__(self, name: str, content: Any) -> Any:
        return _MADE[name](self, content)

    def own(self, index: int) -> Any:
        return self.users.co_consts[index]

    def continuation(self, content: Any) -> CodeType:
        place, shape, left = content
        made = resume.continuation(self.inner(place), *shape)[0]
        if left is not None:
            _native.skip_code(made, left)
        return made

    def part(self, content: Any) -> CodeType:
        whole, place = content
        return outline.part(self.inner(whole), outline.PartPlace(*place)).code

    def inner(self, content: Any) -> CodeType:
        """Return code from itself, or from where it lies in other code."""
        code, path = (content, ()) if type(content) is CodeType else content
        for index in path:
            code = code.co_consts[index]
        if type(code) is not CodeType:
            raise Malformed("a constant is no code")
        return code

    def after_setup(self) -> Callable[..., None]:
        if self.first_run is None:
            raise Malformed("the frame sets nothing up")
        made: Callable[..., None] = self.first_run
        return made

    def after_rerun(self) -> Callable[[], None]:
        if self.rerun is None:
            raise Malformed("the frame does not run as written")
        return self.rerun.after_rerun

    def rest(self, content: Any) -> CodeType:
        place, names, rows, above = content
        way = Above(read_sites(above, self.known)[-1]) if above else None
        return resume.rest_of_frame(self.inner(place), items_of(rows, self), names, way)


_MADE: dict[str, Callable[[EntryReader, Any], Any]] = {
    "as written": lambda reader, content: _native.AsWritten(reader.code),
    "after rerun": lambda reader, content: reader.after_rerun(),
    "first run": lambda reader, content: reader.after_setup(),
    "own": EntryReader.own,
    "inner": EntryReader.inner,
    "continuation": EntryReader.continuation,
    "part": EntryReader.part,
    "rest": EntryReader.rest,
}
