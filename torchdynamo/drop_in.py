"""Put torchdynamo behind `torch.compile`, for programs and libraries that call that.

`torch.compile` is looked up when it is called: by `nn.Module.compile`, `torch.compiler.compile`, accelerate, the
Trainer of transformers and others. So replacing that one name reaches them all, and it can be undone.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any, NamedTuple

import torch
import torch.compiler

from torchdynamo import config, errors, events
from torchdynamo.api import compile, reset
from torchdynamo.capture.vm import torch_names, torch_settings
from torchdynamo.core import marks
from torchdynamo.errors import TorchDynamoError, TorchDynamoWarning
from torchdynamo.hook.user_warnings import warn_user
from torchdynamo.optimized_module import OptimizedModule


class Replacement(NamedTuple):
    """Hold what `torch.compile` was, and the function that is there instead."""

    original: Callable[..., Any]
    stand_in: Callable[..., Any]


class Installed:
    """Handle of one `install()`: `uninstall()` puts torch's own `torch.compile` back, and so does the end of a `with`.

    Blocks may be nested, and overlap in threads: the last one that ends puts it back.
    """

    def uninstall(self) -> None:
        """Put back what `torch.compile` was, whoever else has called `install()`. Does nothing if it is back already.

        Raises TorchDynamoError if `torch.compile` has been replaced since by somebody else.
        """
        with _lock:
            _put_back()
            _handles.clear()

    def __enter__(self) -> Installed:
        with _lock:
            _handles.add(self)
            _put_in()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with _lock:
            if _handles == {self}:
                _put_back()
            _handles.discard(self)

    def __repr__(self) -> str:
        return f"<torchdynamo.install(), {'in place' if _replaced else 'undone'}>"


def install() -> Installed:
    """Make `torch.compile` mean `torchdynamo.compile`, also where libraries call it; return a handle to undo that.

    It covers `nn.Module.compile`, `torch.compiler.compile`, and libraries such as accelerate and transformers, whose
    Trainer then trains under torchdynamo with `torch_compile=True`:

        with torchdynamo.install():
            trainer.train()

    Without `with`, call `uninstall()` on the handle. Installing again changes nothing. PyTorch's own calls (an
    uncompiled flex_attention compiles itself) and calls inside of an export stay PyTorch's. Functions that were
    compiled earlier stay as they are; a warning names modules that hold PyTorch's by `from torch import compile`.
    """
    return Installed().__enter__()


_lock = threading.RLock()
_handles: set[Installed] = set()
_replaced: Replacement | None = None
_told: set[str] = set()  # modules that have been named in the warning


def _put_in() -> None:
    """Replace `torch.compile`, unless that has been done."""
    global _replaced
    if _replaced is None:
        original = torch.compile
        _replaced = Replacement(original, _standing_in_for(original))
        config.follow(torch_settings.followed)
        errors.join(torch_names.joined)
        torch_names.follow({"reset": reset, "OptimizedModule": OptimizedModule})
        events.listeners.append(torch_names.count)
        setattr(torch, "compile", _replaced.stand_in)  # noqa: B010 - mypy takes an assignment for a redefinition
        _tell_of_holders(original)


def _put_back() -> None:
    """Put the replaced `torch.compile` back, if there is one. Raises TorchDynamoError if it is not ours any more."""
    global _replaced
    if _replaced is None:
        return
    found: Any = torch.compile
    if found is not _replaced.stand_in:
        name = f"{getattr(found, '__module__', '')}.{getattr(found, '__qualname__', type(found).__name__)}"
        raise TorchDynamoError(
            f"torch.compile has been replaced by {name} since torchdynamo.install(): undo that first"
        )
    setattr(torch, "compile", _replaced.original)  # noqa: B010
    config.follow(None)
    errors.join(None)
    torch_names.follow(None)
    events.listeners.remove(torch_names.count)
    _replaced = None
    torch_settings.forget_names()


def _standing_in_for(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function with the signature of `torch.compile` that compiles by torchdynamo."""

    @functools.wraps(original)
    def stand_in(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_dynamo_compiling() and args:  # torch.compile reads this, for which it does nothing
            return args[0]
        if torch.compiler.is_exporting() or _is_torchs_own(sys._getframe(1)):
            return original(*args, **kwargs)
        torch_names.look_again()
        return compile(*args, **kwargs)

    marks.DISABLED.add(stand_in)
    return stand_in


ON_BEHALF = ("torch.nn.modules.module", "torch.compiler")  # these pass on what a program asks for


def _is_torchs_own(caller: FrameType) -> bool:
    """Return whether a frame belongs to PyTorch and compiles for itself."""
    name = caller.f_globals.get("__name__", "")
    return name.startswith("torch.") and name not in ON_BEHALF


def _tell_of_holders(original: Callable[..., Any]) -> None:
    """Warn about modules that hold the replaced function under a name of their own, each once."""
    new = [name for name in _holders(original) if name not in _told]
    _told.update(new)
    if new:
        warn_user(
            f"{', '.join(sorted(new))} took PyTorch's compile by `from torch import compile` before "
            f"torchdynamo.install(), and still {'has' if len(new) == 1 else 'have'} it: write torch.compile there, or "
            f"call install() before the import",
            TorchDynamoWarning,
        )


def _holders(original: Callable[..., Any]) -> Iterator[str]:
    """Yield the names of modules outside of PyTorch that hold this function."""
    for name, module in [*sys.modules.items()]:
        values = getattr(module, "__dict__", None)
        if name.split(".")[0] == "torch" or not isinstance(values, dict):
            continue
        if any(value is original for value in [*values.values()]):
            yield name
