"""CPython's own tests under the hook, each held against the same test without: `make cpython`, or with names of tests.

`config.capture_everything` is on, so the tests, the library and unittest itself are captured like a user's model.
No test may fail that passes without the hook; nor may anything inside torchdynamo fail on the way.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import inspect
import io
import json
import os
import subprocess
import sys
import tempfile
import textwrap
import time
import traceback
import unittest
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from types import CodeType
from typing import Any

MODULES = """
test_generators test_contextlib test_exceptions test_scope test_unpack test_unpack_ex test_dict test_dictcomps
test_dictviews test_list test_listcomps test_set test_setcomps test_deque test_dataclasses test_enum test_functools
test_itertools test_super test_descr test_named_expressions test_patma test_with test_iter test_math test_operator
test_tuple test_range test_slice test_bool test_int test_float test_complex test_string test_collections
test_defaultdict test_ordered_dict test_userdict test_userlist test_heapq test_bisect test_copy test_weakref
test_property test_decorators test_raise test_exception_variations test_except_star test_exception_group
test_positional_only_arg test_keywordonlyarg test_extcall test_funcattrs test_grammar test_augassign
test_compare test_richcmp test_contains test_enumerate test_sort test_fstring test_format test_generator_stop
test_genexps test_global test_isinstance test_metaclass test_pow test_types test_typing test_random
test_statistics test_fractions test_string_literals test_unary test_binop test_index test_hash test_abc
test_baseexception test_builtin test_call test_bytes test_unicode test_yield_from test_long test_cmath
test_numeric_tower test_dynamic test_opcodes test_class test_genericclass test_genericalias
""".split()

# Tests that are not run: they change Python under all that runs in the process, torchdynamo and torch included.
LEFT_OUT = {
    "test_builtin.TestBreakpoint.test_envar_good_path_builtin": "puts another object in the place of `int`",
    "test_dynamic.RebindBuiltinsTests.test_modify_builtins_from_leaf_function": "puts another `len` in its place",
    "test_iter.TestCase.test_reduce_mutating_builtins_iter": "puts keys into `builtins` that do things when compared",
}

# What compiling shows, and which tests look at it.
SIZES = "counts all objects of the process, or asks how much memory one takes, which its history decides"
CODE = "asks whether a generator's code is its function's: it is what stands for that"
KNOWN = {
    "test_generators.__test__.syntax": CODE,
    "test_genexps.__test__.doctests": "compares the ids of tuples that are gone",
    "test_descr.ClassPropertiesAndMethods.test_slots": SIZES,
    "test_dict.DictTest.test_splittable_popitem": SIZES,
}
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SECONDS = int(os.environ.get("CPYTHON_SECONDS", "600"))  # for each module
WORKERS = int(os.environ.get("CPYTHON_WORKERS", os.cpu_count() or 1))


class Outcomes(unittest.TestResult):
    """Every test's fate, and the first line that says why."""

    def __init__(self) -> None:
        super().__init__()
        self.fates: dict[str, str] = {}
        self.texts: dict[str, str] = {}

    def startTest(self, test: Any) -> None:
        """Tests collect garbage by the thousand times: what was there before need not be walked each time."""
        gc.collect()
        gc.freeze()
        super().startTest(test)
        self.fates[test.id()] = "passed"

    def spoil(self, test: Any, fate: str, err: Any) -> None:
        if isinstance(err, tuple):
            self.texts[test.id()] = self._exc_info_to_string(err, test)
        self.fates[test.id()] = fate

    def addError(self, test: Any, err: Any) -> None:
        self.spoil(test, "failed", err)

    def addFailure(self, test: Any, err: Any) -> None:
        self.spoil(test, "failed", err)

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        if err is not None:
            self.spoil(test, "failed", err)

    def addSkip(self, test: Any, reason: str) -> None:
        self.spoil(test, "skipped", reason)

    def addUnexpectedSuccess(self, test: Any) -> None:
        self.fates[test.id()] = "failed"


def run_one(name: str, hooked: bool, only: str) -> dict[str, Any]:
    """One module's tests in this process."""
    module = importlib.import_module(f"test.{name}")
    suite = unittest.defaultTestLoader.loadTestsFromModule(module)
    wanted = (test for test in flat(suite) if only in test.id() and test.id().removeprefix("test.") not in LEFT_OUT)
    suite = unittest.TestSuite(wanted)
    outcomes = Outcomes()
    counts: dict[str, Any] = {}
    with under_hook(counts) if hooked else contextlib.nullcontext():
        suite.run(outcomes)
    return {"fates": outcomes.fates, "texts": outcomes.texts, **counts}


def flat(suite: Any) -> Any:
    for test in suite:
        yield from flat(test) if isinstance(test, unittest.TestSuite) else [test]


