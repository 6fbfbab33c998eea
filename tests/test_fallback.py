"""Whatever fails inside, at whichever step: the user's call gives what eager gives, once, with one warning."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import torchdynamo
import torchdynamo.capture.frame
import torchdynamo.codegen.codegen
import torchdynamo.codegen.replay
import torchdynamo.guards.program
from torchdynamo import capture_retries, config, graph_compilation, pipeline, specialization, version_limit
from torchdynamo.core.signals import Assumption, Retry
from torchdynamo.core.source import Roots
from torchdynamo.errors import BackendError, FallbackWarning, InternalError, TorchDynamoError, Unsupported
from torchdynamo.graph.build import GraphBuilder
from torchdynamo.report.explain import collecting

COUNT = 0


def busy(x, log):
    """Every kind of side effect, and a break in the middle."""
    global COUNT
    COUNT += 1
    log.append(x.shape[0])
    noise = torch.rand(3)
    with torch.no_grad():
        y = x.mul_(2) + noise
        print("half way", COUNT)
        log.append("after")
    COUNT += 10
    return y * torch.rand(3) + len(log)


def whole(x, log):
    """The same in one graph."""
    global COUNT
    COUNT += 1
    log.append(x.shape[0])
    x.mul_(2)
    return x + torch.rand(3) + len(log)


def outcome(fn: Callable[..., Any], capsys: Any) -> tuple[Any, ...]:
    """All that one call does."""
    global COUNT
    COUNT = 0
    torch.manual_seed(3)
    x, log = torch.ones(3), ["first"]
    result = fn(x, log)
    return result.tolist(), x.tolist(), log, COUNT, torch.get_rng_state().sum().item(), capsys.readouterr().out


def state() -> tuple[Any, ...]:
    """What a capture changes for its own ends, or follows the program in changing."""
    grad = torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu")
    modes = torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack()
    return sys.getrecursionlimit(), *grad, torch.get_default_dtype(), *modes, torch.compiler.is_compiling()


class Fault:
    """Stands in for a step and raises; the first `passes` calls go through, and those when it has raised often enough.

    What a function calls that is left to Python may be compiled, and fail in turn, and is warned of for itself.
    """

    def __init__(
        self,
        step: Callable[..., Any],
        error: type[BaseException],
        passes: int = 0,
        after: bool = False,
        often: int = 99,
    ) -> None:
        self.step = step
        self.error = error
        self.passes = passes
        self.after = after
        self.often = often
        self.raised = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.passes > 0 or self.raised >= self.often:
            self.passes -= 1
            return self.step(*args, **kwargs)
        self.raised += 1
        if self.after:
            self.step(*args, **kwargs)
        raise self.error("injected")


# Where each step is looked up by whoever takes it.
STEPS = {
    "frame rules": (pipeline.frames, "skip_reason"),
    "worth capturing": (pipeline, "worth_capturing"),
    "cache limit": (version_limit, "entries_of"),
    "decode": (torchdynamo.capture.frame, "decode"),
    "capture": (capture_retries, "capture"),
    "graph builder": (specialization, "GraphBuilder"),
    "graph node": (GraphBuilder, "call"),
    "graph input": (GraphBuilder, "input"),
    "draft": (capture_retries.codegen, "draft"),
    "effects": (torchdynamo.codegen.replay, "replay"),
    "graph finish": (GraphBuilder, "finish"),
    "mutated inputs": (graph_compilation, "mutated_inputs"),
    "error handler": (graph_compilation, "on_error"),
    "backend call": (graph_compilation, "compile_graph"),
    "compiled graph": (graph_compilation._native, "CompiledGraph"),
    "code": (pipeline.codegen, "finish"),
    "assembler": (torchdynamo.codegen.codegen, "assemble"),
    "guards": (pipeline, "complete"),
    "alias guards": (pipeline, "alias_guards"),
    "lowering": (pipeline, "lower"),
    "guard program": (torchdynamo.guards.program._native, "GuardProgram"),
    "record": (pipeline, "CompiledEntry"),
    "report": (pipeline, "tell_compiled"),
    "entry": (pipeline._native, "Entry"),
}
ERRORS = [RuntimeError, MemoryError, RecursionError, AssertionError, KeyError]


def test_a_function_that_had_no_tensors_is_one_graph_where_it_must_be() -> None:
    def printing(x: Any) -> Any:
        print(end="")
        return x * 2

    torchdynamo.compile(printing, backend="eager")(3)
    whole = torchdynamo.compile(printing, backend="eager", fullgraph=True)
    assert whole(3) == 6
    with pytest.raises(Unsupported, match="print"):
        whole(torch.ones(2))


def test_a_function_that_had_no_tensors_is_compiled_once_it_has() -> None:
    def double(x: Any) -> Any:
        return x * 2

    compiled = torchdynamo.compile(double, backend="eager")
    assert [compiled(3) for _ in range(10)] == [6] * 10
    with collecting() as events:
        assert all(torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0)) for _ in range(10))
    assert sum(event.graph is not None for event in events) == 1


@contextmanager
def failing(step: str, error: type[BaseException] = RuntimeError, **when: Any) -> Any:
    """The step raises; a native module is stood in for, for it is everybody's."""
    owner, name = STEPS[step]
    fault = Fault(getattr(owner, name), error, **when)
    with pytest.MonkeyPatch.context() as patch:
        if owner is pipeline._native:
            users = {"guard program": torchdynamo.guards.program, "compiled graph": graph_compilation}
            user = users.get(step, pipeline)
            patch.setattr(user, "_native", SimpleNamespace(**{**vars(owner), name: fault}))
        elif isinstance(owner, type):
            patch.setattr(owner, name, lambda *args, **kwargs: fault(*args, **kwargs))
        else:
            patch.setattr(owner, name, fault)
        yield fault


