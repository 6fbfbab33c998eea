"""Programs that stay as they are: a second process must find what the first has stored."""

from __future__ import annotations

from two_processes import Program

MODULE = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.fc = torch.nn.Linear(4, 4)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))
        self.names, self.options = ["a", "b"], {"scale": 2.0, "flag": True}
    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        if self.options["flag"]:
            x = x * self.options["scale"]
        return self.fc(x) + len(self.names)
f = Net()
def args(): return (torch.ones(2, 4),)
"""

UNCHANGED: dict[str, Program] = {
    "function": Program("def f(x): return x.sin() + 1\ndef args(): return (torch.ones(3),)"),
    "module": Program(MODULE),
    "numpys_functions_and_scalars": Program(
        """
        import numpy as np
        N = np.float64(2)
        def f(x): return x * float(np.sum([2, 3])), np.sqrt(8), np.int8(5) + np.int8(1), np.bool_(True), N, N is N
        def args(): return (torch.ones(3),)
        """
    ),
    "arrays_and_generators_in_a_graph": Program(
        """
        import numpy as np
        rng = np.random.default_rng(0)
        box = np.arange(3.0)
        def f(x):
            a = x.numpy() + box.sum()
            y = torch.from_numpy(np.sqrt(a)) * 2
            return y.cos() + torch.from_numpy(a.mean(keepdims=True)), torch.from_numpy(rng.random(3)) + x
        def args(): return (torch.ones(3),)
        def reset():
            global rng
            rng = np.random.default_rng(0)
        """
    ),
    "locks": Program(
        """
        import threading
        LOCK, AGAIN = threading.Lock(), threading.RLock()
        def f(x):
            with LOCK:
                x = x + 1
            with AGAIN, AGAIN:
                return x * 2
        def args(): return (torch.ones(3),)
        """
    ),
    "flags_that_torchs_modules_make": Program(
        """
        def f(x): return x + torch.backends.opt_einsum.enabled + torch.utils.deterministic.fill_uninitialized_memory
        def args(): return (torch.ones(3),)
        """
    ),
    "breaks_in_a_comprehension_and_in_an_inner_function": Program(
        """
        def g(x): return x + 1 if x.sum() > 0 else x - 1
        def among(d):
            def inner(v):
                if v.sum() > 0:
                    v = v * 2
                return v.sin().cos()
            return [inner(x) + 1 for x in d.values()]
        def f(x): return {key: g(each.cos()).sin() for key, each in {"a": x}.items()}, among({"a": x})
        def args(): return (torch.ones(3),)
        """
    ),
    "version_of_torch": Program(
        """
        def f(x): return x * (2 if torch.__version__ >= "2.0" else 3)
        def args(): return (torch.ones(3),)
        """
    ),
    "helper_and_global": Program(
        """
        SCALE = 3
        def helper(x, by=2): return x * SCALE + by
        def f(x): return helper(x) - helper(x, by=1)
        def args(): return (torch.ones(3),)
        """
    ),
    "closure": Program(
        """
        def make(n):
            def inner(x): return x * n
            return inner
        g = make(3)
        def f(x): return g(x)
        def args(): return (torch.ones(3),)
        """
    ),
    "modules_with_classes_of_their_own": Program(
        """
        import sys, types
        class Lazy(types.ModuleType):
            pass
        lazy = sys.modules["lazy"] = Lazy("lazy")
        lazy.scale = 3
        def f(x): return torch.ops.aten.mul.Tensor(x, torch.ones(3)) * lazy.scale
        def args(): return (torch.ones(3),)
        """
    ),
    "custom_operator": Program(
        """
        SIZE = (3,)
        def size(x): return SIZE
        @torch.library.custom_op("storetest::same", mutates_args=())
        def op(x: torch.Tensor) -> torch.Tensor: return x * 2
        @op.register_fake
        def _(x): return x.new_empty(size(x))
        def f(x): return op(x) + torch.ops.storetest.same(x)
        def args(): return (torch.ones(3),)
        """
    ),
    "methods_of_tensors_as_functions": Program(
        """
        ADD = torch.Tensor.add
        def f(x):
            mean = x.mean().item()
            return ADD(x, mean), torch.Tensor.__mul__(x, 2), torch.Tensor.clamp_(x.clone(), 0, 1), mean, bool(mean > 1)
        def args(): return (torch.ones(3) * 2,)
        """
    ),
    "assertion": Program(
        """
        rows = torch.nn.Embedding(4, 2)
        def f(x):
            noise = torch.rand(2, 2)
            if not (x >= 0).all():
                raise ValueError("negative")
            return rows(x) + noise
        def args(): return (torch.tensor([1, 2]),)
        """
    ),
    "operator_may_raise": Program(
        """
        def f(x):
            try:
                return x.reshape(3) + 1
            except RuntimeError:
                return x
        def args(): return (torch.ones(3),)
        """
    ),
    "wrapper_around_a_wrapper": Program(
        """
        import functools
        def scaled(fn):
            @functools.wraps(fn)
            def wrapper(x): return fn(x) * 2
            return wrapper
        @scaled
        def inner(x): return x + 1
        @scaled
        def f(x): return inner(x) - 3
        def args(): return (torch.ones(3),)
        """
    ),
    "questions_to_sets": Program(
        """
        NAMES = frozenset({"aa", "b", "cccc"})
        def f(x, name="b"):
            if name in {"b", "dd"} and name not in ("x", "y") and "zz" not in NAMES:
                x = x * len(NAMES)
            return x + (frozenset({"b"}) <= NAMES) + (NAMES == {"b"}) + NAMES.isdisjoint({"q"})
        def args(): return (torch.ones(3),)
        """
    ),
    "integer_enum": Program(
        """
        import enum
        class Act(enum.IntEnum):
            SCALE = 2
            OTHER = 3
        def f(x): return x * Act.SCALE if Act.OTHER > Act.SCALE else x
        def args(): return (torch.ones(3),)
        """
    ),
    "value_of_enum": Program(
        """
        import enum
        class Act(enum.Enum):
            GELU = "gelu"
            RELU = "relu"
        def f(x, act=Act.RELU): return x.relu() if act.value == "relu" else x.exp()
        def args(): return (torch.ones(3),)
        """
    ),
    "dataclass": Program(
        """
        import dataclasses
        @dataclasses.dataclass
        class Config:
            scale: float = 2.0
            names: tuple = ("a", "b")
        config = Config()
        def f(x): return x * config.scale + len(config.names)
        def args(): return (torch.ones(3),)
        """
    ),
    "namedtuple": Program(
        """
        import collections
        Pair = collections.namedtuple("Pair", "first second")
        def f(x): return Pair(x + 1, x + 2).second
        def args(): return (torch.ones(3),)
        """
    ),
    "property_and_methods": Program(
        """
        class Thing:
            @property
            def two(self): return 2
            @classmethod
            def three(cls): return 3
            @staticmethod
            def four(): return 4
        thing = Thing()
        def f(x): return x * thing.two + thing.three() * Thing.four()
        def args(): return (torch.ones(3),)
        """
    ),
    "partial": Program(
        """
        import functools
        def g(x, n): return x * n
        h = functools.partial(g, n=3)
        def f(x): return h(x)
        def args(): return (torch.ones(3),)
        """
    ),
    "shared_dict_in_class": Program(
        """
        class Config:
            attribute_map = {"hidden": "size"}
            size = 3
            def __getattribute__(self, name):
                found = super().__getattribute__("attribute_map")
                return super().__getattribute__(found.get(name, name))
        config = Config()
        def f(x): return x * config.hidden
        def args(): return (torch.ones(3),)
        """
    ),
    "abstract_class": Program(
        """
        from collections.abc import Mapping
        def f(x, names=("a",)): return x + 1 if isinstance(names, Mapping) else x - 1
        def args(): return (torch.ones(3),)
        """
    ),
    "gradients": Program(
        """
        weight = torch.ones(3, requires_grad=True)
        def f(x): return (x * weight).sum()
        def args(): return (torch.ones(3),)
        """
    ),
    "writes_to_input": Program(
        "def f(x):\n    x.add_(1)\n    return x * 2\ndef args(): return (torch.ones(3),)",
    ),
    "random": Program("def f(x): return x + torch.rand(3)\ndef args(): return (torch.ones(3),)"),
    "side_effect": Program(
        """
        class Counter:
            calls = 0
        counter = Counter()
        counter.log = []
        def f(x):
            counter.log.append(len(counter.log))
            return x + 1, [x, {"a": x * 2}]
        def args(): return (torch.ones(3),)
        def reset(): counter.log.clear()
        """
    ),
    "functions_in_functions_around_breaks": Program(
        """
        def helper(x, scale):
            twice = lambda y: y * scale
            if x.sum() > 0:
                x = twice(x)
            return [each * scale for each in x.tolist()], twice(x)
        def f(x, seen):
            add = lambda y, by=1: y + by
            print(end="")
            x = add(x)
            picked = [add(at) for at in x.topk(2).indices.tolist()]
            seen.extend(sorted(picked, key=lambda at: -at))
            return helper(x, 2)[1] + add(x), {at: add(at) for at in picked}, any(at == 1 for at in picked)
        def args(): return torch.arange(3.0), []
        """
    ),
    "parts_without_operators": Program(
        """
        NAMES = ["past", "state"]
        def part(given):
            print(end="")
            return any(name in given for name in NAMES)
        def f(x):
            print(end="")
            return part({"state": x}), part({"state": x}), x + 1
        def args(): return (torch.ones(3),)
        """
    ),
    "new_parameter": Program(
        """
        def f(x): return torch.nn.Parameter(x * 2) + 1
        def args(): return (torch.ones(3),)
        """
    ),
    "aliases_of_types": Program(
        """
        LISTS, EITHER = list[int], int | None
        def f(x, kind): return x + (kind is LISTS) + (kind is EITHER)
        def args(): return torch.ones(3), EITHER
        """
    ),
    "own_kind_of_property": Program(
        """
        class Asked(property):
            def __init__(self, fn, by):
                super().__init__(fn)
                self.by = by
        class Box:
            size = Asked(lambda self: 3, 2)
        box = Box()
        def f(x): return x * box.size * Box.size.by
        def args(): return (torch.ones(3),)
        """
    ),
    "declared_constant": Program(
        """
        import os, torchdynamo
        def asked(name, default): return name in os.environ or default
        torchdynamo.assume_constant_result(asked)
        def f(x): return x * (2 if asked("NO_SUCH_VARIABLE", default=False) else 3)
        def args(): return (torch.ones(3),)
        """
    ),
    "inference_mode": Program(
        """
        layer = torch.nn.Linear(3, 3)
        @torch.inference_mode()
        def decorated(x): return layer(x)
        def f(x):
            with torch.inference_mode():
                y = layer(x).softmax(-1)
            return decorated(x), y.is_inference()
        def args(): return (torch.ones(2, 3),)
        """
    ),
    "sets_itself_up": Program(
        """
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.grid, self.tables, self.kind = None, {}, "sparse"
            def forward(self, x, seen):
                if self.grid is None:
                    self.grid = torch.arange(3) * 2.0
                if "cpu" not in self.tables:
                    self.tables["cpu"] = x.sin()
                if self.kind == "sparse" and len(x) < 10:
                    self.kind = "full"
                seen.append(len(x))
                return x * self.grid + self.tables["cpu"], self.kind
        f = Net()
        def reset(): f.__init__()
        def args(): return torch.ones(3), []
        def after(result): return f(torch.ones(3) * 2, []), list(f.tables), f.kind
        """
    ),
    "autocast": Program(
        """
        def f(x):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return x @ x
        def args(): return (torch.ones(3, 3),)
        """
    ),
    "break_and_continuation": Program(
        """
        def f(x):
            y = x.sin() + 1
            if y.sum() < 0:
                y = y * -1
            return y.cos() + x
        def args(): return (torch.ones(3),)
        """
    ),
    "break_in_callee": Program(
        """
        def helper(x):
            y = x.exp() * 2
            print(end="")
            return y.cos() * 3
        def f(x):
            y = helper(x.sin() + 1)
            return y.sin() + x
        def args(): return (torch.ones(3),)
        """
    ),
    "dynamic": Program(
        """
        SETTINGS = {"dynamic": True}
        def f(x): return x.reshape(-1).sum() * x.shape[0]
        def args(): return (torch.ones(3, 5),)
        """
    ),
    "float_input": Program(
        """
        SETTINGS = {"dynamic": True}
        def f(x, scale): return x * scale + 1
        def args(): return (torch.ones(3), 2.5)
        """
    ),
    "error_of_the_program": Program(
        "def f(x): return x.view(4) + 1\ndef args(): return (torch.ones(3),)",
    ),
    "aot_eager": Program(
        """
        SETTINGS = {"backend": "aot_eager"}
        weight = torch.ones(3, requires_grad=True)
        def f(x): return (x * weight * weight + torch.tensor([1.0, 2.0, 3.0])).sum()
        def args(): return (torch.ones(3),)
        def after(result):
            weight.grad = None
            result.backward()
            return weight.grad
        """
    ),
}

INDUCTOR: dict[str, Program] = {
    "inductor": Program(
        """
        SETTINGS = {"backend": "inductor"}
        weight = torch.full((3, 3), 0.5)
        def f(x): return torch.relu(x @ weight) + 1
        def args(): return (torch.ones(3, 3),)
        """
    ),
    "inductor_writes_to_input": Program(
        """
        SETTINGS = {"backend": "inductor"}
        def f(x):
            x.add_(1)
            return x * 2
        def args(): return (torch.ones(3),)
        """
    ),
    "inductor_gradients": Program(
        """
        SETTINGS = {"backend": "inductor"}
        weight = torch.ones(3, requires_grad=True)
        def f(x): return (x * weight * weight).sum()
        def args(): return (torch.ones(3),)
        def after(result):
            weight.grad = None
            result.backward()
            return weight.grad
        """
    ),
}
