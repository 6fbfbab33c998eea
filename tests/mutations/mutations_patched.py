"""What a program puts into modules, builtins and torch's own classes in place of what was there."""

from __future__ import annotations

import builtins
import sys
import types
from typing import Any

import torch
import torch.nn.functional as F
from mutating import Mutation, changing, mutation, one, setting
from torch import nn


def module(name: str) -> Any:
    """One that is imported, and comes from no file, whatever its `__getattr__` says."""
    made = sys.modules[name] = types.ModuleType(name)
    made.__file__ = None
    return made


@mutation
def module_getattr() -> Mutation:
    m = module("mgetattr")
    m.k = 2.0

    def ga(n):
        if n == "zz":
            return m.k
        raise AttributeError(n)

    m.__getattr__ = ga
    return changing(lambda x: x * m.zz, lambda: setattr(m, "k", 5.0))


@mutation
def module_getattr_replaced() -> Mutation:
    m = module("mgetattr2")
    m.__getattr__ = lambda n: 2.0
    return changing(lambda x: x * m.zz, lambda: setattr(m, "__getattr__", lambda n: 5.0))


@mutation
def module_getattr_added() -> Mutation:
    m = module("mgetattr3")
    return changing(lambda x: x * getattr(m, "zz", 2.0), lambda: setattr(m, "__getattr__", lambda n: 5.0))


@mutation
def module_getattr_shadowed() -> Mutation:
    m = module("mgetattr4")
    m.__getattr__ = lambda n: 2.0
    return changing(lambda x: x * m.zz, lambda: setattr(m, "zz", 5.0))


@mutation
def module_anonymous() -> Mutation:
    m = types.ModuleType("nowhere")
    m.k = 2.0
    return changing(lambda x: x * m.k, lambda: setattr(m, "k", 5.0))


@mutation
def module_anonymous_same_name() -> Mutation:
    m = types.ModuleType("math")
    m.k = 2.0
    return changing(lambda x: x * m.k, lambda: setattr(m, "k", 5.0))


@mutation
def module_class_swapped() -> Mutation:
    m = types.ModuleType("mclass")
    m.k = 2.0
    sys.modules["mclass"] = m

    class MM(types.ModuleType):
        @property
        def k(self):
            return 5.0

    return changing(lambda x: x * m.k, lambda: setattr(m, "__class__", MM))


@mutation
def sys_modules_swapped_old_written() -> Mutation:
    m = types.ModuleType("mswap")
    m.k = 2.0
    sys.modules["mswap"] = m

    def ch():
        o = types.ModuleType("mswap")
        o.k = 2.0
        sys.modules["mswap"] = o
        m.k = 5.0

    return changing(lambda x: x * m.k, ch)


@mutation
def builtin_import() -> Mutation:

    def fn(x):
        import math

        return x * math.floor(2.5)

    class Fake:
        floor = staticmethod(lambda a: 7)

    real = builtins.__import__
    return Mutation(fn, one, setting(builtins, "__import__", lambda n, *a: Fake if n == "math" else real(n, *a)))


@mutation
def builtin_build_class() -> Mutation:

    def fn(x):

        class A:
            k = 2.0

        return x * A.k

    real = builtins.__build_class__

    def b(f, n, *a, **k):
        c = real(f, n, *a, **k)
        c.k = 5.0
        return c

    return Mutation(fn, one, setting(builtins, "__build_class__", b))


@mutation
def builtin_isinstance_patched() -> Mutation:
    d = [1]
    return Mutation(
        lambda x: x * (2 if isinstance(d, list) else 3), one, setting(builtins, "isinstance", lambda a, b: False)
    )


@mutation
def builtin_range() -> Mutation:

    def fn(x):
        for _i in range(2):
            x = x * 2
        return x

    return Mutation(fn, one, setting(builtins, "range", lambda a: [1, 2, 3, 4]))


@mutation
def builtin_max_patched() -> Mutation:
    return Mutation(lambda x: x * max(2, 3), one, setting(builtins, "max", lambda *a: 7))


@mutation
def builtin_super() -> Mutation:

    class A:
        def f(self):
            return 2.0

    class B(A):
        def f(self):
            return super().f()

    b = B()

    class S:
        def __init__(s, *a):
            pass

        def f(s):
            return 5.0

    return Mutation(lambda x: x * b.f(), one, setting(builtins, "super", S))


