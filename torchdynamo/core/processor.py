"""Ask the system about its processors."""

from __future__ import annotations


def first_processor() -> str:
    """Return the lines that Linux has about the first processor. Raises OSError on other systems.

    No more is read than that: what it has about all takes milliseconds on large machines.
    """
    text = b""
    with open("/proc/cpuinfo", "rb", buffering=0) as file:
        while b"\n\n" not in text and (more := file.read(4096)):
            text += more
    return text.decode(errors="replace").partition("\n\n")[0]
