"""Numbers that NumPy draws in a whole graph, from generators that the frame has not seeded: other ones in each call."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.checkpoint
from torch import Tensor

import torchdynamo

STATE, GENERATOR = np.random.RandomState(5), np.random.default_rng(5)


def numbers(x: Tensor) -> Any:
    drawn = np.random.rand(), np.random.randint(2, 9), np.random.uniform(1, 2), np.random.normal(scale=3.0)
    return x * drawn[0] + drawn[1], drawn


def masked(x: Tensor) -> Any:
    """Mask a few columns, as augmentation of spectra does."""
    x = x.clone()
    for _ in range(2):
        width = np.random.randint(0, 3)
        start = np.random.randint(0, x.shape[1] - width)
        x[:, start : start + width] = 0
    return x * 2


def rounded(x: Tensor) -> Any:
    width = int(np.random.uniform(0, 3))
    return x + width, width, int(np.random.randint(7, dtype=np.int32)) + 1


def arrays(x: Tensor) -> Any:
    noise = torch.from_numpy(np.random.randn(*x.shape).astype(np.float32))
    return x + noise, torch.from_numpy(np.random.permutation(8)), np.random.choice(5, size=2, replace=False)


def several(x: Tensor) -> Any:
    y = x * STATE.uniform(1, 2) + GENERATOR.random()
    return y, STATE.randint(4), np.random.rand(), GENERATOR.integers(5), STATE.rand(2, 2), GENERATOR.normal(size=3)


def seeded_then_drawn(x: Tensor) -> Any:
    before = np.random.rand()
    np.random.seed(3)
    return x * before + np.random.rand(), np.random.randint(9)


def of_a_drawn_seed(x: Tensor) -> Any:
    """Seed torch's generator by NumPy's, as solvers of stochastic equations do."""
    entropy = np.random.randint(0, 2**31 - 1)
    first, second = np.random.SeedSequence(entropy=entropy, pool_size=8).generate_state(2)
    child = np.random.SeedSequence(entropy, spawn_key=(1, 2)).generate_state(3)
    noise = [torch.randn(8, generator=torch.Generator().manual_seed(int(seed))) for seed in (first, second, child[2])]
    return x + noise[0] * noise[1] - noise[2]


def of_a_known_seed(x: Tensor) -> Any:
    state = np.random.SeedSequence(5, pool_size=8).generate_state(2, np.uint32)
    return x * int(state[0]), state.tolist()


def unused(x: Tensor) -> Any:
    np.random.rand()
    return x + 1


def checked(x: Tensor) -> Any:
    """Draw, and rest on a branch that only raises."""
    low = np.random.randint(0, 4)
    if (x < 0).any():
        raise ValueError("negative")
    return x + low + np.random.rand()


PROGRAMS = [
    *(numbers, masked, rounded, arrays, several, seeded_then_drawn, of_a_drawn_seed, of_a_known_seed, unused, checked)
]


def states() -> str:
    """Return where each generator's next number comes from."""
    return str([np.random.get_state(legacy=False), STATE.get_state(legacy=False), GENERATOR.bit_generator.state])


def runs(run: Any, given: tuple[float, ...] = (1, 1, 1, 1)) -> list[Any]:
    """Return what calls with these numbers give or raise, each with the states that it leaves."""
    np.random.seed(0)
    STATE.seed(5)
    GENERATOR.bit_generator.state = np.random.default_rng(5).bit_generator.state
    found = []
    for number in given:
        try:
            result = run(torch.full((2, 8), float(number)))
        except Exception as error:
            result = error
        found.append((repr(result), states()))
    return found


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_whole(program: Any) -> None:
    assert runs(torchdynamo.compile(program, backend="eager", fullgraph=True)) == runs(program)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_in_pieces(program: Any) -> None:
    assert runs(torchdynamo.compile(program, backend="eager")) == runs(program)


@pytest.mark.parametrize("program", [arrays, masked, of_a_drawn_seed], ids=lambda program: program.__name__)
def test_a_backend_gets_what_lies_between(program: Any) -> None:
    given: list[int] = []

    def backend(gm: torch.fx.GraphModule, example_inputs: Any) -> Any:
        given.extend(len(str(node.target)) for node in gm.graph.nodes if node.op.startswith("call"))
        assert all(isinstance(each, Tensor) for each in example_inputs)
        return gm.forward

    assert runs(torchdynamo.compile(program, backend=backend, fullgraph=True)) == runs(program)
    assert given


