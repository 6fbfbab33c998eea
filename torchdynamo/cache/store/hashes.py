"""Hash code objects, so that another process can tell whether it has the same ones."""

from __future__ import annotations

import hashlib
from types import CodeType
from typing import Any

from torchdynamo.bytecode.percode import PerCode
from torchdynamo.bytecode.qualnames import lasting_name

_known: PerCode[str] = PerCode()


def hash_of(code: CodeType) -> str:
    """Return a hash of all that a code object is: what it does, its names, its file and its lines.

    The file and the lines count, because programs can ask for them, and tracebacks show them.
    """
    found = _known.get(code)
    if found is None:
        text = repr(_parts(code)).encode("utf-8", "surrogatepass")
        _known.set(code, found := hashlib.blake2b(text, digest_size=16).hexdigest())
    return found


def _parts(code: CodeType) -> tuple[Any, ...]:
    return (
        *(code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, code.co_flags),
        *(code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_name, lasting_name(code)),
        *(code.co_stacksize, code.co_filename, code.co_firstlineno, list(code.co_lines())),
        getattr(code, "co_linetable", b""),
        getattr(code, "co_exceptiontable", b""),
        [_constant(const) for const in code.co_consts],
    )


def _constant(const: Any) -> str:
    """Return a constant of a code object as text that is equal in every process."""
    if type(const) is CodeType:
        return hash_of(const)
    if type(const) is tuple:
        return f"({', '.join(map(_constant, const))})"
    if type(const) is frozenset:
        return f"{{{', '.join(sorted(map(_constant, const)))}}}"
    return f"{type(const).__name__} {const!r}"
