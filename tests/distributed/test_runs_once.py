"""A graph that communicates runs once for each call, whatever fails and whoever wants to try it."""

import pytest
import torch
import torch.distributed as dist
from process_groups import alone

import torchdynamo
from torchdynamo.errors import BackendError, FallbackWarning

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="torch was built without torch.distributed")
X = torch.arange(4.0)
all_reduce, wait_tensor = torch.ops._c10d_functional.all_reduce, torch.ops._c10d_functional.wait_tensor


@pytest.fixture
def issued(tmp_path):
    with alone(tmp_path) as group:
        yield group._get_sequence_number_for_group


def reduced(x):
    return wait_tensor(all_reduce(x + 1, "sum", "0")) * 2


def failing(runs_first, calls):
    """Return a backend whose graphs raise in the call of this number, before or after they have run."""

    def backend(gm, example_inputs):
        count = 0

        def run(*args):
            nonlocal count
            count += 1
            if count == calls and not runs_first:
                raise RuntimeError("no kernel")
            result = gm.forward(*args)
            if count == calls:
                raise RuntimeError("no kernel")
            return result

        return run

    return backend


@pytest.mark.parametrize("calls", [1, 3])
def test_a_graph_that_fails_before_it_communicates_runs_eagerly(issued, calls):
    fn = torchdynamo.optimize(failing(False, calls))(reduced)
    for _ in range(calls - 1):
        fn(X)
    before = issued()
    with pytest.warns(FallbackWarning, match="ran eagerly"):
        assert fn(X).equal((X + 1) * 2)
    assert issued() - before == 1


@pytest.mark.parametrize("calls", [1, 3])
def test_a_graph_that_fails_after_it_communicated_is_an_error(issued, calls):
    fn = torchdynamo.optimize(failing(True, calls))(reduced)
    for _ in range(calls - 1):
        fn(X)
    before = issued()
    with pytest.raises(BackendError, match="communicated with other ranks already"):
        fn(X)
    assert issued() - before == 1


def test_an_error_of_the_program_does_not_run_the_frame_again(issued):
    @torchdynamo.optimize("eager")
    def looks_up(x):
        return torch.nn.functional.embedding(reduced(x).long(), x.reshape(2, 2))

    before = issued()
    with pytest.raises(IndexError):
        looks_up(X)
    assert issued() - before == 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "ts", "ensemble"])
@pytest.mark.parametrize("verify", [False, True, 2])
def test_nobody_tries_the_graph(issued, backend, verify):
    fn = torchdynamo.optimize(backend)(reduced)
    before = issued()
    with torchdynamo.config.patch(verify_correctness=verify):
        for _ in range(4):
            assert fn(X).equal((X + 1) * 2)
    assert issued() - before == 4


def test_padding_leaves_the_graph_alone(issued):
    fn = torchdynamo.compile(reduced, backend="ts", options={"buckets": {"x": {0: (4, 8)}}})
    before = issued()
    for length in (3, 5, 6, 3):
        fn(torch.ones(length))
    assert issued() - before == 4