@contextlib.contextmanager
def under_hook(counts: dict[str, Any]) -> Any:
    """Everything is captured, and counted: code objects that came, and those that got an entry."""
    from torchdynamo import _native, config, pipeline, version_limit
    from torchdynamo.report.explain import collecting

    seen: dict[int, list[Any]] = {}  # by id: code objects compare by content; they are kept, so that no id returns
    faults: list[str] = []

    class Counting(pipeline.Compiler):
        def __call__(self, frame: Any, cache_entry: Any, frame_state: Any) -> Any:
            code = frame.f_code
            answer = super().__call__(frame, cache_entry, frame_state)
            if is_counted(code) and not pipeline.resume.is_continuation(code):
                known = seen.setdefault(id(code), [code, False])
                known[1] |= isinstance(answer, _native.Entry)
            return answer

    def give_up(code: CodeType, error: Exception) -> None:
        _native.skip_code(code, "internal error")
        if not isinstance(error, RecursionError):  # tests go to the end of the stack
            what = f"{type(error).__name__}: {error}"
            faults.append(f"{code.co_name} ({code.co_filename}:{code.co_firstlineno}): {what} {places(error)}")

    give, pipeline.give_up = pipeline.give_up, give_up
    tell, version_limit.report_limit = version_limit.report_limit, lambda *limit: None  # tests look at warnings
    compiler = Counting("eager")
    with config.patch(capture_everything=True), collecting() as events:
        before = _native.set_eval_frame(compiler)
        try:
            yield
        finally:
            _native.set_eval_frame(before)
            pipeline.give_up, version_limit.report_limit = give, tell
            reasons = Counter(event.reason for event in events if event.reason is not None)
            counts.update(seen=len(seen), captured=sum(got for _, got in seen.values()), faults=faults, reasons=reasons)


def is_counted(code: CodeType) -> bool:
    """Whether it is a function's: not the body of a module or a class, and nothing of ours."""
    ours = code.co_filename == __file__ or code.co_filename.startswith(os.path.join(ROOT, "torchdynamo"))
    return bool(code.co_flags & inspect.CO_OPTIMIZED) and not ours


def places(error: BaseException) -> str:
    """The innermost lines that an exception went through."""
    steps = traceback.extract_tb(error.__traceback__)[-6:]
    return " > ".join(f"{os.path.basename(step.filename)}:{step.lineno}" for step in steps)


def in_process(name: str, *more: str) -> dict[str, Any]:
    """The module's tests in a process and a folder of their own."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out.json")
        command = [sys.executable, "-W", "ignore", os.path.abspath(__file__), "--one", name, out, *more]
        try:
            paths = os.pathsep.join([ROOT, os.environ.get("PYTHONPATH", "")])
            env = {**os.environ, "PYTHONPATH": paths}
            done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return {"crash": f"not done after {SECONDS} s"}
        if not os.path.exists(out):
            return {"crash": (done.stderr.strip().splitlines() or [""])[-1] + f" (exit {done.returncode})"}
        with open(out) as file:
            return json.load(file)


def both(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Without the hook, and with it."""
    return in_process(name), in_process(name, "--hook")


def main(names: list[str]) -> int:
    total: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    worse: list[str] = []
    started = time.time()
    pool = ThreadPoolExecutor(WORKERS)
    for name, (plain, mine) in zip(names, pool.map(both, names), strict=True):
        if "crash" in plain:
            print(f"{name:28} does not run without the hook: {plain['crash']}")
            continue
        if "crash" in mine:
            worse.append(f"{name}: {mine['crash']}")
            print(f"{name:28} {mine['crash']}", flush=True)
            continue
        passed = [test for test, fate in plain["fates"].items() if fate == "passed"]
        lost = [test for test in passed if mine["fates"].get(test) != "passed"]
        known = [test for test in lost if test.removeprefix("test.") in KNOWN]
        lost = [test for test in lost if test not in known]
        better = [test for test in passed if test.removeprefix("test.") in KNOWN and test not in known]
        found = [f"{test}\n{mine['texts'].get(test, 'did not run')}" for test in lost]
        found += [f"fault: {fault}" for fault in mine["faults"]]
        total.update(
            passed=len(passed),
            kept=len(passed) - len(lost) - len(known),
            known=len(known),
            seen=mine["seen"],
            captured=mine["captured"],
        )
        total.update(faults=len(mine["faults"]))
        reasons.update(mine["reasons"])
        kept = len(passed) - len(lost) - len(known)
        print(
            f"{name:28} passed {kept} of the {len(passed)} that pass without the hook; "
            f"{len(known)} known to differ; captured {mine['captured']} of {mine['seen']} "
            f"functions; faults {len(mine['faults'])}",
            flush=True,
        )
        print(textwrap.indent("\n".join(found), "    "), end="\n" if found else "", flush=True)
        if better:
            print("    known to differ, and do not:", *better, flush=True)
        worse += found
    print("\ngraphs ended by", ", ".join(f"{reason} ({n})" for reason, n in reasons.most_common()))
    print(
        f"{total['kept']} of {total['passed']} tests pass as they do without the hook, "
        f"{total['known']} known ones do not; "
        f"{total['captured']} of {total['seen']} functions captured ({total['captured'] / max(1, total['seen']):.0%}); "
        f"{total['faults']} faults; {time.time() - started:.0f} s"
    )
    return 1 if worse else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        _, _, name, out, *more = sys.argv
        with contextlib.redirect_stdout(io.StringIO()):
            found = run_one(name, "--hook" in more, os.environ.get("CPYTHON_ONLY", ""))
        with open(out, "w") as file:
            json.dump(found, file)
    else:
        raise SystemExit(main(sys.argv[1:] or MODULES))
