"""`__torch_function__`: modes that the frame opens, and subclasses of Tensor, see what they see without us."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import pytest
import torch
from counting import Counting
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

import torchdynamo
from torchdynamo.errors import Unsupported

X = torch.arange(6.0).reshape(2, 3)


class Log(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append((func.__name__, types, len(args), sorted(kwargs or {})))
        return func(*args, **(kwargs or {}))


class Doubling(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return result * 2 if func in (torch.Tensor.add, torch.add) else result


class Tagged(torch.Tensor):
    """Passes everything on."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return super().__torch_function__(func, types, args, kwargs or {})


class Boxed:
    """No tensor, but torch's functions ask it."""

    handlers: ClassVar[dict[Any, Any]] = {}

    def __init__(self, inside: torch.Tensor) -> None:
        self.inside = inside

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in cls.handlers:
            return NotImplemented
        opened = [each.inside if isinstance(each, Boxed) else each for each in args]
        return cls.handlers[func](*opened, **(kwargs or {})), func.__name__, types

    def __rtruediv__(self, other: Any) -> Any:
        return other, "divided"


Boxed.handlers = {each: each for each in (torch.Tensor.add, torch.nn.functional.relu, torch.sum, torch.Tensor.mul)}


def boxed(x: torch.Tensor) -> Any:
    box = Boxed(x)
    refused = []
    for fn in (torch.mean, torch.fft.fft, torch.nn.functional.gelu, torch.nn.functional.softmax):
        try:
            fn(box)
        except TypeError as error:
            refused.append(str(error))
    try:
        x - box
    except TypeError as error:
        refused.append(str(error))
    return x / box, x + box, torch.nn.functional.relu(box), torch.sum(box, dim=0), x.mul(box), refused


def test_objects_that_are_no_tensors() -> None:
    got, wanted = torchdynamo.compile(boxed, backend="eager", fullgraph=True)(X), boxed(X)
    assert got[-1] == wanted[-1]
    for (mine, *said), (theirs, *theirs_said) in zip(got[:-1], wanted[:-1]):
        assert torch.equal(mine, theirs) and said == theirs_said


class Scaled(torch.Tensor):
    """Multiplies otherwise, and has methods of its own."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.Tensor.mul, torch.mul):
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {})) * 10
        return super().__torch_function__(func, types, args, kwargs or {})

    def twice(self) -> Any:
        return self + self

    @property
    def half(self) -> Any:
        return self / 2


class Finer(Tagged):
    """A subclass of a subclass, which its base does not know."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.sub:
            return [each.__name__ for each in types]
        return super().__torch_function__(func, types, args, kwargs or {})


class Fixed(torch.Tensor):
    """Made by its own constructor; knows a number."""

    def __new__(cls, data: Any, number: int) -> Any:
        return torch.Tensor._make_subclass(cls, data)

    def __init__(self, data: Any, number: int) -> None:
        self.number = number

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.add:
            return args[0].number
        return super().__torch_function__(func, types, args, kwargs or {})


class Case(NamedTuple):
    """A function of one tensor, which is of this class."""

    fn: Callable[..., Any]
    cls: type


CASES: list[Case] = []


def case(cls: type = torch.Tensor) -> Callable[..., Any]:
    def register(fn: Any) -> Any:
        CASES.append(Case(fn, cls))
        return fn

    return register


@case()
def what_a_mode_sees(x: Any) -> Any:
    with Log() as log:
        y = x + 1
        made = torch.ones(2) * 3, torch.tensor([1.0, 2.0]), torch.cat([x, x]), -x, x.sum(dim=0)
        facts = x.shape[0], x.size(1), x.sum().dtype, len(x), x.is_contiguous(), x.device
        views = torch.sin(y).T, y[0], torch.nn.functional.softmax(y, -1), x.to(torch.float64)
        y[0] = 2
    return y, made, facts, views, log.seen


@case()
def modes_in_modes(x: Any) -> Any:
    with Doubling():
        y = x + 1
        with Log() as log:
            z = torch.add(x, x)
    return y, z, x + 1, log.seen


