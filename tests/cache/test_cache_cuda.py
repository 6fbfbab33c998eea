"""The store between two processes on a GPU."""

from __future__ import annotations

import pytest
import torch
from two_processes import Outcome, Program, twice

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
PROGRAMS = {
    "matmul": Program(
        """
        SETTINGS = {"backend": "inductor"}
        weight = torch.full((3, 3), 0.5, device="cuda")
        def f(x): return torch.relu(x @ weight) + 1
        def args(): return (torch.ones(3, 3, device="cuda"),)
        """
    ),
    "several_configurations": Program(
        """
        SETTINGS = {"backend": "inductor"}
        def f(x): return x * 2 + 1, x.amax(1), x.t().contiguous() - 3
        def args(): return (torch.arange(1 << 20, device="cuda").view(1024, 1024).float(),)
        """
    ),
    "writes_to_input": Program(
        """
        SETTINGS = {"backend": "inductor"}
        def f(x):
            x.add_(1)
            return x * 2
        def args(): return (torch.ones(3, device="cuda"),)
        """
    ),
    "unaligned": Program(
        """
        SETTINGS = {"backend": "inductor"}
        def f(x):
            x.mul_(2)
            return x + 1
        def args(): return (torch.arange(9.0, device="cuda")[1:],)
        """
    ),
    "gradients": Program(
        """
        SETTINGS = {"backend": "inductor"}
        weight = torch.ones(3, requires_grad=True, device="cuda")
        def f(x): return (x * weight * weight).sum()
        def args(): return (torch.ones(3, device="cuda"),)
        def after(result):
            weight.grad = None
            result.backward()
            return weight.grad
        """
    ),
    "blocks": Program(
        """
        SETTINGS = {"backend": "inductor"}
        class Block(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.one, self.two = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
                for each in self.parameters():
                    torch.nn.init.constant_(each, 0.25)
            def forward(self, x): return x + self.two(self.one(x).relu()).clamp(-1, 1)
        with torch.device("cuda"):
            layers = torch.nn.ModuleList(Block() for _ in range(8))
        def f(x):
            with torch.no_grad():
                for layer in layers:
                    x = layer(x)
            return x
        def args(): return (torch.ones(2, 8, device="cuda"),)
        """
    ),
    "operators_with_long_names": Program(
        """
        SETTINGS = {"backend": "inductor"}
        def f(x):
            y = (x.abs() + x.ceil() - x.floor()).clamp(-2, 2) * x.neg().relu() + x.round() * x.sign() - x.trunc()
            both = torch.logical_and(y.gt(0), x.lt(5)) | torch.logical_not(torch.logical_xor(x.ge(1), y.le(3)))
            both = torch.logical_or(both, torch.bitwise_and(x.ne(2), y.eq(1)))
            return torch.where(both, torch.maximum(x, y), torch.minimum(x, y).square()) + x.isnan() * x.isinf()
        def args(): return (torch.linspace(-4, 4, 33, device="cuda").reshape(3, 11),)
        """
    ),
    "as_eager": Program(
        """
        SETTINGS = {"backend": "aot_eager"}
        def f(x): return torch.nn.functional.dropout(x, 0.5, True).exp()
        def args(): return (torch.ones(64, device="cuda"),)
        """
    ),
}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Outcome], dict[str, Outcome]]:
    return twice(tmp_path_factory.mktemp("programs"), PROGRAMS)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_second_process_finds_what_was_compiled_for_a_gpu(
    name: str, both: tuple[dict[str, Outcome], dict[str, Outcome]]
) -> None:
    first, second = (outcomes[name] for outcomes in both)
    assert first.equal and second.equal
    assert first.refused == []
    assert (second.hits, second.compiled) == (1, 0), second.told
    assert second.imported == []
