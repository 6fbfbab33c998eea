"""Functions that are reached by way of containers, compared, used as keys, or called as they do not allow."""

from __future__ import annotations

import functools

from mutating import Mutation, changing, mutation
from torch import nn


@mutation
def tuple_of_functions_defaults() -> Mutation:

    def f(x, k=2.0):
        return x * k

    def fn(x):
        t = (f, 1)
        return t[0](x)

    return changing(fn, lambda: setattr(f, "__defaults__", (5.0,)))


@mutation
def tuple_of_functions_attr() -> Mutation:

    def f(x):
        return x

    f.k = 2.0

    def fn(x):
        t = (f, 1)
        return t[0](x) * t[0].k

    return changing(fn, lambda: setattr(f, "k", 5.0))


@mutation
def zip_functions() -> Mutation:

    def f(x, k=2.0):
        return x * k

    def g(x, k=3.0):
        return x + k

    fs = [f, g]

    def fn(x):
        for h, n in zip(fs, (1, 2)):
            x = h(x) * n
        return x

    return changing(fn, lambda: setattr(f, "__defaults__", (5.0,)))


@mutation
def enumerate_functions() -> Mutation:

    def f(x, k=2.0):
        return x * k

    fs = [f]

    def fn(x):
        for i, h in enumerate(fs):
            x = h(x) + i
        return x

    return changing(fn, lambda: setattr(f, "__defaults__", (5.0,)))


@mutation
def sorted_functions() -> Mutation:

    def f(x, k=2.0):
        return x * k

    def g(x, k=3.0):
        return x + k

    fs = [f, g]

    def fn(x):
        for h in sorted(fs, key=lambda f: f.__name__):
            x = h(x)
        return x

    return changing(fn, lambda: setattr(f, "__defaults__", (5.0,)))


@mutation
def max_functions() -> Mutation:

    def f(x, k=2.0):
        return x * k

    def g(x, k=3.0):
        return x + k

    fs = [f, g]

    def fn(x):
        return max(fs, key=lambda f: f.__name__)(x)

    return changing(fn, lambda: setattr(g, "__defaults__", (5.0,)))


@mutation
def dict_items_functions() -> Mutation:

    def f(x, k=2.0):
        return x * k

    fs = {"a": f}

    def fn(x):
        for _n, h in fs.items():
            x = h(x)
        return x

    return changing(fn, lambda: setattr(f, "__defaults__", (5.0,)))


@mutation
def dict_items_kwdefaults() -> Mutation:

    def f(x, *, k=2.0):
        return x * k

    fs = {"a": f}

    def fn(x):
        for _n, h in fs.items():
            x = h(x)
        return x

    return changing(fn, lambda: f.__kwdefaults__.update(k=5.0))


@mutation
def dict_items_closure() -> Mutation:
    k = 2.0

    def f(x):
        return x * k

    def setk():
        nonlocal k
        k = 5.0

    fs = {"a": f}

    def fn(x):
        for _n, h in fs.items():
            x = h(x)
        return x

    return changing(fn, setk)


@mutation
def dict_items_globals() -> Mutation:
    ns = {"K": 2.0}
    exec("def f(x): return x*K", ns)
    fs = {"a": ns["f"]}

    def fn(x):
        for _n, h in fs.items():
            x = h(x)
        return x

    return changing(fn, lambda: ns.update(K=5.0))


@mutation
def dict_items_same_code() -> Mutation:

    def make(k):
        return lambda x: x * k

    fs = {"a": make(2.0)}

    def fn(x):
        for _n, h in fs.items():
            x = h(x)
        return x

    return changing(fn, lambda: fs.update(a=make(5.0)))


@mutation
def dict_items_same_code_defaults() -> Mutation:

    def make(k):
        return lambda x, k=k: x * k

    fs = {"a": make(2.0)}

    def fn(x):
        for _n, h in fs.items():
            x = h(x)
        return x

    return changing(fn, lambda: fs.update(a=make(5.0)))


@mutation
def functions_identical() -> Mutation:

    def make():
        return lambda x: x * 2

    a = make()
    box = [a]
    return changing(lambda x: x * 2 if a is box[0] else x * 3, lambda: box.__setitem__(0, make()))


@mutation
def functions_equal() -> Mutation:

    def make():
        return lambda x: x * 2

    a = make()
    box = [a]
    return changing(lambda x: x * 2 if a == box[0] else x * 3, lambda: box.__setitem__(0, make()))


@mutation
def function_in_set() -> Mutation:

    def make():
        return lambda x: x * 2

    a = make()
    box = [a]
    s = {a}
    return changing(lambda x: x * 2 if box[0] in s else x * 3, lambda: box.__setitem__(0, make()))


