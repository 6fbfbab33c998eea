"""Apply a setting of the frame hook to a `with` block, a function or a module."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, MethodDescriptorType, MethodType, TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from torchdynamo import suspending
from torchdynamo.cache import budget
from torchdynamo.capture.vm.interop import is_of_front_end
from torchdynamo.core import marks
from torchdynamo.core.policy import is_tensor_method, is_torch_operator
from torchdynamo.direct import WAY
from torchdynamo.hook.frames import always_capture, skip_reason
from torchdynamo.hook.install import Compiled, callback_active, set_eval_frame
from torchdynamo.optimized_module import OptimizedModule
from torchdynamo.whole_graph import Refused, body_of, why_never

F = TypeVar("F", bound=Callable[..., Any])


class EvalContext:
    """A callback of the frame hook that is active inside of a block or a decorated function.

    `callback` is a compiler, None (existing code is not used either), or False (existing code is used, nothing new is
    compiled). A context may be entered repeatedly and from several threads. `remake` is a picklable function that
    applies the same decoration to an unpickled module.
    """

    def __init__(self, callback: Any, spelling: str, remake: Callable[[Any], Any]) -> None:
        self.callback = callback
        self._spelling = spelling  # text for messages, such as `optimize(fn)`
        self._remake = remake
        self._thread = threading.local()

    def __enter__(self) -> EvalContext:
        block = callback_active(self.callback).__enter__()
        self._entered().append(block)
        if block.prior is False and self.callback:
            set_eval_frame(False)  # inside of `run()` nothing new is compiled
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered().pop().__exit__()

    if TYPE_CHECKING:

        def __call__(self, fn: F, /) -> F: ...

    else:

        def __call__(self, *args, **kwargs):
            """Decorate a function, method, callable object or nn.Module. Raises TypeError for other arguments."""
            if len(args) != 1 or kwargs or not callable(args[0]):
                raise TypeError(self._not_decorating(args, kwargs))
            return self.decorate(args[0])

    def decorate(self, fn: F) -> F:
        """Return a callable that runs with this setting; of a class, calls of its instances do, and it is returned.

        Raises TypeError for classes of PyTorch's own, and those whose instances cannot be called.
        """
        if isinstance(fn, type):
            return self._class(fn)
        wrapped = self._module(fn) if isinstance(fn, torch.nn.Module) else self._function(fn)
        if not self.callback:
            marks.DISABLED.add(wrapped)
        for code in codes_of(fn):
            budget.note_asked(code)
            if self.callback:
                suspending.note_asked(code)
        return wrapped

    def _class(self, cls: Any) -> Any:
        """Set how instances of a class are called, and return the class."""
        call: Any = next((base.__dict__["__call__"] for base in cls.__mro__ if "__call__" in base.__dict__), None)
        of_class = isinstance(call, classmethod)
        inner = call.__func__ if of_class else call
        if not callable(inner) or str(cls.__module__).split(".")[0] == "torch":
            raise TypeError(
                f"torchdynamo.{self._spelling} decorates functions, methods, nn.Module objects, and classes of the "
                f"program's with a method __call__, not the class {cls.__name__}: decorate its methods, or an instance"
            )
        compiled = self.decorate(inner)
        cls.__call__ = classmethod(compiled) if of_class else compiled
        return cls

    def _function(self, fn: Callable[..., Any]) -> Any:
        inner = without_compiler(fn)
        called = in_a_frame(inner) if self.callback and belongs_to_torch(inner) else inner
        updated = functools.WRAPPER_UPDATES if isinstance(inner, (FunctionType, MethodType)) else ()
        refused = self._refused(inner)
        if refused is not None:
            compiled = Compiled(refused, self.callback, way=Refused.hide)
        else:
            compiled = Compiled(called, self.callback)
        return functools.update_wrapper(compiled, inner, updated=updated)

    def _module(self, module: torch.nn.Module) -> Any:
        return OptimizedModule.wrap(module, self.callback, self._remake, self._refused(module))

    def _refused(self, fn: Callable[..., Any]) -> Refused | None:
        """Return a replacement that raises, for a function that must be one graph and never can be; else None."""
        reason = why_never(fn) if getattr(self.callback, "fullgraph", False) else None
        return None if reason is None else Refused(fn, reason)

    def _entered(self) -> list[callback_active]:
        """Return the blocks of this context that this thread is in."""
        entered: list[callback_active] | None = getattr(self._thread, "entered", None)
        if entered is None:
            entered = self._thread.entered = []
        return entered

    def _not_decorating(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        given = [type(arg).__name__ for arg in args] + [f"{name}=..." for name in kwargs]
        return (
            f"torchdynamo.{self._spelling} was called with ({', '.join(given)}), but it is a decorator: it takes one "
            f"function or nn.Module. If what is in its parentheses is the function to compile, that place is the "
            f"backend's: write torchdynamo.compile(function) or torchdynamo.optimize()(function)"
        )

    def __repr__(self) -> str:
        return f"<torchdynamo.{self._spelling}>"


def codes_of(fn: Any) -> Iterator[CodeType]:
    """Yield the code objects that a call of a callable runs: its own, and those of functions that it wraps."""
    while fn is not None:
        if getattr(fn, "__func__", None) in WAY.values():
            fn = fn.__self__  # nn.Module.compile asks for the call of a module
        called = getattr(type(fn), "forward" if isinstance(fn, torch.nn.Module) else "__call__", None)
        codes = (getattr(each, "__code__", None) for each in (fn, called))
        yield from (code for code in codes if type(code) is CodeType)
        fn = getattr(fn, "__wrapped__", None)


def without_compiler(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return the callable inside of our compiling wrappers, so that the last decoration counts.

    A wrapper that disables compilation stays, because its author wants that part left out.
    """
    while type(fn) is Compiled and fn.callback:
        fn = fn.fn
    return fn.fn if isinstance(fn, Refused) else fn


def belongs_to_torch(fn: Any) -> bool:
    """Return whether a callable is PyTorch's and runs no frame that is captured by itself, as that of `forward` is."""
    body = body_of(fn)
    if isinstance(getattr(fn, "__self__", None), (torch.nn.Module, torch.optim.Optimizer)):
        return False
    if not isinstance(body, FunctionType):
        return is_torch_operator(fn) or (isinstance(fn, MethodDescriptorType) and is_tensor_method(fn))
    return not is_of_front_end(body) and skip_reason(body.__code__, body.__globals__) == "torch internals"


def in_a_frame(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls `fn`, with code of its own to compile; the same one for a function of a module."""
    home = vars(sys.modules.get(getattr(fn, "__module__", None) or "torch", torch))
    return shared_call(fn) if home.get(getattr(fn, "__name__", "")) is fn else call_of(fn)


def call_of(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that does nothing but call `fn`, whose code no other such function has."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    code = call.__code__.replace(co_name=getattr(fn, "__name__", "call"))
    call.__code__ = always_capture(code)
    marks.ASKED.add(code)
    return call


shared_call = functools.cache(call_of)
