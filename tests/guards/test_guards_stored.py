"""Guards on disk: what comes back says what was said, of other objects too, and brings none of the user's along."""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys
import textwrap
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch

import torchdynamo
from torchdynamo.core.source import Guard, Roots
from torchdynamo.eval_frame import cache_entries
from torchdynamo.guards.explain import first_failure
from torchdynamo.guards.facts import hash_of
from torchdynamo.guards.program import lower
from torchdynamo.guards.stored import Unresolved, dumps, loads, resolve

sys.path.append(str(Path(__file__).parents[1] / "mutations"))

import mutations_classes  # noqa: F401 - fills the table
import mutations_enums  # noqa: F401
import mutations_found  # noqa: F401
import mutations_functions  # noqa: F401
import mutations_modules  # noqa: F401
import mutations_python  # noqa: F401
import mutations_torch  # noqa: F401
from mutating import ROWS, Mutation

# What is patched in `builtins` or a metaclass is in the way of whoever asks here.
ASKED = [row for row in ROWS if row.__module__ not in ("mutations_patched", "mutations_metaclasses")]


def function_of(case: Mutation) -> Any:
    return case.fn.forward if isinstance(case.fn, torch.nn.Module) else case.fn


def roots_of(case: Mutation) -> Roots | None:
    """The frame of the row's call; None if that is not a plain function's."""
    fn, args = function_of(case), case.args()
    if hasattr(fn, "__self__"):
        fn, args = fn.__func__, (fn.__self__, *args)
    code = getattr(fn, "__code__", None)
    if code is None or len(args) != code.co_argcount:
        return None
    cells = dict(zip(code.co_freevars, fn.__closure__ or (), strict=True))
    return Roots(dict(zip(code.co_varnames, args, strict=False)), fn.__globals__, __builtins__, cells)  # type: ignore[arg-type]


def says(guards: list[Guard], roots: Roots) -> bool:
    return first_failure(guards, roots) is None


COUNTS = {"rows": 0, "stored": 0}
UNKNOWN: list[str] = []


@pytest.mark.parametrize("row", ASKED[::3], ids=lambda row: row.__name__)
def test_what_comes_back_says_the_same(row: Any) -> None:
    """Of every third row of the table of mutations, before the change and after it."""
    case = row()
    compiled = torchdynamo.compile(case.fn, backend="eager")
    with ExitStack() as stack:
        try:
            compiled(*case.args())
        except Exception:
            return
        entries, roots = cache_entries(function_of(case)), roots_of(case)
        if roots is None or not entries:
            return
        guards = list(entries[0].guards)
        if not says(guards, roots):
            return  # this call has changed what it rests on
        data = dumps(guards)
        COUNTS["rows"] += 1
        try:
            back = resolve(loads(data), roots)
        except Unresolved as error:
            UNKNOWN.append(f"{row.__name__}: {error}")
            return
        COUNTS["stored"] += 1
        assert [guard._replace(arg=None) for guard in back] == [guard._replace(arg=None) for guard in guards]
        program = lower(back, [], case_code(case))
        assert program.check(roots.locals, roots.globals, roots.builtins, roots.closure)
        case.change(stack)
        roots = roots_of(case)
        assert roots is not None
        assert says(back, roots) == says(guards, roots)
        try:
            assert says(resolve(loads(data), roots), roots) == says(guards, roots)
        except Unresolved:
            assert not says(guards, roots)


def case_code(case: Mutation) -> Any:
    fn = function_of(case)
    return getattr(fn, "__func__", fn).__code__


def test_most_of_the_table_can_be_stored() -> None:
    assert COUNTS["stored"] > 0.85 * COUNTS["rows"], UNKNOWN


MODEL = """
import torch
SCALE = {scale}
class Inner:
    def __init__(self):
        self.power, self.names = 2, ["a", "b"]
def helper(x):
    return x.sum() {sign} SCALE
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 4)
        self.inner = Inner()
    @property
    def twice(self):
        return 2
    def forward(self, x):
        return torch.relu(self.fc(x)) ** self.inner.power + helper(x) * self.twice + len(self.inner.names)
"""

