"""Build torchdynamo against the torch of the environment that it is installed into.

`pip install .` builds in an environment of its own, in which the packages of the installing one are hidden. A torch
among the build requirements would be a second one, of gigabytes, and perhaps of another version than the one in use,
which the extension refuses. So this backend is setuptools' own, with the hidden packages put behind those of the build.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec

from setuptools.build_meta import *  # noqa: F403 - every hook is setuptools' own

ASK = """
import importlib.util, json, pathlib, sys
found = importlib.util.find_spec("torch")
beside = [str(pathlib.Path(found.origin).parent.parent)] if found and found.origin else []
print(json.dumps(beside and beside + sys.path[1:]))
"""


def folders_of_torch() -> list[str]:
    """Return the import path of this interpreter outside the build, torch's folder first; [] if it has no torch.

    A fresh interpreter is asked, since it knows the site-packages of user and system and the folders in .pth files. pip
    hides all of these by two variables, PYTHONPATH and PYTHONNOUSERSITE.
    """
    outside = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONNOUSERSITE")}
    done = subprocess.run([sys.executable, "-c", ASK], env=outside, stdout=subprocess.PIPE, check=True)
    folders: list[str] = json.loads(done.stdout.splitlines()[-1])
    return folders


def show_torch() -> None:
    """Make torch importable in this process. What is importable already, such as setuptools, stays as it is."""
    if find_spec("torch") is None:
        sys.path += [each for each in folders_of_torch() if each not in sys.path]


show_torch()  # each hook runs in a process of its own, which imports this module first