@case()
def a_switch_in_a_mode(x: Any) -> Any:
    with Doubling():
        with torch._C.DisableTorchFunction():
            y = x + 1
        with torch._C.DisableTorchFunctionSubclass():
            return y, x + 1


@case()
def there_and_back(x: Any) -> Any:
    return (x.as_subclass(Tagged) + 1).as_subclass(torch.Tensor)


@case()
def what_it_becomes(x: Any) -> Any:
    t = x.as_subclass(Tagged)
    return t + 1, t.max(0), torch.split(t, 1), t.shape, type(t * 2) is Tagged, isinstance(t, Scaled), t.T, [t.sum()]


@case()
def methods_of_its_own(x: Any) -> Any:
    t = x.as_subclass(Scaled)
    t.note = 3
    return t * 2, x * t, t.twice(), t.half, t.note, torch.stack([x, t])


@case(Scaled)
def as_an_argument(t: Any) -> Any:
    return t * 2, t + 1, t.twice(), t.shape, t


@case()
def two_classes(x: Any) -> Any:
    return x.as_subclass(Tagged) - x.as_subclass(Finer), x - x.as_subclass(Tagged)


@case()
def a_constructor(x: Any) -> Any:
    made = Fixed(x, 7)
    return made + 1, made * 2, type(made).__name__, made.number


def plainly(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return type(value), value.as_subclass(torch.Tensor).tolist()
    return value


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.fn.__name__)
def test_agrees_with_eager(case: Case, backend: str) -> None:
    compiled = torchdynamo.compile(case.fn, backend=backend, fullgraph=True)
    for _ in range(2):
        wanted, got = case.fn(X.clone().as_subclass(case.cls)), compiled(X.clone().as_subclass(case.cls))
        assert [plainly(each) for each in tree_leaves(wanted)] == [plainly(each) for each in tree_leaves(got)]


@pytest.mark.parametrize("cls", [Tagged, Scaled])
def test_gradients(cls: Any) -> None:
    def fn(x: Any) -> Any:
        return (x.as_subclass(cls) * 3).sum().as_subclass(torch.Tensor)

    grads = []
    for each in (fn, torchdynamo.compile(fn, backend="aot_eager", fullgraph=True)):
        x = X.clone().requires_grad_()
        each(x).backward()
        grads.append(x.grad.tolist())  # type: ignore[union-attr]
    assert grads[0] == grads[1]


def test_a_break_inside_of_a_mode() -> None:
    def fn(x: Any) -> Any:
        with Log() as log:
            y = x + 1
            torchdynamo.graph_break()
            z = y * 2
        return z + 1, log.seen

    wanted, got = fn(X), torchdynamo.compile(fn, backend="eager")(X)
    assert torch.equal(got[0], wanted[0]) and got[1] == wanted[1]
    assert torch._C._len_torch_function_stack() == 0


class Odd(torch.Tensor):
    """Takes the place of an operator without being asked through `__torch_function__`."""

    def __add__(self, other: Any) -> Any:  # type: ignore[override]
        return "added"

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return super().__torch_function__(func, types, args, kwargs or {})


def test_a_subclass_with_operators_of_its_own_ends_the_graph() -> None:
    def fn(x: Any) -> Any:
        return x.as_subclass(Odd) + 1, x + 1

    with pytest.raises(Unsupported, match="Odd"):
        torchdynamo.compile(fn, backend="eager", fullgraph=True)(X)
    assert torchdynamo.compile(fn, backend="eager")(X)[0] == "added"


def test_another_method_is_noticed() -> None:
    class Changing(Tagged):
        pass

    def fn(x: Any) -> Any:
        return x.as_subclass(Changing) + 1

    compiled = torchdynamo.compile(fn, backend="eager")
    compiled(X)
    Changing.__torch_function__ = classmethod(lambda *args, **kwargs: "replaced")  # type: ignore[method-assign]
    assert compiled(X) == "replaced"