WRITE = """
import sys, torch, torchdynamo, model
from torchdynamo.eval_frame import cache_entries
from torchdynamo.guards.stored import dumps
net = model.Net()
torchdynamo.compile(net, backend="eager")(torch.ones(4))
open("guards", "wb").write(dumps(cache_entries(net)[0].guards))
"""

READ = """
import builtins, sys, torch
from torchdynamo.core.source import Roots
from torchdynamo.guards.explain import first_failure
from torchdynamo.guards.program import lower
from torchdynamo.guards.stored import Unresolved, loads, resolve
guards = loads(open("guards", "rb").read())
assert "model" not in sys.modules
import model
net = model.Net()
roots = Roots({"self": net, "x": torch.ones(int(sys.argv[1]))}, vars(model), vars(builtins), {})
try:
    back = resolve(guards, roots)
except Unresolved as error:
    print("unresolved", error.args[0].name)
else:
    program = lower(back, [], model.Net.forward.__code__)
    assert program.check(roots.locals, roots.globals, roots.builtins) == (first_failure(back, roots) is None)
    print(first_failure(back, roots) or "all hold")
"""


def run(place: Path, text: str, *args: str) -> str:
    path = os.pathsep.join([str(Path(torchdynamo.__file__).parents[1]), str(place), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", textwrap.dedent(text), *args]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=120, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.long
def test_another_process_reads_them(tmp_path: Path) -> None:
    model = tmp_path / "model.py"
    model.write_text(MODEL.format(scale=3, sign="+"))
    run(tmp_path, WRITE)
    assert run(tmp_path, READ, "4") == "all hold"
    assert "4" in run(tmp_path, READ, "5")
    assert "5" in run(tmp_path, READ, "5")
    model.write_text("# another line\n" + MODEL.format(scale=3, sign="+"))
    assert run(tmp_path, READ, "4") == "all hold"
    model.write_text(MODEL.format(scale=4, sign="+"))
    assert "SCALE" in run(tmp_path, READ, "4")
    model.write_text(MODEL.format(scale=3, sign="-"))
    assert run(tmp_path, READ, "4") == "unresolved helper"


def test_reading_imports_nothing_of_the_users() -> None:
    class Local:
        def method(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    local = Local()

    def fn(x: torch.Tensor) -> torch.Tensor:
        return local.method(x) * 2

    torchdynamo.reset()
    torchdynamo.compile(fn, backend="eager")(torch.ones(2))
    data = dumps(cache_entries(fn)[0].guards)
    assert b"Local" in data
    read: set[str] = set()

    class Reader(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            read.add(module.partition(".")[0])
            return super().find_class(module, name)

    Reader(io.BytesIO(data)).load()
    assert read <= {"torchdynamo", "builtins", "copyreg", "torch"}


def test_code_is_told_by_what_it_does() -> None:
    def made(text: str) -> Any:
        space: dict[str, Any] = {}
        exec(text, space)
        return space["f"].__code__

    same = hash_of(made("def f(x):\n    return x in {1, 2, 'a'}"))
    assert hash_of(made("\n\ndef f(x):\n\n    return x in {1, 2, 'a'}")) == same
    for other in ("return x in {1, 2, 'b'}", "return x in {1.0, 2, 'a'}", "return x not in {1, 2, 'a'}"):
        assert hash_of(made(f"def f(x):\n    {other}")) != same
    assert hash_of(made("def f(x):\n    return lambda: 1")) != hash_of(made("def f(x):\n    return lambda: 2"))


def test_another_version_is_refused() -> None:
    from torchdynamo.guards import stored

    data = dumps([])
    assert loads(data) == []
    before, stored.STAMP = stored.STAMP, (0, "", "")
    try:
        with pytest.raises(ValueError, match="written by"):
            loads(data)
    finally:
        stored.STAMP = before