@mutation
def builtin_deleted() -> Mutation:

    def ch(stack):
        f = builtins.vars
        stack.callback(setattr, builtins, "vars", f)
        del builtins.vars

    def fn(x):
        try:
            return x * sum(vars(types.SimpleNamespace(a=2)).values())
        except NameError:
            return x * 9

    return Mutation(fn, one, ch)


@mutation
def tensor_radd_patched() -> Mutation:
    return Mutation(lambda x: 1.0 + x, one, setting(torch.Tensor, "__radd__", lambda a, b: a * 7))


@mutation
def tensor_iadd_patched() -> Mutation:

    def fn(x):
        x += 1
        return x

    return Mutation(fn, one, setting(torch.Tensor, "__iadd__", lambda a, b: a * 7))


@mutation
def tensor_negation_patched() -> Mutation:
    # not `__getitem__`: CPython leaves a class that had one a sequence, which `torch.tensor([tensor])` then fails on
    return Mutation(lambda x: -x * 2, one, setting(torch.Tensor, "__neg__", lambda a: a.add(7)))


@mutation
def tensor_setitem_patched() -> Mutation:

    def fn(x):
        y = x.clone()
        y[0] = 3.0
        return y

    return Mutation(fn, one, setting(torch.Tensor, "__setitem__", lambda a, b, c: a.add_(7)))


@mutation
def tensor_len_patched() -> Mutation:
    return Mutation(lambda x: x * len(x), one, setting(torch.Tensor, "__len__", lambda a: 7))


@mutation
def tensor_neg_patched() -> Mutation:
    return Mutation(lambda x: -x, one, setting(torch.Tensor, "__neg__", lambda a: a + 7))


@mutation
def tensor_matmul_patched() -> Mutation:
    return Mutation(lambda x: x @ x, one, setting(torch.Tensor, "__matmul__", lambda a, b: a + 7))


@mutation
def tensor_iter_patched() -> Mutation:

    def fn(x):
        s = 0
        for r in x:
            s = s + r
        return s

    return Mutation(fn, one, setting(torch.Tensor, "__iter__", lambda a: iter([torch.ones(1)])))


@mutation
def tensor_dtype_patched() -> Mutation:
    def fn(x):
        return x * (2 if x.dtype == torch.float32 else 3)

    return Mutation(fn, one, setting(torch.Tensor, "dtype", property(lambda a: torch.float64)))


@mutation
def tensor_ndim_patched() -> Mutation:
    return Mutation(lambda x: x * x.ndim, one, setting(torch.Tensor, "ndim", property(lambda a: 7)))


@mutation
def tensor_T_patched() -> Mutation:
    return Mutation(lambda x: x.T * 2, one, setting(torch.Tensor, "T", property(lambda a: a + 7)))


@mutation
def tensor_size_patched() -> Mutation:
    return Mutation(lambda x: x * x.size(0), one, setting(torch.Tensor, "size", lambda a, d: 7))


@mutation
def tensor_newmethod() -> Mutation:
    return Mutation(lambda x: x * (2 if hasattr(x, "zork") else 3), one, setting(torch.Tensor, "zork", lambda a: 7))


@mutation
def tensor_newmethod_call() -> Mutation:
    torch.Tensor.zork2 = lambda a: a + 1
    return Mutation(lambda x: x.zork2() * 2, one, setting(torch.Tensor, "zork2", lambda a: a + 7))


@mutation
def tensor_newprop() -> Mutation:
    torch.Tensor.zork3 = property(lambda a: 2.0)
    return Mutation(lambda x: x * x.zork3, one, setting(torch.Tensor, "zork3", property(lambda a: 5.0)))


@mutation
def tensor_item_patched() -> Mutation:
    return Mutation(lambda x: x + torch.tensor(2.0).item(), one, setting(torch.Tensor, "item", lambda a: 7))


@mutation
def parameter_mul_patched() -> Mutation:
    p = nn.Parameter(torch.ones(2))
    return Mutation(lambda x: p * x, one, setting(nn.Parameter, "__mul__", lambda a, b: b * 7))


@mutation
def F_interpolate_default() -> Mutation:

    def ch(stack):
        d = F.leaky_relu.__defaults__
        stack.callback(setattr, F.leaky_relu, "__defaults__", d)
        F.leaky_relu.__defaults__ = (0.9, False)

    return Mutation(lambda x: F.leaky_relu(-x), one, ch)


@mutation
def torch_ops_patched() -> Mutation:
    return Mutation(lambda x: torch.ops.aten.relu(x - 2), one, setting(torch.ops.aten, "relu", lambda x: x * 9))