def check(fn: Callable[..., Any], step: str, capsys: Any, **fault: Any) -> None:
    wanted = outcome(fn, capsys)
    before = state()
    compiled = torchdynamo.compile(fn, backend="eager")
    with failing(step, **fault) as injected, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        got = outcome(compiled, capsys)
        assert state() == before
        assert got == wanted
        again = outcome(compiled, capsys)
    assert again == wanted
    assert injected.raised, "the step was not taken"
    texts = [str(one.message) for one in caught if issubclass(one.category, FallbackWarning)]
    texts = [text for text in texts if __file__ in text or "graph" in text]  # not of libraries torch calls
    assert len(texts) == 1, texts
    assert "injected" in texts[0] and injected.error.__name__ in texts[0]
    assert outcome(compiled, capsys) == wanted


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("fn", [busy, whole])
def test_a_step_raises(fn, step, capsys):
    check(fn, step, capsys, often=1 if step == "frame rules" else 99)


@pytest.mark.parametrize("step", ["decode", "capture", "draft", "graph finish", "guards", "entry"])
def test_a_step_raises_when_its_work_is_done(step, capsys):
    check(busy, step, capsys, after=True)


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("step", ["capture", "graph node", "code", "lowering"])
def test_anything_that_is_raised(step, error, capsys):
    check(busy, step, capsys, error=error)


@pytest.mark.parametrize("step", ["capture", "backend call", "code", "guards", "lowering", "entry"])
def test_the_continuation_fails(step, capsys):
    """What came before the break has run compiled by then, and does not run again."""
    passes = 2 if step == "capture" else 1  # a frame with a break is captured twice
    check(busy, step, capsys, passes=passes)


@pytest.mark.parametrize("step", STEPS)
def test_whole_graph_mode_raises(step):
    log = ["first"]
    compiled = torchdynamo.compile(whole, backend="eager", fullgraph=True)
    before = state()
    with failing(step), pytest.raises(TorchDynamoError) as caught:
        compiled(torch.ones(3), log)
    assert state() == before
    assert log == ["first"], "the function has begun"
    assert "injected" in f"{caught.value} {caught.value.__cause__}"


@pytest.mark.filterwarnings("ignore::torchdynamo.errors.FallbackWarning")
def test_whole_graph_mode_raises_where_another_compiler_gave_up():
    with failing("capture"):
        torchdynamo.compile(whole, backend="eager")(torch.ones(3), [])
        compiled = torchdynamo.compile(whole, backend="eager", fullgraph=True)
        for _ in range(2):
            with pytest.raises(TorchDynamoError):
                compiled(torch.ones(3), [])


