"""Log events, one topic for each kind: `TORCHDYNAMO_LOGS=breaks,recompiles python program.py`.

Each topic is a logger below `torchdynamo`, so a service can look at them with `logging` alone; records have the event
as `record.event`. A break, skip, fallback or limit is logged the first time that it happens at a place, and
`events.count` knows how often it has happened since.
"""

from __future__ import annotations

import difflib
import logging
import os
import sys
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import NamedTuple

from torchdynamo import events
from torchdynamo.core.reasons import REASONS, pointer
from torchdynamo.core.source import Position
from torchdynamo.events import Event
from torchdynamo.report.recompiles import pointed_at


class Topic(NamedTuple):
    """A row of the table of topics: which kind of event is logged, at which level, and what `TORCH_LOGS` calls it."""

    kind: events.Kind | None
    level: int
    text: str
    torchs: tuple[str, ...] = ()


TOPICS: dict[str, Topic] = {
    "compiles": Topic("compile", logging.INFO, "each compiled frame: operators, seconds by phase", ("dynamo",)),
    "breaks": Topic("break", logging.INFO, "where and why graphs break, and what to write instead", ("graph_breaks",)),
    "recompiles": Topic("recompile", logging.INFO, "what has changed when a function recompiles", ("recompiles",)),
    "skips": Topic("skip", logging.INFO, "functions that are left to Python after a capture"),
    "fallbacks": Topic("fallback", logging.WARNING, "what failed and runs eagerly"),
    "limits": Topic("limit", logging.WARNING, "functions that have reached their limit of versions"),
    "tuning": Topic("tuning", logging.INFO, "which member of the ensemble was chosen for a graph"),
    "graphs": Topic(None, logging.DEBUG, "each graph, as a table of its nodes", ("graph", "graph_code")),
    "guards": Topic(None, logging.DEBUG, "the guards of each compiled frame, with their cost", ("guards",)),
    "bytecode": Topic(None, logging.DEBUG, "the bytecode of each frame, before and after", ("bytecode",)),
}
_TOPIC_OF = {topic.kind: name for name, topic in TOPICS.items() if topic.kind is not None}
_EACH_TIME = frozenset({"compile", "recompile", "tuning"})
_root = logging.getLogger("torchdynamo")
_root.addHandler(logging.NullHandler())  # else Python prints records of WARNING, beside the warning itself
_shown: logging.Handler | None = None


def set_logs(topics: str) -> None:
    """Show topics on standard error, or in the file that TORCHDYNAMO_LOGS_OUT names; "" shows none.

    topics: names of `TOPICS`, with commas between; `+name` shows more detail where there is some, `-name` leaves a
        topic out, `all` stands for all.

    Raises ValueError for an unknown name, and OSError if the file cannot be written.
    """
    levels = _levels(topics)
    global _shown
    if _shown is not None:
        _root.removeHandler(_shown)
        _shown.close()
        _shown = None
    if levels:
        path = os.environ.get("TORCHDYNAMO_LOGS_OUT")
        _shown = logging.FileHandler(path) if path else logging.StreamHandler(sys.stderr)
        _shown.setFormatter(logging.Formatter("[%(name)s] %(message)s"))
        _shown.addFilter(lambda record: record.name.removeprefix("torchdynamo.") in levels)
        _root.addHandler(_shown)
    for name in TOPICS:
        logging.getLogger(f"torchdynamo.{name}").setLevel(levels.get(name, logging.NOTSET))


def from_environment(environment: Mapping[str, str]) -> str:
    """Return the topics that TORCHDYNAMO_LOGS names, and those of TORCH_LOGS that we have too."""
    ours = [each.strip() for each in environment.get("TORCHDYNAMO_LOGS", "").split(",") if each.strip()]
    theirs = {each.strip().lstrip("+") for each in environment.get("TORCH_LOGS", "").split(",")}
    return ",".join([*(name for name, topic in TOPICS.items() if theirs.intersection(topic.torchs)), *ours])


def _levels(topics: str) -> dict[str, int]:
    """Return the level of each topic that is shown."""
    levels: dict[str, int] = {}
    for word in filter(None, (each.strip() for each in topics.split(","))):
        name = word.lstrip("+-")
        if name != "all" and name not in TOPICS:
            near = difflib.get_close_matches(name, TOPICS, n=1)
            table = "\n".join(f"  {each:11}{topic.text}" for each, topic in TOPICS.items())
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"there is no topic {name!r} for TORCHDYNAMO_LOGS{hint} The topics:\n{table}")
        for each in TOPICS if name == "all" else (name,):
            levels[each] = logging.DEBUG if word[0] == "+" else TOPICS[each].level
            if word[0] == "-":
                del levels[each]
    return levels


def log(event: Event, count: int) -> None:
    """Log an event, unless the same one has been logged. An error of a handler is reported and not raised."""
    name = _TOPIC_OF.get(event.kind)
    if name is None or (count > 1 and event.kind not in _EACH_TIME):
        return
    logger, level = logging.getLogger(f"torchdynamo.{name}"), TOPICS[name].level
    if not logger.isEnabledFor(level):
        return
    try:
        logger.log(level, "%s", _TEXTS.get(event.kind, _told)(event), extra={"event": event})
    except Exception as error:
        what = {"exc_type": type(error), "exc_value": error, "exc_traceback": error.__traceback__}
        sys.unraisablehook(SimpleNamespace(**what, err_msg="a log handler raised", object=log))


def place_of(event: Event) -> str:
    """Return an event's place as an editor reads it."""
    return f"{event.place.filename}:{event.place.line}"


def _told(event: Event) -> str:
    """Return what happened at a line, that line, what to write instead, the calls that led there, and the reason."""
    place = event.place
    position = Position(place.filename, place.line, place.end_line, place.column, place.end_column, place.function)
    lines = [f"{place_of(event)} in {place.function}: {event.text}", *pointed_at(position), event.hint]
    lines += [f"called from {each.filename}:{each.line} in {each.function}" for each in reversed(event.chain)]
    lines += [pointer(event.reason)] if event.reason in REASONS else []
    return "\n    ".join(filter(None, lines))


def _compiled(event: Event) -> str:
    phases = ", ".join(f"{name} {1e3 * seconds:.0f} ms" for name, seconds in event.seconds.items())
    return f"{event.graph} ({place_of(event)}): {event.operators} operators, {event.backend}, {phases}"


_TEXTS: dict[str, Callable[[Event], str]] = {
    "compile": _compiled,
    "recompile": lambda event: "\n    ".join(filter(None, [event.text, event.hint])),  # it names its place itself
    "fallback": lambda event: event.text,
    "limit": lambda event: event.text,
}
events.listeners.append(log)
