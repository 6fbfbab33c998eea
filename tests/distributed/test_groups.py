"""Ranks, sizes and names of process groups are constants of the graph, guarded by which group it is."""

import pytest
import torch
import torch.distributed as dist
from counting import Counting
from process_groups import among

import torchdynamo

functional = pytest.importorskip("torch.distributed._functional_collectives")
device_mesh = pytest.importorskip("torch.distributed.device_mesh")

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="torch was built without torch.distributed")
X = torch.ones(3)


def whole(fn):
    return torchdynamo.optimize("eager", nopython=True)(fn)


@pytest.mark.parametrize(
    ("ask", "answer"),
    [
        (lambda group: dist.get_rank(), 5),
        (lambda group: dist.get_rank(group), 1),
        (lambda group: dist.get_world_size(), 8),
        (lambda group: dist.get_world_size(group), 3),
        (lambda group: dist.get_world_size(dist.group.WORLD), 8),
        (lambda group: group.rank() + group.size(), 4),
        (lambda group: sum(dist.get_process_group_ranks(group)), 14),
        (lambda group: len(dist.get_process_group_ranks(None)), 8),
        (lambda group: dist.get_global_rank(group, 2), 6),
        (lambda group: dist.get_group_rank(group, 6), 2),
        (lambda group: int(dist.is_initialized()), 1),
        (lambda group: int(dist.get_backend() == "fake") + len(dist.get_backend(group).upper()), 5),
        (lambda group: int(group.group_name == NAMES[-1]), 1),
        (lambda group: int(group is dist.group.WORLD), 0),
        (lambda group: [7, 9][group == dist.group.WORLD], 7),
    ],
)
def test_what_groups_say_is_a_constant(ask, answer):
    with among(5, 8):
        group = dist.new_group([3, 5, 6])
        NAMES.append(group.group_name)
        assert whole(lambda x: x * ask(group))(X).equal(X * answer)


NAMES = []


def test_a_rank_that_is_no_member():
    with among(0, 8):
        group = dist.new_group([3, 5])
        assert whole(lambda x: x * dist.get_rank(group) * dist.get_world_size(group))(X).equal(X)


def test_a_new_world_is_another_one():
    counting = Counting()
    fn = torchdynamo.optimize(counting)(lambda x: x * dist.get_world_size() + dist.get_rank())
    for rank, size in ((1, 4), (2, 8), (3, 4)):
        with among(rank, size):
            for _ in range(2):
                assert fn(X).equal(X * size + rank)
    assert len(counting.graphs) == 3
    with pytest.raises(ValueError, match="has not been initialized"):
        fn(X)


def test_whether_there_is_a_world():
    fn = whole(lambda x: x * dist.get_world_size() if dist.is_initialized() else -x)
    assert fn(X).equal(-X)
    with among(0, 4):
        assert fn(X).equal(X * 4)
    assert fn(X).equal(-X)


def test_groups_that_are_passed_in():
    counting = Counting()
    fn = torchdynamo.optimize(counting)(lambda x, group: x * dist.get_world_size(group) + dist.get_rank(group))
    with among(2, 8):
        groups = [dist.new_group([2, 3]), dist.new_group([0, 1, 2]), None]
        for _ in range(2):
            for group, size, rank in zip(groups, (2, 3, 8), (0, 2, 2), strict=True):
                assert fn(X, group).equal(X * size + rank)
    assert len(counting.graphs) == 3


def test_a_destroyed_group():
    fn = torchdynamo.optimize("eager")(lambda x, group: x * len(dist.get_process_group_ranks(group)))
    with among(1, 4):
        group = dist.new_group([1, 2])
        assert fn(X, group).equal(X * 2)
        dist.destroy_process_group(group)
        with pytest.raises(KeyError):
            fn(X, group)


def gathers_over(x, name):
    return functional.all_gather_tensor(x, 0, name) * 2


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_groups_by_name():
    counting = Counting()
    fn = torchdynamo.optimize(counting, nopython=True)(gathers_over)
    with among(2, 8):
        for size in (2, 3, 2):
            group = dist.new_group(list(range(2, 2 + size)))
            for _ in range(2):
                assert fn(X, group.group_name).shape == (3 * size,)
    assert len(counting.graphs) == 3


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_name_that_another_group_gets():
    counting = Counting()
    fn = torchdynamo.optimize(counting)(lambda x: gathers_over(x, "0"))
    for size in (4, 8):
        with among(0, size):
            for _ in range(2):
                assert fn(X).shape == (3 * size,)
    assert len(counting.graphs) == 2
    with pytest.raises(RuntimeError, match="Could not resolve the process group"):
        fn(X)


def test_meshes():
    with among(5, 8):
        mesh = device_mesh.init_device_mesh("cpu", (4, 2), mesh_dim_names=("data", "tensor"))

        def program(x):
            facts = mesh.size() + mesh.ndim + mesh.get_local_rank("data") + mesh.get_rank()
            return functional.all_reduce(x, "sum", (mesh, 1)) * facts * mesh.get_group("tensor").size()

        assert whole(program)(X).equal(X * (8 + 2 + 2 + 5) * 2)
