"""Graphs with gradients, loaded in the process that has compiled them: what the captured graph is asked for."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from graphs import Tape, build

from torchdynamo.backends import artifacts
from torchdynamo.backends.artifacts import Artifact, BlobFile, NotStored
from torchdynamo.backends.registry import lookup


def wave(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    z = x.sin() * y
    return z, z.exp()


def leaves() -> list[torch.Tensor]:
    return [torch.linspace(-1, 1, 6).requires_grad_(), torch.linspace(0, 2, 6).requires_grad_()]


def compiled_graph(inner: Any = torch.sin) -> tuple[torch.fx.GraphModule, Any]:
    def body(tape: Tape, x: torch.fx.Node, y: torch.fx.Node) -> tuple[torch.fx.Node, ...]:
        z = tape(torch.mul, tape(inner, x), y)
        return z, tape(torch.exp, z)

    gm = build(body, *leaves())
    return gm, lookup("inductor")(gm, leaves())


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[torch.fx.GraphModule, dict[str, Any], Path]:
    gm, compiled = compiled_graph()
    torch.autograd.backward([each.sum() for each in compiled(*leaves())])
    artifact = artifacts.dump(compiled)
    assert isinstance(artifact, Artifact), artifact
    folder = tmp_path_factory.mktemp("blobs")
    for name, content in artifact.blobs.items():
        (folder / name).write_bytes(content)
    return gm, artifact.data, folder


def loaded(written: tuple[torch.fx.GraphModule, dict[str, Any], Path], known: bool = True) -> Any:
    gm, data, folder = written
    return artifacts.load(
        data, lambda name: BlobFile(str(folder / name), (folder / name).read_bytes()), (lambda: gm) if known else None
    )


def second_derivatives(run: Any) -> list[torch.Tensor]:
    x, y = leaves()
    first = torch.autograd.grad([each.sum() for each in run(x, y)], [x, y], create_graph=True)
    return list(torch.autograd.grad([each.square().sum() for each in first], [x, y]))


def test_second_derivatives_are_those_of_the_captured_graph(written: Any) -> None:
    for ours, eager in zip(second_derivatives(loaded(written)), second_derivatives(wave), strict=True):
        torch.testing.assert_close(ours, eager)


def chain(run: Any) -> Any:
    """Return a function that calls a graph on results of a call of it, which die."""
    return lambda x, y: run(*run(x, y))


def test_second_derivatives_through_tensors_that_have_died(written: Any) -> None:
    for ours, eager in zip(second_derivatives(chain(loaded(written))), second_derivatives(chain(wave)), strict=True):
        torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-4)


def test_second_derivatives_without_the_captured_graph_raise(written: Any) -> None:
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        second_derivatives(loaded(written, known=False))


def test_a_backward_that_fails_is_computed_in_eager(written: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run = loaded(written)
    x, y = leaves()
    results = run(x, y)

    def fails(args: list[Any]) -> Any:
        raise AssertionError("a kernel failed")

    node = results[0].grad_fn
    for cls in type(node)._forward_cls.__mro__:  # type: ignore[union-attr]
        if "compiled_bw" in vars(cls):
            monkeypatch.setattr(cls, "compiled_bw", None)
    monkeypatch.setattr("torchdynamo.backends.artifacts.aot.training.in_context", lambda run, args: fails(args))
    with pytest.warns(UserWarning, match="runs eagerly from now on"):
        found = torch.autograd.grad([each.sum() for each in results], [x, y])
    for ours, eager in zip(found, torch.autograd.grad([each.sum() for each in wave(x, y)], [x, y]), strict=True):
        torch.testing.assert_close(ours, eager)


def test_a_backward_under_other_settings_is_refused(written: Any) -> None:
    run = loaded(written, known=False)
    results = run(*leaves())
    torch.use_deterministic_algorithms(True)
    try:
        with pytest.raises(RuntimeError, match="use_deterministic_algorithms"):
            results[0].sum().backward()
    finally:
        torch.use_deterministic_algorithms(False)


def test_a_graph_is_written_when_its_backward_has_run() -> None:
    _, compiled = compiled_graph(torch.cos)
    results = compiled(*leaves())
    found = artifacts.dump(compiled)
    assert isinstance(found, NotStored)
    assert found.later
    told: list[str] = []
    assert artifacts.when_ready(compiled, lambda: told.append("it has run"))
    assert told == []
    torch.autograd.backward([each.sum() for each in results])
    assert told == ["it has run"]
    assert isinstance(artifacts.dump(compiled), Artifact)
    assert not artifacts.when_ready(compiled, lambda: told.append("never"))


def test_a_graph_is_freed_with_what_was_noted_on_it(written: Any) -> None:

    run = loaded(written)
    reference = weakref.ref(run)
    del run
    gc.collect()
    assert reference() is None