def test_sizes_that_vary_end_the_graph_before_a_draw() -> None:
    graphs: list[Any] = []

    def backend(gm: torch.fx.GraphModule, example_inputs: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    def program(x: Tensor, y: Tensor) -> Any:
        first = np.random.rand()
        return x.sin() * first + y.sum() * y.shape[0]

    compiled = torchdynamo.compile(program, backend=backend, dynamic=True)
    for size in (3, 4, 5):
        np.random.seed(size)
        wanted = program(torch.ones(2), torch.ones(size))
        np.random.seed(size)
        assert torch.equal(compiled(torch.ones(2), torch.ones(size)), wanted)
    assert graphs


def test_gradients_pass_what_runs_as_it_is() -> None:
    def program(x: Tensor) -> Tensor:
        noise = torch.from_numpy(np.random.rand(2, 8)).float()
        return (x.sin() * np.random.randint(1, 9) * noise).cos() + x

    grads = []
    for run in (program, torchdynamo.compile(program, backend="aot_eager", fullgraph=True)):
        np.random.seed(0)
        x = torch.full((2, 8), 0.3, requires_grad=True)
        run(x).sum().backward()
        grads.append(x.grad)
    assert torch.equal(*grads)  # type: ignore[misc]


def test_a_check_that_fails_draws_as_eager() -> None:
    given = (1, -1, 1, -1)
    assert runs(torchdynamo.compile(checked, backend="eager", fullgraph=True), given) == runs(checked, given)


def test_bounds_that_are_none_raise_as_in_eager() -> None:
    def program(x: Tensor) -> Any:
        return x + np.random.randint(int(np.random.uniform(0, 0.5)))

    assert runs(torchdynamo.compile(program, backend="eager", fullgraph=True)) == runs(program)


def test_a_branch_on_what_is_drawn_is_not_burnt_in() -> None:
    def program(x: Tensor) -> Any:
        return x + 1 if np.random.rand() < 0.5 else x - 1

    with pytest.raises(torchdynamo.exc.Unsupported):
        torchdynamo.compile(program, backend="eager", fullgraph=True)(torch.ones(2))
    assert runs(torchdynamo.compile(program, backend="eager"), (1,) * 9) == runs(program, (1,) * 9)


def of_numpy(x: Tensor) -> Tensor:
    return (x * np.random.rand()).sin()


def of_a_generator(x: Tensor) -> Tensor:
    return (x * torch.randn(8, generator=torch.Generator().manual_seed(3))).sin()


def of_an_array(x: Tensor) -> Tensor:
    return (x * torch.from_numpy(np.sort(x.detach().numpy()))).sin()


@pytest.mark.parametrize("body", [of_numpy, of_a_generator, of_an_array], ids=lambda body: body.__name__)
def test_checkpoints_compute_again_what_eager_does(body: Any) -> None:
    def program(x: Tensor) -> Tensor:
        return torch.utils.checkpoint.checkpoint(body, x * 2, use_reentrant=False).sum()

    found = []
    for run in (program, torchdynamo.compile(program, backend="aot_eager")):
        np.random.seed(0)
        x = torch.full((2, 8), 0.3, requires_grad=True)
        for _ in range(2):
            run(x).backward()
        found.append((repr(x.grad), states()))
    assert found[0] == found[1]


class Plain:
    pass


def test_weak_references_of_what_the_frame_made() -> None:
    def none(x: Tensor) -> Any:
        return x + 1, Plain().__weakref__

    def one(x: Tensor) -> Any:
        made = Plain()
        kept = weakref.ref(made)
        return x + 1, made.__weakref__ is kept

    for program in (none, one):
        assert repr(torchdynamo.compile(program, backend="eager")(torch.ones(2))) == repr(program(torch.ones(2)))
    assert torchdynamo.compile(none, backend="eager", fullgraph=True)(torch.ones(2))[1] is None


BITS = np.random.MT19937(5)
ONE, OTHER, THIRD = np.random.RandomState(BITS), np.random.RandomState(BITS), np.random.Generator(BITS)


def drawn_and_seeded(x: Tensor) -> Any:
    a = ONE.rand()
    OTHER.seed(3)
    return x * a, ONE.rand(), OTHER.rand()


def seeded_and_drawn(x: Tensor) -> Any:
    OTHER.seed(3)
    return x * ONE.rand(), OTHER.rand(), THIRD.random()


@pytest.mark.parametrize("fn", [drawn_and_seeded, seeded_and_drawn])
def test_generators_that_share_their_numbers(fn: Any) -> None:
    found = []
    for each in (fn, torchdynamo.compile(fn, backend="eager")):
        ONE.seed(7)
        found.append([[str(part) for part in each(torch.ones(1))] for _ in range(3)] + [ONE.rand()])
    assert found[0] == found[1]


class OfPython(np.random.Generator):
    """A subclass, in which capture must make no object."""


class Initialized(np.random.RandomState):
    made: list[int] = []

    def __init__(self, seed: int) -> None:
        self.made.append(seed)
        super().__init__(seed)


def from_subclasses(x: Tensor, bits: Any) -> Any:
    return x * OWN[0].normal() + OWN[1].rand()


def state_afterwards(x: Tensor, bits: Any) -> Any:
    before = GENERATOR.bit_generator.state
    first, second = GENERATOR.random(), STATE.rand()
    now = GENERATOR.bit_generator.state["state"]["state"], STATE._bit_generator.state["state"]["pos"]
    return x * first + second, before, now


def state_of_shared_bits(x: Tensor, bits: Any) -> Any:
    first, other = np.random.Generator(bits), np.random.Generator(bits)
    drawn = GIVEN[0].random()
    return x * drawn, GIVEN[1].bit_generator.state["state"], first.random(), other.random()


OWN: list[Any] = []
GIVEN: list[Any] = []


@pytest.mark.parametrize("program", [from_subclasses, state_afterwards, state_of_shared_bits])
def test_what_depends_on_draws_of_the_graph_comes_after_it(program: Any) -> None:
    def run(fn: Any) -> str:
        STATE.seed(5)
        GENERATOR.bit_generator.state = np.random.default_rng(5).bit_generator.state
        bits = np.random.PCG64(3)
        OWN[:] = OfPython(np.random.PCG64(1)), Initialized(1)
        GIVEN[:] = np.random.Generator(bits), np.random.Generator(bits)
        Initialized.made.clear()
        return repr(([fn(torch.ones(2), bits) for _ in range(3)], Initialized.made))

    assert run(torchdynamo.compile(program, backend="eager")) == run(program)
