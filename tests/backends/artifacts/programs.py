"""Programs whose graphs are written in one process and read in another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.nn import functional

F32 = torch.arange(12.0).view(3, 4) / 7 - 0.6


class Program(NamedTuple):
    """A function, the arguments of its calls, and what becomes of it.

    reason: part of the reason why its graph is not stored. equal: results are those of eager (random ones are not).
    """

    fn: Callable[..., Any]
    calls: tuple[tuple[Any, ...], ...]
    dynamic: bool | None = False
    reason: str = ""
    equal: bool = True
    train: bool = False


PROGRAMS: dict[str, Program] = {}


def program(*calls: tuple[Any, ...], **about: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(fn: Callable[..., Any]) -> Callable[..., Any]:
        PROGRAMS[fn.__name__] = Program(fn, calls, **about)
        return fn

    return add


def seeded(make: Callable[[], torch.nn.Module]) -> torch.nn.Module:
    torch.manual_seed(0)
    return make().eval()


LINEAR = seeded(lambda: torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.LayerNorm(8)))
CONV = seeded(
    lambda: torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.ReLU())
)
TABLE = torch.tensor([0.5, 1.5, 2.5, 3.5])


@program((F32,))
def pointwise(x: torch.Tensor) -> Any:
    return (x.sin() * 2 + x.exp()).softmax(-1)


@program((F32,), (torch.ones(5, 4),), (torch.ones(9, 4),), dynamic=True)
def sizes_that_vary(x: torch.Tensor) -> Any:
    return x.tanh().sum(0), x.shape[0] * 2, x.reshape(-1) + x.shape[0]


@program((F32,))
def several_results(x: torch.Tensor) -> Any:
    total = x.sum(1)
    return {"total": total, "parts": [x > 0, (x * 3).to(torch.int32), x.half(), x.double()], "same": total}


@program((F32,), (F32[:, :2],))
def layouts(x: torch.Tensor) -> Any:
    y = x + 1
    return y.t(), y[:, ::2], y.t().contiguous(), x.expand(2, *x.shape) * 2


@program((F32.clone(),))
def views_of_inputs(x: torch.Tensor) -> Any:
    return x.view(-1), x[1:], x.t(), x, x.view(torch.int32), x * 2


@program((F32.clone(),), dynamic=True)
def views_of_inputs_whose_sizes_vary(x: torch.Tensor) -> Any:
    return x.view(-1), x[1:], x + 1


@program((F32.clone(), torch.ones(4)))
def inputs_that_are_written(x: torch.Tensor, y: torch.Tensor) -> Any:
    x.mul_(2).add_(y)
    y[1:] = 0
    return x.sum()


@program((F32.clone(),))
def an_input_that_is_written_and_returned(x: torch.Tensor) -> Any:
    x += 1
    return x, x[0]


@program((F32.clone(),))
def an_input_with_other_sizes(x: torch.Tensor) -> Any:
    x.t_()
    return x * 2


@program((F32, 3, 0.5, True))
def numbers(x: torch.Tensor, n: int, f: float, flag: bool) -> Any:
    return x * n + f if flag else x


@program((F32, 3), (F32, 5), dynamic=True)
def numbers_that_vary(x: torch.Tensor, n: int) -> Any:
    return x * n, n + 1


@program((F32,))
def constants(x: torch.Tensor) -> Any:
    table = torch.tensor([[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0], [9.0, 1.0, 2.0, 3.0]])
    return x * table + torch.tensor(0.25), x @ torch.eye(4)


@program((F32,))
def a_tensor_of_the_program(x: torch.Tensor) -> Any:
    return x * TABLE


@program((F32,), equal=False)
def random_numbers(x: torch.Tensor) -> Any:
    return x + torch.rand(3, 4), torch.randn(4), torch.randint(0, 9, (5,))


@program((F32,))
def linear(x: torch.Tensor) -> Any:
    return LINEAR(x)


@program((torch.ones(2, 3, 6, 6),))
def convolution(x: torch.Tensor) -> Any:
    return CONV(x)


@program((torch.ones(1, 2, 5, 8) / 3,))
def attention(x: torch.Tensor) -> Any:
    return functional.scaled_dot_product_attention(x, x, x * 2, is_causal=True)


@program((F32,), (F32 * 2,))
def fallbacks(x: torch.Tensor) -> Any:
    return torch.linalg.svdvals(x), x.sort(-1), x.cumsum(0), x.topk(2)


@program((F32, torch.tensor([2, 0])), (F32, torch.tensor([2, 7])), (F32, torch.tensor([-1, -4])))
def indices(x: torch.Tensor, at: torch.Tensor) -> Any:
    return x[at] + 1


@program((torch.tensor([7, 9]), torch.tensor([2, 3])), (torch.tensor([7, 9]), torch.tensor([2, 0])))
def integer_division(x: torch.Tensor, y: torch.Tensor) -> Any:
    return x // y, x % y


@program((F32, F32))
def one_tensor_twice(x: torch.Tensor, y: torch.Tensor) -> Any:
    return x * y + x


@program((torch.zeros(0, 4),))
def nothing_in_it(x: torch.Tensor) -> Any:
    return x + 1, x.sum()


@program((torch.tensor(3.0),))
def no_dimensions(x: torch.Tensor) -> Any:
    return x * 2, x.item() + 1


@program((F32.to(torch.complex64),))
def complex_numbers(x: torch.Tensor) -> Any:
    return x * 2j, x.real, torch.view_as_real(x)


@program((F32.to(torch.bfloat16),))
def bfloat16(x: torch.Tensor) -> Any:
    return (x * 3).relu(), x @ x.t()


@program((F32,))
def modes(x: torch.Tensor) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return x @ x.t()


@program((F32, F32.clone()))
def expm1_and_atanh(x: torch.Tensor, y: torch.Tensor) -> Any:
    return torch.expm1(x.double() * 1e-12), torch.atanh(y / 3)


# -- with gradients ---------------------------------------------------------------------------------------------------
LEAF = F32.clone().requires_grad_()
OTHER = (F32 * 2).requires_grad_()
MLP = seeded(
    lambda: torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.LayerNorm(8), torch.nn.Linear(8, 2))
)


@program((LEAF,), train=True)
def a_gradient(x: torch.Tensor) -> Any:
    return (x.sin() * x.exp()).softmax(-1).square()


@program((LEAF, OTHER), train=True)
def results_of_other_inputs_each(x: torch.Tensor, y: torch.Tensor) -> Any:
    z = x * 1.5
    return z.sin(), (y * z).cos(), x > 0, y.detach() + 1


@program((F32,), train=True)
def a_network(x: torch.Tensor) -> Any:
    return MLP(x).square().mean()


@program((LEAF,), ((torch.ones(5, 4) / 3).requires_grad_(),), dynamic=True, train=True)
def gradients_whose_sizes_vary(x: torch.Tensor) -> Any:
    return x.tanh().exp().sum(0) * x.shape[0], x.sum(1)


@program((LEAF,), train=True)
def gradients_in_other_layouts(x: torch.Tensor) -> Any:
    y = x * 3
    return y.t() + 1, y.sum(0).expand(3, 4) * 2


@program((LEAF, torch.zeros(4)), train=True)
def a_buffer_that_is_written(x: torch.Tensor, buffer: torch.Tensor) -> Any:
    buffer.add_(x.detach().sum(0))
    return x * buffer


@program((LEAF, OTHER), train=True)
def an_input_without_influence(x: torch.Tensor, y: torch.Tensor) -> Any:
    return x * y.shape[0] * 2


@program((LEAF, torch.tensor([2, 0])), train=True)
def indices_with_gradients(x: torch.Tensor, at: torch.Tensor) -> Any:
    y = x * 2
    return y[at].sin(), functional.embedding(at, y)


@program((LEAF,), reason="views of inputs", train=True)
def views_with_gradients(x: torch.Tensor) -> Any:
    y = x * 2
    return y.view(-1), y


@program((LEAF,), train=True)
def modes_with_gradients(x: torch.Tensor) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x.t()
    with torch.no_grad():
        z = x * 2
    return y.float().sin(), z
