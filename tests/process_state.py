"""State of the process that a test may change and must put back: a row for each fact.

Nothing is imported for it: facts about torch and torchdynamo are read where a test has imported these, so the tests
that run on a Python without torch are watched as well.
"""

from __future__ import annotations

import builtins
import gc
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple


class Fact(NamedTuple):
    """How something is read, and put back; `module` is what must have been imported."""

    read: Callable[[], Any]
    put: Callable[[Any], object] | None = None
    module: str = "builtins"


FACTS: dict[str, Fact] = {}


def module(name: str) -> Any:
    return sys.modules[name]


def _replace(contents: Any, wanted: Any) -> None:
    contents.clear()
    contents.update(wanted)


# Notes of pytest to itself, and of Inductor and Triton to the libraries that they load.
NOTES = ("PYTEST_", "_TORCHINDUCTOR_", "TRITON_")


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(NOTES)}


FACTS["builtins"] = Fact(lambda: {**vars(builtins)}, lambda wanted: _replace(vars(builtins), wanted))
FACTS["environment"] = Fact(_environment)
FACTS["working directory"] = Fact(os.getcwd, os.chdir)
FACTS["module path"] = Fact(lambda: [*sys.path], lambda wanted: sys.path.__setitem__(slice(None), wanted))
FACTS["warning filters"] = Fact(lambda: [*warnings.filters])  # pytest puts them back
FACTS["showwarning"] = Fact(lambda: warnings.showwarning, lambda wanted: setattr(warnings, "showwarning", wanted))
FACTS["recursion limit"] = Fact(sys.getrecursionlimit, sys.setrecursionlimit)
FACTS["switch interval"] = Fact(sys.getswitchinterval, sys.setswitchinterval)
FACTS["collector"] = Fact(gc.isenabled, lambda wanted: gc.enable() if wanted else gc.disable())
FACTS["collector's threshold"] = Fact(gc.get_threshold, lambda wanted: gc.set_threshold(*wanted))
FACTS["collector's callbacks"] = Fact(lambda: [each for each in gc.callbacks if "hypothesis" not in each.__module__])
FACTS["trace function"] = Fact(sys.gettrace, sys.settrace)
FACTS["profile function"] = Fact(sys.getprofile, sys.setprofile)
FACTS["trace function of threads"] = Fact(threading.gettrace, threading.settrace)
FACTS["profile function of threads"] = Fact(threading.getprofile, threading.setprofile)
FACTS["interrupts"] = Fact(lambda: signal.getsignal(signal.SIGINT), lambda wanted: signal.signal(signal.SIGINT, wanted))
FACTS["hooks"] = Fact(lambda: (sys.excepthook, sys.displayhook, sys.breakpointhook))


def _autocast() -> Any:
    torch = module("torch")
    return [
        (torch.is_autocast_enabled(kind), str(torch.get_autocast_dtype(kind))) for kind in ("cpu", "cuda")
    ], torch.is_autocast_cache_enabled()


def of_torch(read: str, put: str | None = None) -> Fact:
    """A fact that functions of torch read and set."""

    def call(name: str, *args: Any) -> Any:
        found: Any = module("torch")
        for part in name.split("."):
            found = getattr(found, part)
        return found(*args)

    return Fact(lambda: call(read), None if put is None else (lambda wanted: call(put, wanted)), "torch")


FACTS["gradients"] = of_torch("is_grad_enabled", "set_grad_enabled")
FACTS["inference mode"] = of_torch("is_inference_mode_enabled")
FACTS["autocast"] = Fact(_autocast, module="torch")
FACTS["anomaly detection"] = of_torch("is_anomaly_enabled", "autograd.set_detect_anomaly")
FACTS["default dtype"] = of_torch("get_default_dtype", "set_default_dtype")
FACTS["default device"] = of_torch("get_default_device", "set_default_device")
FACTS["deterministic algorithms"] = of_torch("are_deterministic_algorithms_enabled", "use_deterministic_algorithms")
FACTS["precision of products"] = of_torch("get_float32_matmul_precision", "set_float32_matmul_precision")
FACTS["threads of operators"] = of_torch("get_num_threads", "set_num_threads")
FACTS["function modes"] = of_torch("_C._len_torch_function_stack")
FACTS["dispatch modes"] = of_torch("_C._len_torch_dispatch_stack")


def _hook() -> Any:
    """Return the callback of this thread, and whether the hook is in. Leaves no callback on."""
    install = module("torchdynamo.hook.install")
    return install.set_eval_frame(None), install.hook_is_in()


FACTS["frame hook"] = Fact(_hook, module="torchdynamo.hook.install")


def _settings() -> dict[str, Any]:
    """Return what has been set, defaults too: these come before what torch.compile's settings say."""
    config = module("torchdynamo.config")
    return {name: value for name, value in vars(config).items() if name in config.knobs()}


def _set(wanted: dict[str, Any]) -> None:
    config = module("torchdynamo.config")
    config.reset()
    for name, value in wanted.items():
        setattr(config, name, value)


FACTS["settings"] = Fact(_settings, _set, "torchdynamo.config")
FACTS["backends"] = Fact(
    lambda: dict(module("torchdynamo.backends").BACKENDS),
    lambda wanted: _replace(module("torchdynamo.backends").BACKENDS, wanted),
    "torchdynamo.backends",
)


def forget() -> None:
    """Drop what has been compiled, if anything that compiles was imported, and what torch.compile does to a process.

    That is to switch the validation of arguments of distributions off, for good.
    """
    if "torch.distributions" in sys.modules:
        module("torch.distributions").Distribution.set_default_validate_args(__debug__)
    if hasattr(sys.modules.get("torchdynamo"), "reset"):
        module("torchdynamo").reset()
    elif "torchdynamo.hook.install" in sys.modules:  # a build of the hook alone
        module("torchdynamo.hook.install").clear_all()


def snapshot() -> dict[str, Any]:
    """Return what can be read now, by name."""
    return {name: fact.read() for name, fact in FACTS.items() if fact.module in sys.modules}


def put_back(before: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return what differs from a snapshot, with both values, and put it back where that is possible."""
    now = snapshot()
    changed = {name: (value, now[name]) for name, value in before.items() if name in now and value != now[name]}
    for name, (wanted, _) in changed.items():
        put = FACTS[name].put
        if put is not None:
            put(wanted)
    return changed


def difference(before: Any, after: Any) -> str:
    """Return a line on how two values of a fact differ: of tables and lists, only what is not in both."""
    if isinstance(before, dict):
        names = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
        before, after = ({name: each.get(name) for name in names} for each in (before, after))
    elif isinstance(before, list):
        before, after = [x for x in before if x not in after], [x for x in after if x not in before]
    return f"{before!r} became {after!r}"[:600]