@mutation
def function_in_dict_key() -> Mutation:

    def make():
        return lambda x: x * 2

    a = make()
    box = [a]
    s = {a: 2.0}
    return changing(lambda x: x * s.get(box[0], 7.0), lambda: box.__setitem__(0, make()))


@mutation
def function_in_list() -> Mutation:

    def make():
        return lambda x: x * 2

    a = make()
    box = [a]
    s = [a]
    return changing(lambda x: x * (2 if box[0] in s else 5), lambda: box.__setitem__(0, make()))


@mutation
def two_sources_one_function() -> Mutation:

    def make(k):
        return lambda x, k=k: x * k

    a = make(2.0)
    A = [a]
    B = [a]

    def fn(x):
        t = (A[0], B[0])
        return t[1](x) + t[0](x)

    return changing(fn, lambda: B.__setitem__(0, make(3.0)))


@mutation
def partial_args_setstate() -> Mutation:

    def f(k, x):
        return x * k

    p = functools.partial(f, 2.0)
    return changing(lambda x: p(x), lambda: p.__setstate__((f, (3.0,), {}, {})))


@mutation
def partialmethod_() -> Mutation:

    class C:
        def f(self, x, k):
            return x * k

        g = functools.partialmethod(f, k=2.0)

    c = C()
    return changing(lambda x: c.g(x), lambda: C.__dict__["g"].keywords.update(k=5.0))


@mutation
def kwdefaults_added() -> Mutation:

    def f(x, *, k):
        return x * k

    def g(x):
        try:
            return f(x)
        except TypeError:
            return x + 1

    return changing(g, lambda: setattr(f, "__kwdefaults__", {"k": 2.0}))


@mutation
def defaults_added2() -> Mutation:

    def f(x, k):
        return x * k

    def g(x):
        try:
            return f(x)
        except TypeError:
            return x + 1

    return changing(g, lambda: setattr(f, "__defaults__", (2.0,)))


@mutation
def defaults_longer() -> Mutation:

    def f(x, j, k=2.0):
        return x * k + j

    return changing(lambda x: f(x, 1.0), lambda: setattr(f, "__defaults__", (3.0, 4.0)))


@mutation
def defaults_longer_same_first() -> Mutation:

    def f(x, j, k=2.0):
        return x * k + j

    return changing(lambda x: f(x, 1.0), lambda: setattr(f, "__defaults__", (2.0, 4.0)))


@mutation
def default_obj_mutated() -> Mutation:

    class C:
        a = 2.0

    c = C()

    def f(x, k=c):
        return x * k.a

    return changing(lambda x: f(x), lambda: setattr(c, "a", 5.0))


@mutation
def func_builtins() -> Mutation:
    g = {"__builtins__": {"len": len, "__build_class__": 1}}
    exec("def f(x,d): return x*len(d)", g)
    f = g["f"]
    d = [1]
    return changing(lambda x: f(x, d), lambda: g["__builtins__"].update(len=lambda a: 7))


@mutation
def callable_() -> Mutation:

    class D:
        pass

    d = D()
    return changing(lambda x: x * (2 if callable(d) else 3), lambda: setattr(D, "__call__", lambda s: 1))


@mutation
def hook_defaults_replaced() -> Mutation:

    def hook(module, args, out, k=2.0):
        return out * k

    block = nn.Linear(2, 2)
    block.register_forward_hook(hook)
    return changing(block, lambda: setattr(hook, "__defaults__", (7.0,)))


@mutation
def lru_cached() -> Mutation:
    calls = [2.0]

    @functools.lru_cache
    def k():
        return calls[0]

    def ch():
        calls[0] = 5.0
        k.cache_clear()

    return changing(lambda x: x * k(), ch)


@mutation
def lru_cached_bounded() -> Mutation:
    calls = [2.0]

    @functools.lru_cache(maxsize=4)
    def k(n):
        return calls[0] * n

    def ch():
        calls[0] = 5.0
        k.cache_clear()

    return changing(lambda x: x * k(2), ch)


@mutation
def lru_cached_unbounded() -> Mutation:
    calls = [2.0]

    @functools.cache
    def k(n, m):
        return calls[0] * n

    def ch():
        calls[0] = 5.0
        k.cache_clear()

    return changing(lambda x: x * k(2, "a"), ch)


@mutation
def lru_cached_unbounded_list() -> Mutation:
    calls = [2.0]

    @functools.cache
    def k():
        return [calls[0]]

    def ch():
        calls[0] = 5.0
        k.cache_clear()

    return changing(lambda x: x * k()[0], ch)


@mutation
def lru_other_keys() -> Mutation:

    @functools.lru_cache(maxsize=4)
    def k(n):
        return n

    return changing(lambda x: x * k(2), lambda: [k(3), k(4)], seen=False)
