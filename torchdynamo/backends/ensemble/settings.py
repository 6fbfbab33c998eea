"""Read the options of backend "ensemble"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torchdynamo.backends.ensemble.member import MEMBERS
from torchdynamo.backends.settings import nearest
from torchdynamo.errors import UnknownSetting

TUNE = ("online", "now")


class Settings(NamedTuple):
    """Options of the ensemble: `torchdynamo.compile(model, backend="ensemble", options={...})`."""

    constants: bool = False
    """Members may make constants of parameters and buffers, which are compared in each call by identity, address and
    version; writes through `.data` or NumPy move no version and go unnoticed."""
    tune: str = "online"
    """"online": a member is built once the graph has cost as much time as building it will, and is timed on real
    calls. "now": all are built and timed in the first call."""
    budget: float = 30.0
    """Seconds within which tune="now" starts builds; one that has begun is not cut off."""
    members: tuple[str, ...] = ()
    """The members that may compete beside eager; all if empty."""
    nan_exact: bool = True
    """NaN and infinities must come out where eager has them."""
    memory: float = 0.0
    """MiB of constants that members may copy for one graph; 0 for no limit."""


def settings_of(mode: str | None, options: Mapping[str, Any] | None) -> Settings:
    """Return the settings that options stand for. Raises UnknownSetting for those that do not exist, or are no such."""
    if mode is not None:
        raise UnknownSetting(f"backend 'ensemble' has no modes, and so none called {mode!r}; 'inductor' has some")
    defaults = Settings()._asdict()
    found: dict[str, Any] = {}
    for name, value in (options or {}).items():
        if name not in defaults:
            known = ", ".join(defaults)
            raise UnknownSetting(f"backend 'ensemble' has no option {name!r}{nearest(name, defaults)}; it has {known}")
        found[name] = _CHECKS[name](name, value)
    return Settings(**found)


def _flag(name: str, value: Any) -> bool:
    if type(value) is not bool:
        raise UnknownSetting(f"option {name!r} of backend 'ensemble' is True or False, not {value!r}")
    return value


def _amount(name: str, value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value < float("inf"):
        raise UnknownSetting(f"option {name!r} of backend 'ensemble' is a number of at least 0, not {value!r}")
    return float(value)


def _way(name: str, value: Any) -> str:
    if value not in TUNE:
        raise UnknownSetting(f"option {name!r} of backend 'ensemble' is one of {', '.join(TUNE)}, not {value!r}")
    return str(value)


def _members(name: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise UnknownSetting(f"option {name!r} of backend 'ensemble' is a list of names, not {value!r}")
    for each in value:
        if each not in MEMBERS:
            known = ", ".join(MEMBERS)
            raise UnknownSetting(f"the ensemble has no member {each!r}{nearest(str(each), MEMBERS)}; it has {known}")
    return tuple(value)


_CHECKS: dict[str, Any] = {
    "constants": _flag,
    "tune": _way,
    "budget": _amount,
    "members": _members,
    "nan_exact": _flag,
    "memory": _amount,
}
