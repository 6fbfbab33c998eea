"""Write numbers, places and texts for the page: each number also as a machine reads it, no invisible characters."""

from __future__ import annotations

import os.path
import re
from typing import Any

from markupsafe import Markup

LONGEST = 2000  # characters of one text; the JSON has all of it
# Control characters, marks that change the direction of text, line separators, halves of surrogate pairs.
INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


def visible(text: str) -> str:
    """Return a text whose invisible and direction-changing characters are spelt out, as in `<U+202E>`."""
    return INVISIBLE.sub(lambda found: f"<U+{ord(found[0]):04X}>", text)


def shown(value: Any) -> Any:
    """Return what the template prints for a value: strings without invisible characters and not too long."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return visible(value if len(value) <= LONGEST else value[:LONGEST] + " …")
    return value


def number(value: float, text: str) -> Markup:
    """Return a number as people read it, with the exact value for machines."""
    return Markup('<data value="{}">{}</data>').format(repr(value), text)


def count(value: float) -> Markup:
    """Return a count with commas between thousands; whole floats have no decimals."""
    return number(value, f"{int(value):,}" if value == int(value) else f"{value:,.1f}")


def counted(value: int, noun: str) -> Markup:
    """Return a count with its noun, in the plural unless it is one."""
    return Markup("{} {}").format(count(value), noun if value == 1 else plural(noun))


def plural(noun: str) -> str:
    """Return the plural of one of the page's nouns, of which the last word changes."""
    return f"{noun}es" if noun.endswith("s") else f"{noun}s"


def seconds(value: float | None) -> Markup:
    """Return a duration in seconds, in the unit that suits it; a dash if it is not known."""
    return Markup("&ndash;") if value is None else number(value, duration(value))


def microseconds(value: float | None) -> Markup:
    """Return a duration given in microseconds, in the unit that suits it; a dash if it is not known."""
    return Markup("&ndash;") if value is None else number(value, duration(value / 1e6))


def duration(value: float) -> str:
    """Return seconds as text of about three digits: `412 µs`, `1.30 ms`, `18.2 s`."""
    for factor, unit in ((1e6, "µs"), (1e3, "ms"), (1, "s")):
        scaled = value * factor
        if scaled < 1000 or unit == "s":
            return f"{scaled:,.{0 if scaled >= 100 or scaled == 0 else 1 if scaled >= 10 else 2}f} {unit}"
    return ""


def place(filename: str, line: int | None) -> str:
    """Return the last part of a file's name and a line."""
    name = os.path.basename(filename) or filename
    return name if line is None else f"{name}:{line}"


def short(listed: str) -> str:
    """Return a function of a report's lists, `f (/folder/m.py:3)`, without the folder."""
    return re.sub(r"\([^()]*[/\\]", "(", listed)


def web_address(text: str) -> str:
    """Return an address that may be linked to, or an empty string for one of another kind than http."""
    return text if re.match(r"https?://", text) else ""
