"""Views: their base changes under them, they share memory or no longer do, or become views of something else."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from mutating import Mutation, one, x
from torch import nn

Tensors = tuple[Any, ...]


def turning(fn: Callable[..., Any], args: Callable[[bool], Tensors], seen: bool = True, back: bool = False) -> Mutation:
    """The arguments are made one way, and after the change the other."""
    turned = [back]
    return Mutation(fn, lambda: args(turned[-1]), lambda stack: turned.append(not back), seen)


def count(n: int = 8) -> torch.Tensor:
    return torch.arange(float(n))


def leaf(n: int = 4) -> torch.Tensor:
    return torch.arange(1.0, n + 1).requires_grad_()


def view_of_base(turned: bool) -> Tensors:
    """A view whose base requires a gradient from after it was made, or not at all."""
    base = count(4)
    view = base.view(2, 2)
    if turned:
        base.requires_grad_()
    return (view,)


ABOUT_A_VIEW: dict[str, Callable[[torch.Tensor], Any]] = {
    "requires_grad": lambda v: v * (2 if v.requires_grad else 3),
    "is_leaf": lambda v: v * (2 if v.is_leaf else 3),
    "grad_fn": lambda v: v * (2 if v.grad_fn is None else 3),
    "result": lambda v: (v * 2).exp(),
    "write": lambda v: v.mul_(2) + 1,
}


def base_begins_to_require_grad(asked: str) -> Mutation:
    return turning(ABOUT_A_VIEW[asked], view_of_base)


def base_ceases_to_require_grad(asked: str) -> Mutation:
    return turning(ABOUT_A_VIEW[asked], view_of_base, back=True)


def base_of_an_attribute_begins_to_require_grad() -> Mutation:
    class Holder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base = torch.ones(4)
            self.register_buffer("view", self.base.view(2, 2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.view * (2 if self.view.requires_grad else 3)

    holder = Holder()
    return Mutation(holder, one, lambda stack: holder.base.requires_grad_())


def base_of_a_view_of_a_view_begins_to_require_grad() -> Mutation:
    return turning(ABOUT_A_VIEW["requires_grad"], lambda turned: (view_of_base(turned)[0][0],))


def leaf_where_a_result_was() -> Mutation:
    return turning(ABOUT_A_VIEW["is_leaf"], lambda turned: (leaf() if turned else leaf() * 1,))


def leaf_written_where_a_result_was() -> Mutation:
    return turning(ABOUT_A_VIEW["write"], lambda turned: (leaf() if turned else leaf() * 1,))


def view_where_there_was_none() -> Mutation:
    return turning(lambda v: v * (2 if v._is_view() else 3), lambda turned: (count()[:] if turned else count(),))


def offset() -> Mutation:
    return turning(lambda v: v + v.storage_offset(), lambda turned: (count()[2:6] if turned else count()[:4],))


def offset_of_a_part() -> Mutation:
    return turning(lambda v: v[1:] + v[1:].storage_offset(), lambda turned: (count()[2:6] if turned else count()[:4],))


def offset_under_as_strided() -> Mutation:
    def fn(v: torch.Tensor) -> Any:
        return v.as_strided((2,), (1,), 1) + 1, torch.as_strided(v, (2,), (1,)) * 2

    return turning(fn, lambda turned: (count()[2:6] if turned else count()[:4],))


def dtype_of_gradients() -> Mutation:
    def args(turned: bool) -> Tensors:
        made = leaf()
        if turned:
            made.grad_dtype = torch.float64
        return (made,)

    return turning(lambda v: v * (2 if v.grad_dtype is torch.float32 else 3), args)


# ---- Memory that is shared ------------------------------------------------------------------------------------------


def add_to_first(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    a.add_(1)
    return a.sum() + b


def add_to_part(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    part = a.view(-1)[1:3]
    part.mul_(3)
    return a.sum() + b


def add_to_both(a: torch.Tensor, b: torch.Tensor) -> Any:
    a.add_(1)
    b.mul_(3)
    a.sub_(1)
    return a * 1, b * 1


def set_item(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    a[2] = 9.0
    return b * 1


def copy_over(a: torch.Tensor, b: torch.Tensor) -> Any:
    a.copy_(b)
    return a * 1, b * 1


def write_out(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    torch.add(a, 1, out=b)
    return a * 2


def write_and_leave(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    a.add_(1)
    return b * 5 if b.sum() > 12 else b * 3


WRITES: dict[str, Callable[..., Any]] = {
    fn.__name__: fn for fn in (add_to_first, add_to_part, add_to_both, set_item, copy_over, write_out, write_and_leave)
}


def pair(turned: bool) -> Tensors:
    """Two tensors of the same numbers, which overlap or are apart."""
    base = count()
    return base[:4], base[1:5] if turned else count()[1:5]


def views_come_to_overlap(write: str) -> Mutation:
    return turning(WRITES[write], pair)


def views_no_longer_overlap(write: str) -> Mutation:
    return turning(WRITES[write], pair, back=True)


def views_overlap_otherwise(write: str) -> Mutation:
    def args(turned: bool) -> Tensors:
        base = count()
        return base[:4], base[2:6] if turned else base[1:5]

    return turning(WRITES[write], args)


def view_and_base_change_places() -> Mutation:
    def fn(a: torch.Tensor, b: torch.Tensor) -> Any:
        a.add_(1)
        return a + b, 1 if a._base is b else 2

    def args(turned: bool) -> Tensors:
        base = count()
        return (base, base[:]) if turned else (base[:], base)

    return turning(fn, args)


def view_in_another_dtype() -> Mutation:
    def args(turned: bool) -> Tensors:
        whole = torch.arange(4, dtype=torch.int32)
        return whole, (whole if turned else whole.clone()).view(torch.int16)

    def fn(whole: torch.Tensor, halves: torch.Tensor) -> torch.Tensor:
        halves.add_(1)
        return whole * 2

    return turning(fn, args)


def view_of_a_global() -> Mutation:
    held = torch.zeros(4)

    def fn(a: torch.Tensor) -> torch.Tensor:
        held.add_(1)
        return a * 1

    def args(turned: bool) -> Tensors:
        held.zero_()
        return (held[1:3] if turned else torch.zeros(4)[1:3],)

    return turning(fn, args)


def written_view_gives_its_base_a_history() -> Mutation:
    return turning(history, lambda turned: histories(turned, lambda base: base))


def written_view_no_longer_gives_its_base_a_history() -> Mutation:
    return turning(history, lambda turned: histories(turned, lambda base: base), back=True)


def written_view_gives_a_view_beside_it_a_history() -> Mutation:
    return turning(history, lambda turned: histories(turned, lambda base: base[4:]))


def history(view: torch.Tensor, other: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    view.mul_(factor)
    return other * (2 if other.requires_grad else 3)


def histories(turned: bool, take: Callable[[torch.Tensor], torch.Tensor]) -> Tensors:
    base = count()
    return base[:4], take(base if turned else count()), torch.ones(4).requires_grad_()


# ---- Tensors that are changed where they are ------------------------------------------------------------------------


def standing(change: Callable[[torch.Tensor], Any], make: Callable[[], torch.Tensor]) -> Mutation:
    """One tensor for all calls, and a program that tells how it lies."""
    held = make()
    return Mutation(lambda v: v * (2 if v.is_contiguous() else 3), lambda: (held,), lambda stack: change(held))


def resized() -> Mutation:
    return standing(lambda v: v.resize_(4), count)


def transposed_in_place() -> Mutation:
    return standing(lambda v: v.t_(), x)


def set_to_another() -> Mutation:
    return standing(lambda v: v.set_(torch.ones(4)), lambda: count(4))


def conjugated_under_it() -> Mutation:
    held = torch.complex(x(), x())

    def change(stack: ExitStack) -> None:
        held.data = held.data.conj()

    return Mutation(lambda v: torch.view_as_real(v.resolve_conj()) * 1, lambda: (held,), change)


def two_standing(change: Callable[[torch.Tensor, torch.Tensor], Any], take: Callable[[torch.Tensor], Any]) -> Mutation:
    """Two tensors for all calls, one of which is written to."""
    first = torch.zeros(4)
    second = take(first)

    def args() -> Tensors:
        first.zero_()
        second.zero_()
        return first, second

    return Mutation(add_to_first, args, lambda stack: change(first, second))


def set_to_share_memory() -> Mutation:
    return two_standing(lambda first, second: second.set_(first), torch.clone)


def data_set_to_share_memory() -> Mutation:
    return two_standing(lambda first, second: setattr(second, "data", first.data), torch.clone)


def data_set_to_memory_of_its_own() -> Mutation:
    return two_standing(lambda first, second: setattr(second, "data", torch.zeros(4)), lambda first: first[:])


# ---- Parameters and buffers -----------------------------------------------------------------------------------------


class Pool(nn.Module):
    """A parameter that may lie in a buffer that is written to."""

    def __init__(self, within: bool) -> None:
        super().__init__()
        self.register_buffer("pool", torch.ones(8))
        self.weight = nn.Parameter(self.pool[:4].view(2, 2) if within else torch.ones(2, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.pool.mul_(1.5)
        return x @ self.weight


def pooling(within: bool, change: Callable[[Pool], Any]) -> Mutation:
    module = Pool(within)

    def args() -> Tensors:
        with torch.no_grad():
            module.pool.fill_(1.0)
            module.weight.fill_(1.0)
        return one()

    return Mutation(module, args, lambda stack: change(module))


def parameter_moved_out_of_a_buffer() -> Mutation:
    return pooling(True, lambda module: setattr(module, "weight", nn.Parameter(torch.ones(2, 2))))


def parameter_moved_into_a_buffer() -> Mutation:
    return pooling(False, lambda module: setattr(module.weight, "data", module.pool[:4].view(2, 2)))


def statistics_shared() -> Mutation:
    class Norms(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.BatchNorm1d(2), nn.BatchNorm1d(2)

        def forward(self, x: torch.Tensor) -> Any:
            return self.b(self.a(x) + 1), self.a.running_mean * 1, self.b.running_mean * 1

    norms = Norms()

    def args() -> Tensors:
        norms.a.reset_running_stats()
        norms.b.reset_running_stats()
        return one()

    return Mutation(norms, args, lambda stack: setattr(norms.b.running_mean, "data", norms.a.running_mean.data))


def row_of(make: Callable[..., Mutation], *given: str) -> Callable[[], Mutation]:
    """A row that makes the mutation with these words."""

    def row() -> Mutation:
        return make(*given)

    row.__name__ = "_".join([make.__name__, *given])
    return row


UNSEEN = [(views_overlap_otherwise, "copy_over"), (views_overlap_otherwise, "write_out")]  # these raise either way
VIEWS = [
    *(row_of(base_begins_to_require_grad, asked) for asked in ABOUT_A_VIEW),
    *(row_of(base_ceases_to_require_grad, asked) for asked in ABOUT_A_VIEW if asked != "write"),
    *(
        row_of(make, write)
        for make in (views_come_to_overlap, views_no_longer_overlap, views_overlap_otherwise)
        for write in WRITES
        if (make, write) not in UNSEEN
    ),
    *(base_of_an_attribute_begins_to_require_grad, base_of_a_view_of_a_view_begins_to_require_grad),
    *(leaf_where_a_result_was, leaf_written_where_a_result_was, view_where_there_was_none, dtype_of_gradients),
    *(offset, offset_of_a_part, offset_under_as_strided),
    *(view_and_base_change_places, view_in_another_dtype, view_of_a_global),
    *(written_view_gives_its_base_a_history, written_view_no_longer_gives_its_base_a_history),
    *(written_view_gives_a_view_beside_it_a_history, resized, transposed_in_place, set_to_another),
    *(conjugated_under_it, set_to_share_memory, data_set_to_share_memory, data_set_to_memory_of_its_own),
    *(parameter_moved_out_of_a_buffer, parameter_moved_into_a_buffer, statistics_shared),
]