@pytest.mark.parametrize("other", [torch.ones(3, 3), torch.ones(4), torch.ones(2, 3).double(), torch.ones(2, 3)])
def test_compiling_again_asks_nobody(other: torch.Tensor) -> None:
    """To learn what has changed, the compiler reads the tensors that entries were made for."""
    asked: list[str] = []

    class Asked(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            asked.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs or {})

    def fn(x: Any) -> Any:
        return torch.sin(x) * x.shape[0] + 1

    def heard(fn: Any, x: torch.Tensor) -> list[str]:
        asked.clear()
        fn(x)
        return [*asked]

    compiled = torchdynamo.compile(fn, backend="eager")
    for x in (X.as_subclass(Asked), other.as_subclass(Asked), other.clone().as_subclass(Asked).requires_grad_()):
        assert heard(compiled, x) == heard(fn, x) == ["sin", "__get__", "mul", "add"]


def test_sizes_vary_where_a_mode_is_open() -> None:
    """Who is asked does not depend on what a number is."""

    def fn(x: Any) -> Any:
        n = x.shape[0]
        with Doubling():
            if n != x.size(0):
                return x
            return torch.add(torch.arange(n), torch.arange(n * 2)[:n]) + x.new_zeros((n,)) + x.narrow(0, 1, n - 1).sum()

    counting = Counting()
    compiled = torchdynamo.compile(fn, backend=counting, fullgraph=True)
    for n in (3, 4, 5, 1, 7):
        assert torch.equal(compiled(torch.ones(n)), fn(torch.ones(n)))
    assert len(counting.graphs) == 2


class Plain(torch.Tensor):
    pass


class Repeated(torch.Tensor):
    def __new__(cls, data, times=1):
        made = super().__new__(cls, data)
        made.times = times
        return made


class Noted(torch.Tensor):
    def __init__(self, data):
        self.note = 3


def test_subclasses_are_made_by_their_class() -> None:
    def fn(x):
        made = Plain(x * 2), Plain(x)
        made[1].add_(1)
        return *made, Repeated(x, times=4).times, Repeated(x) * 2

    def initialized(x):
        return Noted(x * 2).note, x + 1

    for program, fullgraph in ((fn, True), (initialized, False)):
        mine, theirs = torch.ones(3), torch.ones(3)
        got = torchdynamo.compile(program, backend="eager", fullgraph=fullgraph)(mine)
        for one, other in zip((*got, mine), (*program(theirs), theirs), strict=True):
            assert type(one) is type(other)
            assert torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


def test_whether_overrides_are_asked() -> None:
    def fn(x):
        def now():
            return torch._C._is_torch_function_enabled(), torch._C._is_torch_function_all_disabled()

        found = [now()]
        with torch._C.DisableTorchFunctionSubclass():
            found.append(now())
            with torch._C.DisableTorchFunction():
                found.append(now())
            found.append(now())
        return x + 1, found, now()

    compiled = torchdynamo.compile(fn, backend="eager", fullgraph=True)
    for _ in range(2):
        assert compiled(torch.ones(2))[1:] == fn(torch.ones(2))[1:]


class SwitchedOff(torch.Tensor):
    """Compute as a plain tensor does; results are plain."""

    __torch_function__ = torch._C._disabled_torch_function_impl


@pytest.mark.filterwarnings("error::torchdynamo.errors.FallbackWarning")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_class_that_switches_overriding_off(backend: str) -> None:
    """AOTAutograd's first call of a graph takes no tensors of such a class: the graph is not given to it."""
    kept = torch.arange(3.0).as_subclass(SwitchedOff).requires_grad_()
    compiled = torchdynamo.compile(lambda x: (x * kept).sin(), backend=backend, fullgraph=True)
    for _ in range(2):
        kept.grad = None
        result = compiled(torch.ones(3))
        result.sum().backward()
        assert type(result) is torch.Tensor
        assert torch.equal(result, torch.arange(3.0).sin())
        assert torch.equal(kept.grad, torch.arange(3.0).cos())
