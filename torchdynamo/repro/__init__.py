"""Repeat the failure of a backend: write a script that shows it, and cut its graph to the fewest operators.

`python -m torchdynamo repro` is the command; the scripts that it writes call `main`.
"""

from torchdynamo.repro.case import Case
from torchdynamo.repro.running import main

__all__ = ["Case", "main"]
