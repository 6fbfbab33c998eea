"""Synchronous collectives are nodes of the graph, and do to tensors what they do in eager."""

import warnings

import pytest
import torch
import torch.distributed as dist
from counting import Counting
from process_groups import alone, among

import torchdynamo

pytestmark = [
    pytest.mark.skipif(not dist.is_available(), reason="torch was built without torch.distributed"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
ISSUING = {"all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor", "all_to_all_single"}


@pytest.fixture
def issued(tmp_path):
    with alone(tmp_path) as group:
        yield group._get_sequence_number_for_group


def reduces(x):
    y = x + 1
    result = dist.all_reduce(y)
    return y * 2, result


def reduces_an_input(x):
    dist.all_reduce(x, op=dist.ReduceOp.MAX, group=dist.group.WORLD)
    return x * 2


def reduces_a_view(x):
    y = x * 2
    dist.all_reduce(y.view(-1, 2)[1])
    return y


def gathers(x):
    flat, rows = x.new_empty(x.numel() * dist.get_world_size()), x.new_empty(2 * dist.get_world_size(), x.numel())
    dist.all_gather_into_tensor(flat, x * 3)
    dist.all_gather_into_tensor(rows, x.repeat(2, 1))
    return flat, rows


def gathers_a_list(x):
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x * 2)
    return parts


def scatters(x):
    mine = torch.empty_like(x)
    dist.reduce_scatter_tensor(mine, x.repeat(dist.get_world_size()) * 2, op=dist.ReduceOp.SUM)
    return mine


def exchanges(x):
    everything = x.repeat(dist.get_world_size())
    got, parts = torch.empty_like(everything), torch.empty_like(everything)
    dist.all_to_all_single(got, everything)
    splits = [x.shape[0]] * dist.get_world_size()
    dist.all_to_all_single(parts, everything * 2, splits, splits)
    return got, parts


def several(x):
    y = x * 2
    dist.all_reduce(y)
    z = y + x
    dist.all_reduce(z, op=dist.ReduceOp.MIN)
    return y.sum() + z


PROGRAMS = [reduces, reduces_an_input, reduces_a_view, gathers, gathers_a_list, scatters, exchanges, several]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_results_are_those_of_eager(issued, program, backend):
    compiled = torchdynamo.optimize(backend, nopython=True)(program)
    for length in (4, 6, 8, 4):
        x, same = torch.arange(float(length)), torch.arange(float(length))
        began = issued()
        expected = program(same)
        between = issued()
        torch.testing.assert_close(compiled(x), expected, rtol=0, atol=0)
        torch.testing.assert_close(x, same, rtol=0, atol=0)
        assert issued() - between == between - began


@pytest.mark.parametrize("program", PROGRAMS)
def test_there_is_one_graph_whatever_the_world(program):
    with among(3, 8):
        counting = Counting()
        torchdynamo.optimize(counting, nopython=True)(program)(torch.ones(4))
        (gm,) = counting.graphs
        names = {str(node.target).rpartition(".")[2] for node in gm.graph.nodes if "_c10d" in str(node.target)}
        assert "wait_tensor" in names
        assert names & ISSUING


def functional_reduce(x):
    from torch.distributed import _functional_collectives as functional

    return functional.wait_tensor(functional.all_reduce(x + 1, "sum", dist.group.WORLD)) * 2


def functional_gather(x):
    from torch.distributed import _functional_collectives as functional

    return functional.all_gather_tensor(x + 1, 0, dist.group.WORLD) * 2


def functional_scatter(x):
    from torch.distributed import _functional_collectives as functional

    return functional.reduce_scatter_tensor(x + 1, "sum", 0, dist.group.WORLD) * 2


@pytest.mark.parametrize("program", [functional_reduce, functional_gather, functional_scatter])
def test_functional_collectives(issued, program):
    compiled = torchdynamo.optimize("aot_eager", nopython=True)(program)
    x = torch.arange(4.0)
    torch.testing.assert_close(compiled(x), (x + 1) * 2)


def waits_later(x):
    y = x + 1
    work = dist.all_reduce(y, async_op=True)
    z = x * 3
    work.wait()
    return y + z


def premultiplies(x):
    y = x.clone()
    try:
        dist.all_reduce(y, op=dist._make_nccl_premul_sum(2.0))
    except (RuntimeError, ValueError):  # gloo has none
        y = y - 1
    return y


def sends_objects(x):
    objects = [None]
    dist.all_gather_object(objects, {"a": 1})
    return x * len(objects[0])


def reduces_columns(x):
    y = (x.repeat(2, 1) * 2).t()
    dist.all_reduce(y)
    return y + 1


def reduces_complex(x):
    y = torch.complex(x, x + 1)
    dist.all_reduce(y)
    return torch.view_as_real(y)


def with_wrong_sizes(x):
    try:
        dist.all_gather_into_tensor(x.new_empty(x.numel() + 1), x)
    except (RuntimeError, ValueError):
        return x * 2


@pytest.mark.parametrize(
    "program", [waits_later, premultiplies, sends_objects, reduces_columns, reduces_complex, with_wrong_sizes]
)
def test_what_ends_the_graph(issued, program):
    counting = Counting()
    x = torch.arange(4.0)
    torch.testing.assert_close(torchdynamo.optimize(counting)(program)(x), program(x))
    targets = [str(node.target) for gm in counting.graphs for node in gm.graph.nodes]
    assert not [each for each in targets if "_c10d" in each]


def test_collectives_that_are_issued_together(issued):
    def together(x):
        y, z = x + 1, x + 2
        with dist._coalescing_manager():
            dist.all_reduce(y)
            dist.all_reduce(z)
        return y * z

    x = torch.arange(4.0)
    assert torchdynamo.optimize("eager")(together)(x).equal((x + 1) * (x + 2))


def test_a_rank_that_is_no_member_is_warned():
    with among(0, 8):
        group = dist.new_group([1, 2])

        def program(x):
            dist.all_reduce(x, group=group)
            return x + 1

        with pytest.warns(UserWarning, match="doesn't belong to|not in|does not belong"):
            torchdynamo.optimize("eager")(program)(torch.ones(3))


# -- gradients --------------------------------------------------------------------------------------------------------
def reduced_after_it_was_saved(x, w):
    y = x * 3
    z = y * w
    dist.all_reduce(y)
    return z


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_tensor_that_autograd_has_saved_ends_the_graph(issued, backend):
    counting = Counting(backend)
    w, same = (torch.ones(4, requires_grad=True) for _ in range(2))
    x = torch.arange(4.0)
    torchdynamo.optimize(counting)(reduced_after_it_was_saved)(x, w).sum().backward()
    reduced_after_it_was_saved(x, same).sum().backward()
    assert w.grad.equal(same.grad)
    assert not [node for node in counting.graphs[0].graph.nodes if "_c10d" in str(node.target)]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_tensor_that_requires_gradients_ends_the_graph(issued, backend):
    def program(x):
        y = x * 2
        dist.all_reduce(y)
        return y.sum()

    found = []
    for fn in (program, torchdynamo.optimize(backend)(program)):
        x = torch.ones(3, requires_grad=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # autograd says that it does not follow the collective
            result = fn(x)
            result.backward()
        found.append((result.detach(), x.grad))
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(
    "gather", [lambda x, y: dist.all_gather([x], y), dist.all_gather_into_tensor], ids=["list", "one"]
)
def test_autograd_notices_an_input_that_is_gathered_into(issued, backend, gather):
    def program(x, y):
        gather(x, y)

    w, x = torch.ones(2, requires_grad=True), torch.ones(2)
    loss = (w * x).sum()
    torchdynamo.optimize(backend, nopython=True)(program)(x, torch.full((2,), 7.0))
    assert x.equal(torch.full((2,), 7.0))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_autograd_does_not_notice_an_input_that_is_reduced(issued, backend):
    def program(x, y):
        y.add_(1)
        dist.all_reduce(x)
        return x + y

    x, y, w = torch.ones(3), torch.ones(3), torch.ones(3, requires_grad=True)
    product = x * w
    torchdynamo.optimize(backend, nopython=True)(program)(x, y)
    assert (x._version, y._version) == (0, 1)
    product.sum().backward()
    assert w.grad.equal(torch.ones(3))


def test_gradients_are_reduced_in_the_graph(issued):
    def averaged(parameters):
        for each in parameters:
            dist.all_reduce(each.grad)
            each.grad /= dist.get_world_size()
        return parameters[0].grad.sum()

    layer = torch.nn.Linear(3, 2)
    layer(torch.ones(4, 3)).sum().backward()
    before = [each.grad.clone() for each in layer.parameters()]
    torchdynamo.optimize("aot_eager", nopython=True)(averaged)(list(layer.parameters()))
    assert all(each.grad.equal(old) for each, old in zip(layer.parameters(), before, strict=True))
    assert issued() == 2


def test_gradients_pass_what_was_reduced_without_them(issued):
    def program(x, w):
        scale = x.detach() * 2
        dist.all_reduce(scale)
        return (scale * w).sum()

    found = []
    for fn in (program, torchdynamo.optimize("aot_eager", nopython=True)(program)):
        w = torch.ones(3, requires_grad=True)
        fn(torch.arange(3.0), w).backward()
        found.append(w.grad)
    assert found[0].equal(found[1])


def test_a_check_that_fails_issues_nothing(issued):
    @torchdynamo.optimize("aot_eager")
    def checked(x):
        if x.sum() < 0:
            raise ValueError("negative")
        y = x + 1
        dist.all_reduce(y)
        return y

    assert checked(torch.ones(3)).equal(torch.full((3,), 2.0))
    before = issued()
    with pytest.raises(ValueError, match="negative"):
        checked(-torch.ones(3))
    assert issued() == before
