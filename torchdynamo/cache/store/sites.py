"""Write the program's calls at the nodes of a graph, for the tracebacks of its errors, and find their code again.

Code is known by its number among what the entry names, together with its path through the constants of that; code that
no guard names is torch's or Python's, and known by its hash among the functions of its module.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Sequence
from types import CellType, CodeType, FunctionType
from typing import Any
from weakref import ref

from torchdynamo.cache.store.hashes import hash_of
from torchdynamo.cache.store.values import NotStorable
from torchdynamo.core.call_sites import CallSite
from torchdynamo.core.naming import OWN

Row = tuple[Any, int, str, int]
"""Where the code is, offset of the instruction, name of the module, and the row of the caller or -1."""


class SiteWriter:
    """Writes call sites, each once."""

    def __init__(self, known: Sequence[CodeType]) -> None:
        """Make the writer. known: code by whose number the calls are written."""
        self.code: dict[int, list[int]] = {}
        for number, code in enumerate(known):
            for path, each in within(code, [number]):
                self.code.setdefault(id(each), path)
        self.rows: list[Row] = []
        self.known: dict[int, int] = {}

    def row(self, site: CallSite | None) -> int:
        """Return the number of a site's row, -1 for none. Raises NotStorable for code that has no name elsewhere."""
        if site is None:
            return -1
        number = self.known.get(id(site))
        if number is None:
            caller, where = self.row(site.caller), self.place(site)
            number = self.known[id(site)] = len(self.rows)
            self.rows.append((where, site.offset, site.module, caller))
        return number

    def place(self, site: CallSite) -> list[Any]:
        """Return where the code of a site is found. Raises NotStorable."""
        code = site.code()
        if code is None:
            raise NotStorable("code that its graph was captured from has been freed")
        found = self.code.get(id(code))
        if found is None:
            if all(each is not code for each in code_in(site.module, code.co_name)):
                raise NotStorable(f"nothing names {code.co_name} of {code.co_filename}, which tracebacks would show")
            found = self.code[id(code)] = [code.co_name, hash_of(code)]  # type: ignore[list-item]
        return found


def read_sites(rows: Sequence[Row], known: Sequence[ref[CodeType]]) -> list[CallSite]:
    """Return call sites from rows. known: the code that the writer was given."""
    made: list[CallSite] = []
    for where, offset, module, caller in rows:
        made.append(CallSite(code_at(where, module, known), offset, module, made[caller] if caller >= 0 else None))
    return made


def code_at(where: Sequence[Any], module: str, known: Sequence[ref[CodeType]]) -> ref[CodeType]:
    """Return the code at a place; that of a freed function if it is not there, which tracebacks leave out."""
    if type(where[0]) is str:
        name, digest = where
        found = next((each for each in code_in(module, name) if hash_of(each) == digest), None)
    else:
        found = known[where[0]]()
        for index in where[1:]:
            found = found.co_consts[index] if found is not None else None
    return ref(found if found is not None else (lambda: None).__code__.replace())


def within(code: CodeType, path: list[int]) -> Iterator[tuple[list[int], CodeType]]:
    """Yield code and all code among its constants, with the path there."""
    yield path, code
    for at, const in enumerate(code.co_consts):
        if type(const) is CodeType:
            yield from within(const, [*path, at])


def code_in(module: str, name: str) -> Iterator[CodeType]:
    """Yield the code of this name in functions of an imported module and of its classes. Runs no code of a user."""
    waiting: list[Any] = [*getattr(sys.modules.get(module), "__dict__", {}).values()]
    seen: set[int] = set()
    while waiting:
        found = waiting.pop()
        if id(found) in seen:
            continue
        seen.add(id(found))
        if type(found) is FunctionType:
            of_cells = itertools.chain.from_iterable(map(contents, found.__closure__ or ()))
            waiting.extend((found.__dict__.get("__wrapped__"), *of_cells))
            yield from (each for _, each in within(found.__code__, []) if each.co_name == name)
        elif type(found) in (staticmethod, classmethod):
            waiting.append(found.__func__)
        elif type(found) is property:
            waiting.extend((found.fget, found.fset, found.fdel))
        elif issubclass(type(found), type) and OWN.__get__(found).get("__module__") == module:
            waiting.extend(OWN.__get__(found).values())


def contents(cell: CellType) -> Iterator[Any]:
    """Yield what a cell holds, if it holds anything: a decorator's has the function that it wraps."""
    try:
        yield cell.cell_contents
    except ValueError:
        return
