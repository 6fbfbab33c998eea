"""Keep what was measured of graphs on disk, in sqlite, for other processes.

Rows are data: nothing that is read from the file is executed. A file that is no database is moved aside.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torchdynamo.backends.ensemble import measure
from torchdynamo.backends.ensemble.identity import OF_INDUCTOR, fingerprint, versions_for
from torchdynamo.backends.ensemble.measure import Timing
from torchdynamo.backends.ensemble.member import MEMBERS
from torchdynamo.errors import TorchDynamoWarning
from torchdynamo.hook.user_warnings import warn_user

VARIABLE = "TORCHDYNAMO_ENSEMBLE_DB"
PATIENCE = 2.0  # seconds to wait for another process that writes
_SCHEMA = """
create table if not exists measurements (
    graph text, fingerprint text, versions text, member text, state text, reason text, build_seconds real,
    median real, lower real, upper real, runs integer, error real, bytes integer, created real,
    primary key (graph, fingerprint, versions, member)
)
"""


_HAS_TABLE = "select 1 from sqlite_master where name = 'measurements'"


class Row(NamedTuple):
    """Outcome of one member for one graph. Times are seconds; those of members not measured are None."""

    member: str
    state: str
    reason: str = ""
    build_seconds: float = 0.0
    timing: Timing | None = None
    error: float = 0.0
    bytes: int = 0


def path() -> Path | None:
    """Return the file: of the variable TORCHDYNAMO_ENSEMBLE_DB, else in the user's cache; None if that is empty."""
    given = os.environ.get(VARIABLE)
    if given is not None:
        return Path(given) if given else None
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "torchdynamo" / "ensemble.sqlite3"


class Database:
    """The measurements in one file. Whatever is wrong with the file is one warning; then nothing is read or kept."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.usable = True

    def winner(self, graph: str) -> str | None:
        """Return the member that was the best for a graph on such a machine with these versions; None if unknown."""
        return winner_of(self.rows(graph))

    def rows(self, graph: str) -> list[Row]:
        """Return the measurements of a graph on such a machine with these versions."""
        found = self._ask(
            "select member, state, reason, build_seconds, median, lower, upper, runs, error, bytes from measurements "
            "where graph = ? and fingerprint = ? and versions = ? order by rowid",
            [(graph, fingerprint(), versions_for(graph))],
        )
        return [
            Row(member, state, reason, seconds, Timing(*times) if times[0] is not None else None, error, size)
            for member, state, reason, seconds, *times, error, size in found
        ]

    def with_state(self, state: str) -> list[tuple[str, str]]:
        """Return graph and set of all rows of Inductor's options of such a machine with these versions that have this
        state, in order.
        """
        return self._ask(
            "select graph, member from measurements where state = ? and fingerprint = ? and versions = ? "
            "order by graph, member",
            [(state, fingerprint(), versions_for(OF_INDUCTOR))],
        )

    def keep(self, graph: str, rows: Sequence[Row]) -> None:
        """Store the measurements of a graph, in place of earlier ones of the same members."""
        none = (None, None, None, None)
        self._ask(
            "insert or replace into measurements values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    *(graph, fingerprint(), versions_for(graph), row.member, row.state, row.reason, row.build_seconds),
                    *(row.timing or none),
                    *(row.error, row.bytes, time.time()),
                )
                for row in rows
            ],
        )

    def _ask(self, statement: str, parameters: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Run a statement for each of these parameters; return the rows of the last."""
        if not self.usable or not self._is_ours():
            return []
        found: list[Any] = []
        reads = statement.startswith("select")
        try:
            if not self.file.exists():
                self.file.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(self.file, timeout=PATIENCE)
            try:
                if not reads or not connection.execute(_HAS_TABLE).fetchone():
                    connection.execute("pragma journal_mode = wal")
                    connection.execute(_SCHEMA)
                with connection:
                    for each in parameters:
                        found = connection.execute(statement, each).fetchall()
            finally:
                connection.close()
        except (sqlite3.OperationalError, OSError) as error:
            self._give_up(f"{error}; nothing is read from it or kept in it")
        except sqlite3.DatabaseError as error:
            aside = self.file.with_name(self.file.name + ".broken")
            os.replace(self.file, aside)
            self._give_up(f"{error}; it is {aside} now, and the next process begins a new one")
        return found

    def _is_ours(self) -> bool:
        try:
            owner = os.stat(self.file).st_uid
        except OSError:
            return True  # there is none yet
        if owner in (os.getuid(), 0):
            return True
        self._give_up("it belongs to another user; nothing is read from it or kept in it")
        return False

    def _give_up(self, why: str) -> None:
        self.usable = False
        warn_user(f"the ensemble's database {self.file}: {why}", TorchDynamoWarning)


def winner_of(rows: Sequence[Row]) -> str | None:
    """Return the member that these measurements make the best, "eager" among them; None without eager's time."""
    timings = {row.member: row.timing for row in rows if row.timing is not None and row.state == "built"}
    if "eager" not in timings:
        return None
    return measure.best(timings, MEMBERS)


_known: dict[Path, Database] = {}


def database() -> Database | None:
    """Return the database of this process; None if it is switched off."""
    file = path()
    return None if file is None else _known.setdefault(file, Database(file))