def test_faults_are_raised_where_they_are_not_suppressed():
    with config.patch(suppress_errors=False), failing("code"), pytest.raises(InternalError, match="injected") as caught:
        torchdynamo.compile(whole, backend="eager")(torch.ones(3), [])
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert "torchdynamo/" not in "".join(str(entry.path) for entry in caught.traceback)


@pytest.mark.parametrize("step", ["capture", "graph node", "graph input", "backend call", "code", "lowering", "entry"])
def test_interrupts_go_through(step, capsys):
    """Ctrl-C is the user's: it is raised from the call, and leaves nothing behind."""
    compiled = torchdynamo.compile(busy, backend="eager")
    before = state()
    with failing(step, KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        outcome(compiled, capsys)
    assert state() == before
    assert outcome(compiled, capsys) == outcome(busy, capsys)


def test_an_interrupt_inside_no_grad(capsys):
    """Capture has followed the program into `no_grad` by then."""
    compiled = torchdynamo.compile(busy, backend="eager")
    before = state()
    with failing("graph node", KeyboardInterrupt, passes=3), pytest.raises(KeyboardInterrupt):
        outcome(compiled, capsys)
    assert state() == before
    assert outcome(compiled, capsys) == outcome(busy, capsys)


def test_warnings_as_errors():
    """A user who made our warnings errors gets them from the call."""
    compiled = torchdynamo.compile(whole, backend="eager")
    with failing("code"), warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(FallbackWarning, match="injected"):
            compiled(torch.ones(3), [])


def test_capture_ends_if_no_try_succeeds(monkeypatch):
    """A frame whose captures are all asked for again runs in eager, with one warning."""
    tries = []

    def again(*args):
        tries.append(args)
        raise Retry(Assumption.CACHES)

    monkeypatch.setattr(capture_retries, "capture", again)
    monkeypatch.setattr(specialization.Specialization, "drop", lambda self, presumption: None)
    with pytest.warns(FallbackWarning, match="64 tries"):
        result = torchdynamo.compile(whole, backend="eager")(torch.ones(3), [])
    assert result.shape == (3,) and len(tries) == capture_retries.MOST_TRIES


def test_a_presumption_is_dropped_once():
    compiler = pipeline.compiler_for("eager")
    specialized = specialization.Specialization(compiler, Roots({}, {}, {}, {}), frozenset(), frozenset(), False, False)
    specialized.drop(Assumption.CACHES)
    with pytest.raises(AssertionError, match="dropped before"):
        specialized.drop(Assumption.CACHES)


# -- backends ----------------------------------------------------------------------------------------------------------
def raises(gm, example_inputs):
    raise RuntimeError("injected")


def raises_later(gm, example_inputs):
    def run(*args):
        raise RuntimeError("injected")

    return run


def gives_nonsense(gm, example_inputs):
    return "injected"


def runs_it_then_raises(gm, example_inputs):
    gm(*example_inputs)
    torch.rand(5)
    torch.set_grad_enabled(False)
    raise RuntimeError("injected")


@pytest.mark.parametrize("backend", [raises, raises_later, gives_nonsense, runs_it_then_raises])
@pytest.mark.parametrize("fn", [busy, whole])
def test_a_backend_fails(fn, backend, capsys):
    """One warning for each graph it fails on; both calls are eager's."""
    wanted, before = outcome(fn, capsys), state()
    compiled = torchdynamo.compile(fn, backend=backend)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert outcome(compiled, capsys) == wanted
        assert state() == before
        assert outcome(compiled, capsys) == wanted
    texts = [str(one.message) for one in caught if issubclass(one.category, FallbackWarning)]
    assert len(texts) == (2 if fn is busy else 1), texts
    assert all(backend.__name__ in text for text in texts)


@pytest.mark.parametrize("backend", [raises, gives_nonsense, runs_it_then_raises])
def test_a_backend_fails_in_whole_graph_mode(backend):
    x, log = torch.ones(3), []
    with pytest.raises(BackendError):
        torchdynamo.compile(whole, backend=backend, fullgraph=True)(x, log)
    assert x.tolist() == [1, 1, 1] and log == []


def test_a_backend_is_interrupted():
    def interrupted(gm, example_inputs):
        raise KeyboardInterrupt

    before = state()
    with pytest.raises(KeyboardInterrupt):
        torchdynamo.compile(whole, backend=interrupted)(torch.ones(3), [])
    assert state() == before
