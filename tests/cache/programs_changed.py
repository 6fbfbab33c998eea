"""Programs that change between two processes: what the first has stored must not serve the second, if it is another.

Some changes do not concern a program; then a hit is right, and is counted nowhere. What is asked is equality to eager.
"""

from __future__ import annotations

from two_processes import Program

X = "def args(): return (torch.ones(3),)\n"


def changed(template: str, before: str, after: str, arguments: str = X) -> Program:
    """Return a program in which one place changes. It must take the same lines before and after."""
    return Program(template.replace("@@", before) + arguments, template.replace("@@", after) + arguments)


INT_ENUM = """
import enum
class Act(enum.IntEnum):
    @@
"""


def operator(name: str, kernel: str, fake: str = "torch.empty_like(x)", call: str = "op(x) + 1") -> str:
    """Return a program with a custom operator."""
    return (
        f"@torch.library.custom_op('storetest{name}::op', mutates_args=())\n"
        f"def op(x: torch.Tensor) -> torch.Tensor: return {kernel}\n"
        f"@op.register_fake\ndef _(x): return {fake}\ndef f(x): return {call}\n"
    )


CHANGED: dict[str, Program] = {
    # -- NumPy
    "numpy_function": changed(
        "import numpy as np\ng = np.@@\ndef f(x): return x * float(g(4.0)), g(4.0)\n", "sqrt", "cbrt"
    ),
    "numpy_sum": changed(
        "import numpy as np\ng = np.@@\ndef f(x): return x * float(g([2, 3])), g([2, 3])\n", "sum", "prod"
    ),
    "numpy_scalar": changed("import numpy as np\ndef f(x): return x * 2, np.float32(@@) * 2\n", "2", "3"),
    "numpy_errors": changed(
        "import numpy as np\nnp.seterr(divide='@@')\ndef f(x): return x * 2, np.log(np.float64(0.0))\n",
        "ignore",
        "raise",
    ),
    "numpy_function_of_an_array": changed(
        "import numpy as np\ng = np.@@\ndef f(x): return torch.from_numpy(g(x.numpy())) + 1\n", "sqrt", "cbrt"
    ),
    "numpy_function_by_name": changed(
        "import numpy as np\n@@\ndef f(x): return torch.from_numpy(np.cumsum(x.numpy())) + 1\n",
        "",
        "np.cumsum = np.sqrt",
    ),
    "numpys_generator": changed(
        "import numpy as np\nrng = np.random.@@(0)\ndef f(x): return torch.from_numpy(rng.standard_normal(3)) + x\n"
        "def reset():\n    global rng\n    rng = np.random.@@(0)\n",
        "default_rng",
        "RandomState",
    ),
    "array_of_another_type": changed(
        "import numpy as np\nbox = np.arange(3, dtype='@@')\ndef f(x): return x + torch.from_numpy(x.numpy() * box)\n",
        "float32",
        "float64",
    ),
    "number_of_the_program_in_an_array": changed(
        "import numpy as np\nby = @@\ndef f(x): return torch.from_numpy(x.numpy() * by) + 1\n", "2", "3"
    ),
    "lock_that_is_held": changed(
        "import threading\nlock = threading.@@\ndef f(x):\n    with lock:\n        return x * 2\n",
        "RLock()",
        "RLock(); lock.acquire()",
    ),
    "lock_of_another_kind": changed(
        "import threading\nlock = threading.@@()\ndef f(x):\n    with lock:\n        x = x * 2\n"
        "    with lock:\n        return x + lock.acquire(blocking=False)\n"
        "def after(given):\n    lock.release()\n",
        "Lock",
        "RLock",
    ),
    "flag_that_a_module_of_torchs_makes": changed(
        "import torch.utils.deterministic as home\nhome.fill_uninitialized_memory = @@\n"
        "def f(x): return x + home.fill_uninitialized_memory\n",
        "True",
        "False",
    ),
    "flag_that_no_module_has_until_it_is_asked": changed(
        "torch.backends.opt_einsum.enabled = @@\ndef f(x): return x + torch.backends.opt_einsum.enabled\n",
        "False",
        "torch.backends.opt_einsum.is_available()",
    ),
    "module_that_makes_its_names_in_place_of_torchs": changed(
        "import types, torch.utils.deterministic\nclass Made(types.ModuleType):\n"
        "    def __getattr__(self, name): return False\n"
        "home = @@\ndef f(x): return x + home.fill_uninitialized_memory\n",
        "torch.utils.deterministic",
        "Made('other')",
    ),
    "what_a_comprehension_calls_that_breaks": changed(
        "def g(x): return x + 1 if x.sum() > 0 else x - 1\ndef h(x): return x + 2 if x.sum() > 0 else x - 1\n"
        "def f(x): return [@@(each.cos()).sin() for each in (x, x * 2)]\n",
        "g",
        "h",
    ),
    "comprehension_that_breaks": changed(
        "def g(x): return x + 1 if x.sum() > 0 else x - 1\n"
        "def f(x): return [g(each.cos()).@@() for each in (x, x * 2)]\n",
        "sin",
        "cos",
    ),
    "inner_function_that_breaks": changed(
        "def among(x):\n    def inner(v):\n        if v.sum() > 0:\n            v = v * 2\n        return v.@@()\n"
        "    return inner(x) + 1\ndef f(x): return among(x)\n",
        "sin",
        "cos",
    ),
    # -- what is called again, or compared by its parts
    "declared_constant": changed(
        "import torchdynamo\nVALUES = [@@]\n@torchdynamo.assume_constant_result\ndef g(): return VALUES[0]\n"
        "def f(x): return x * g()\n",
        "2",
        "3",
    ),
    "alias_of_a_type": changed(
        "A = list[@@]\nB = list[int]\ndef f(x): return x + (A == B), A is B, A.__args__[0] is int\n", "int", "str"
    ),
    "own_kind_of_property": changed(
        "class Own(property): pass\nclass Box:\n    size = Own(lambda self: @@)\nbox = Box()\n"
        "def f(x): return x * box.size\n",
        "2",
        "3",
    ),
    "function_of_a_static_method": changed(
        "class Box:\n    @staticmethod\n    def one(x): return x * 2\n    @staticmethod\n    def two(x): return x * 3\n"
        "g = Box.@@\ndef f(x): return g(x)\n",
        "one",
        "two",
    ),
    # -- enums
    "int_enum_arithmetic": changed(INT_ENUM + "def f(x): return x * Act.SCALE\n", "SCALE = 2", "SCALE = 3"),
    "int_enum_compared": changed(
        INT_ENUM + "def f(x): return x + 1 if Act.A > Act.B else x\n", "A = 2; B = 1", "A = 1; B = 2"
    ),
    "string_enum_compared": changed(
        "import enum\nclass Kind(str, enum.Enum):\n    A = @@\ndef f(x): return x + 1 if Kind.A == 'a' else x - 1\n",
        "'a'",
        "'b'",
    ),
    "string_enum_as_key": changed(
        "import enum\nclass Kind(str, enum.Enum):\n    A = @@\ntable = {'a': 1, 'b': 2}\n"
        "def f(x): return x * table[Kind.A]\n",
        "'a'",
        "'b'",
    ),
    "flag": changed(
        "import enum\nclass Bits(enum.IntFlag):\n    A = @@\n    B = 2\ndef f(x): return x * (Bits.A & 6)\n", "4", "2"
    ),
    "value_of_enum": changed(
        "import enum\nclass Kind(enum.Enum):\n    A = @@\ndef f(x): return x * Kind.A.value\n", "2", "3"
    ),
    "members_in_another_order": changed(
        "import enum\nclass Kind(enum.Enum):\n    @@\ndef f(x):\n    for at, kind in enumerate(Kind):\n"
        "        x = x * at + kind.value\n    return x\n",
        "A = 1; B = 2",
        "B = 2; A = 1",
    ),
    "enum_as_dimension": changed(
        "import enum\nclass Axis(enum.IntEnum):\n    ROW = @@\ndef f(x): return x.sum(dim=Axis.ROW)\n",
        "0",
        "1",
        "def args(): return (torch.arange(6.).reshape(2, 3),)\n",
    ),
    # -- registrations
    "registered_with_abstract_class": changed(
        "import abc\nclass Base(abc.ABC): pass\nclass A: pass\nclass B: pass\nBase.register(@@)\n"
        "def f(x): return x + 1 if isinstance(A(), Base) else x - 1\n",
        "A",
        "B",
    ),
    "not_registered_any_more": changed(
        "import abc\nclass Base(abc.ABC): pass\nclass A: pass\nclass B: pass\nBase.register(@@)\n"
        "def f(x): return x + 1 if isinstance(A(), Base) else x - 1\n",
        "B",
        "A",
    ),
    "singledispatch": changed(
        "import functools\n@functools.singledispatch\ndef g(n, x): return x\n@g.register(@@)\n"
        "def _(n, x): return x + 5\n"
        "def f(x): return g(1, x)\n",
        "int",
        "str",
    ),
    "protocol": changed(
        "import typing\n@typing.runtime_checkable\nclass P(typing.Protocol):\n    def @@(self): ...\n"
        "class A:\n    def run(self): pass\na = A()\ndef f(x): return x + 1 if isinstance(a, P) else x - 1\n",
        "run",
        "go",
    ),
    # -- the same code elsewhere
    "helper_of_another_module": Program(
        "from a_of_helper import g\ndef f(x): return g(x)\n" + X,
        "from b_of_helper import g\ndef f(x): return g(x)\n" + X,
        {
            "a_of_helper": ("N = 2\ndef g(x): return x * N\n", "N = 2\ndef g(x): return x * N\n"),
            "b_of_helper": ("N = 3\ndef g(x): return x * N\n", "N = 3\ndef g(x): return x * N\n"),
        },
    ),
    "helper_edited": Program(
        "from edited_helper import g\ndef f(x): return g(x)\n" + X,
        None,
        {"edited_helper": ("def g(x): return x * 2\n", "def g(x): return x * 3\n")},
    ),
    "function_in_a_helper": Program(
        "from helper_with_inner import g\ndef f(x): return g(x)\n" + X,
        None,
        {
            "helper_with_inner": tuple(
                f"def g(x):\n    inner = lambda y: y * {n}\n    print(end='')\n    return inner(x)\n" for n in (2, 3)
            )
        },
    ),
    "global_of_helper": Program(
        "from helper_with_global import g\ndef f(x): return g(x)\n" + X,
        None,
        {"helper_with_global": ("N = 2\ndef g(x): return x * N\n", "N = 3\ndef g(x): return x * N\n")},
    ),
    "lambdas": changed("fs = [lambda x: x + 1, lambda x: x * 5]\ng = fs[@@]\ndef f(x): return g(x)\n", "0", "1"),
    "executed_text": changed(
        "space = {}\nexec('def g(x): return x * N', space)\nspace['N'] = @@\ng = space['g']\ndef f(x): return g(x)\n",
        "2",
        "3",
    ),
    "wrapper": changed(
        "import functools\ndef deco(n):\n    def outer(fn):\n        @functools.wraps(fn)\n"
        "        def inner(x): return fn(x) * n\n        return inner\n    return outer\n"
        "@deco(@@)\ndef g(x): return x + 1\ndef f(x): return g(x)\n",
        "2",
        "3",
    ),
    # -- what surrounds code
    "default": changed("def g(x, n=@@): return x * n\ndef f(x): return g(x)\n", "2", "3"),
    "keyword_default": changed("def g(x, *, n=@@): return x * n\ndef f(x): return g(x)\n", "2", "3"),
    "cell": changed(
        "def make(n):\n    def g(x): return x * n\n    return g\ng = make(@@)\ndef f(x): return g(x)\n", "2", "3"
    ),
    "constant_in_tuple": changed("T = (1, (2, @@))\ndef f(x): return x * T[1][1]\n", "2", "3"),
    "docstring": changed("def g(x):\n    @@\ndef f(x): return x * len(g.__doc__)\n", "'a'", "'abc'"),
    "name_of_function": changed(
        "def @@(x): pass\ng = globals().get('short') or longer\ndef f(x): return x * len(g.__name__)\n",
        "short",
        "longer",
    ),
    "first_line": changed("@@\ndef g(x): return x\ndef f(x): return x * g.__code__.co_firstlineno\n", "", "\n\n"),
    "qualified_name": changed(
        "class A: pass\nclass Bcde: pass\nc = @@\ndef f(x): return x * len(c.__qualname__)\n", "A", "Bcde"
    ),
    "base_class": changed(
        "class A:\n    n = 2\nclass B:\n    n = 3\nclass C(@@): pass\ndef f(x): return x * C.n\n", "A", "B"
    ),
    "order_of_bases": changed(
        "class A:\n    n = 2\nclass B:\n    n = 3\nclass C(@@): pass\ndef f(x): return x * C().n\n", "A, B", "B, A"
    ),
    "is_subclass": changed(
        "class A: pass\nclass B: pass\nclass C(@@): pass\ndef f(x): return x + 1 if issubclass(C, A) else x\n", "A", "B"
    ),
    "metaclass": changed(
        "class M(type):\n    def __len__(cls): return 2\nclass N(type):\n    def __len__(cls): return 3\n"
        "class C(metaclass=@@): pass\ndef f(x): return x * len(C)\n",
        "M",
        "N",
    ),
    "slots": changed(
        "class C:\n    __slots__ = @@\nc = C()\ndef f(x): return x + 1 if hasattr(c, '__dict__') else x\n",
        "('a',)",
        "('a', '__dict__')",
    ),
    "fields_of_namedtuple": changed(
        "import collections\nP = collections.namedtuple('P', @@)\np = P(2, 3)\ndef f(x): return x * p.a\n",
        "'a b'",
        "'b a'",
    ),
    "default_of_dataclass": changed(
        "import dataclasses\n@dataclasses.dataclass\nclass C:\n    n: int = @@\ndef f(x): return x * C().n\n", "2", "3"
    ),
    "fields_of_dataclass": changed(
        "import dataclasses\n@dataclasses.dataclass\nclass C:\n    @@\n"
        "def f(x): return x * len(dataclasses.fields(C))\n",
        "a: int = 1",
        "a: int = 1; b: int = 2",
    ),
    "property": changed(
        "class C:\n    @property\n    def n(self): return @@\nc = C()\ndef f(x): return x * c.n\n", "2", "3"
    ),
    "partial": changed(
        "import functools\ndef g(x, n): return x * n\nh = functools.partial(g, n=@@)\ndef f(x): return h(x)\n", "2", "3"
    ),
    "partial_in_class": changed(
        "import functools\ndef g(n): return n\nclass C:\n    h = functools.partial(g, @@)\n"
        "def f(x): return x * C.h()\n",
        "2",
        "3",
    ),
    "itemgetter": changed(
        "import operator\nget = operator.itemgetter(@@)\ndef f(x): return x * get([2, 3])\n", "0", "1"
    ),
    "attrgetter": changed(
        "import operator\nclass C:\n    a = 2; b = 3\nget = operator.attrgetter(@@)\ndef f(x): return x * get(C)\n",
        "'a'",
        "'b'",
    ),
    "pattern": changed(
        "import re\np = re.compile(@@)\ndef f(x): return x + 1 if p.match('abc') else x - 1\n", "'a'", "'b'"
    ),
    "cached_function": changed(
        "import functools\n@functools.lru_cache\ndef g(n): return n * @@\ndef f(x): return x * g(2)\n", "2", "3"
    ),
    "cached_property": changed(
        "import functools\nclass C:\n    @functools.cached_property\n    def n(self): return @@\n"
        "def f(x): return x * C().n\n",
        "2",
        "3",
    ),
    "subclasses": changed(
        "class A: pass\nclass B(@@): pass\ndef f(x): return x * len(A.__subclasses__())\n", "A", "object"
    ),
    "static_method": changed(
        "class C:\n    @staticmethod\n    def n(): return @@\ndef f(x): return x * C.n()\n", "2", "3"
    ),
    "attribute_hook": changed(
        "class C:\n    def __getattr__(self, name): return @@\nc = C()\ndef f(x): return x * c.n\n", "2", "3"
    ),
    "operator_appears": changed(
        "class C:\n    def __init__(self): self.n = 2\n    def __len__(self): return 2\n    @@\nc = C()\n"
        "def f(x): return x + 1 if c else x - 1\n",
        "pass",
        "def __bool__(self): return False",
    ),
    "dict_in_class": changed("class C:\n    m = {'a': @@}\ndef f(x): return x * C.m['a']\n", "2", "3"),
    "dict_order": changed(
        "d = {@@}\ndef f(x):\n    for at, key in enumerate(d):\n        x = x * 2 + at * d[key]\n    return x\n",
        "'a': 1, 'b': 2",
        "'b': 2, 'a': 1",
    ),
    "finfo": changed("i = torch.finfo(@@)\ndef f(x): return x * i.bits\n", "torch.float32", "torch.float16"),
    "float_sign": changed("z = @@\ndef f(x): return x * z\n", "0.0", "-0.0"),
    "bool_for_int": changed("z = @@\ndef f(x): return x + 1 if z is True else x\n", "1", "True"),
    "long_string": changed("s = @@\ndef f(x): return x * len(s)\n", "'abc def'", "'abc def ghi'"),
    # -- identity
    "tied_weights": changed(
        "a = torch.ones(3)\nb = @@\ndef f(x):\n    a.add_(1)\n    return x * a + b\n"
        "def reset(): a.fill_(1); b.fill_(1)\n",
        "torch.ones(3)",
        "a",
    ),
    "sentinel": changed(
        "MISSING = object()\nvalue = @@\ndef f(x): return x + 1 if value is MISSING else x - 1\n", "MISSING", "object()"
    ),
    "sentinel_met": changed(
        "MISSING = object()\nvalue = @@\ndef f(x): return x + 1 if value is MISSING else x - 1\n", "object()", "MISSING"
    ),
    "shared_dict": changed(
        "class A:\n    m = {'a': 1}\nclass B:\n    m = @@\ndef f(x): return x + 1 if A.m is B.m else x - 1\n",
        "A.m",
        "{'a': 1}",
    ),
    "dict_comes_together": changed(
        "class A:\n    m = {'a': 1}\nclass B:\n    m = @@\ndef f(x): return x + 1 if A.m is B.m else x - 1\n",
        "{'a': 1}",
        "A.m",
    ),
    "module_used_twice": changed(
        "torch.manual_seed(3)\na = torch.nn.Linear(3, 3)\nb = @@\ndef f(x): return b(a(x))\n",
        "torch.nn.Linear(3, 3)",
        "a",
    ),
    "lists_become_one": changed(
        "a = [1]\nb = @@\ndef f(x):\n    a.append(2)\n    return x * len(b)\ndef reset():\n    del a[1:], b[1:]\n",
        "[1]",
        "a",
    ),
    # -- shapes, dtypes, gradients
    "shape": Program(
        "def f(x): return x * x.shape[0]\ndef args(): return (torch.ones(3),)",
        "def f(x): return x * x.shape[0]\ndef args(): return (torch.ones(4),)",
    ),
    "dtype": Program(
        "def f(x): return x + 1.5\ndef args(): return (torch.ones(3),)",
        "def f(x): return x + 1.5\ndef args(): return (torch.ones(3, dtype=torch.int64),)",
    ),
    "requires_grad": Program(
        "def f(x): return x.requires_grad, x * 2\ndef args(): return (torch.ones(3),)",
        "def f(x): return x.requires_grad, x * 2\ndef args(): return (torch.ones(3, requires_grad=True),)",
    ),
    "default_dtype": changed(
        "torch.set_default_dtype(@@)\ndef f(x): return torch.zeros(3) + 1, x\ndef reset(): pass\n",
        "torch.float32",
        "torch.float64",
        "def args(): return (torch.ones(3, dtype=torch.float32),)\n",
    ),
    "operator_replaced": changed(
        "@@\ndef f(x): return torch.special.i0e(x)\n",
        "pass",
        "lib = torch.library.Library('aten', 'IMPL')\n"
        "lib.impl('special_i0e', lambda x: torch.full_like(x, 7.0), 'CPU')",
    ),
    "result_declared_constant": Program(
        *2
        * (
            "import torchdynamo, other_result\nc = torchdynamo.assume_constant_result(other_result.c)\n"
            "def f(x): return x * c()\n" + X,
        ),
        files={"other_result": ("K = 2\ndef c(): return K\n", "K = 3\ndef c(): return K\n")},
    ),
    "custom_operator": changed(operator("one", "x * @@"), "2", "3"),
    "fake_of_operator": changed(operator("two", "x[:1].repeat(@@)", "x.new_empty(@@)"), "2", "3"),
    "what_a_fake_reads": changed(
        "N = @@\ndef size(x): return (N,)\n" + operator("three", "x[:1].repeat(N)", "x.new_empty(size(x))"), "2", "3"
    ),
    "module_that_a_fake_reads": Program(
        *2
        * (
            "import read_by_fake\n"
            + operator("four", "x[:1].repeat(read_by_fake.N)", "x.new_empty(read_by_fake.N)")
            + X,
        ),
        files={"read_by_fake": ("N = 2\n", "N = 3\n")},
    ),
    "operator_on_constants": changed(operator("five", "x * @@", call="x * op(torch.ones(3))"), "2", "3"),
    "operator_of_a_library": changed(
        "lib = torch.library.Library('storetest6', 'DEF')\nlib.define('op(Tensor x) -> Tensor')\n"
        "lib.impl('op', lambda x: x * @@, 'CompositeImplicitAutograd')\ndef f(x): return torch.ops.storetest6.op(x)\n",
        "2",
        "3",
    ),
    "assertion_fails": changed(
        "rows = torch.nn.Embedding(4, 2)\nstate = torch.zeros(2)\n"
        "def f(x):\n    state.add_(1)\n    noise = torch.rand(2, 2)\n    if not (x >= 0).all():\n"
        "        raise ValueError('negative')\n    return rows(x) + noise\n"
        "def args():\n    state.zero_()\n    return torch.tensor([@@, 2]), \n"
        "def reset(): assert state.tolist() == [1, 1]\n",
        "1",
        "-1",
        "",
    ),
    "module_that_makes_its_names": changed(
        "import types\nclass M(types.ModuleType):\n    def __getattr__(self, name): return @@\nm = M('m')\n"
        "def f(x): return x * m.scale\n",
        "2",
        "3",
    ),
}

HASHES: dict[str, Program] = {
    "hash_of_string": Program("def f(x): return x * (hash('abc') % 5)\n" + X),
    "hash_of_tuple": Program("def f(x): return x * (hash(('a', 'b')) % 5)\n" + X),
    "order_of_literal": Program(
        "def f(x):\n    for at, s in enumerate({'aa', 'b', 'cccc', 'ddd'}):\n        x = x * 2 + at * len(s)\n"
        "    return x\n" + X
    ),
    "pop": Program("def f(x):\n    s = {'aa', 'b', 'cccc'}\n    return x * len(s.pop())\n" + X),
    "dict_of_set": Program(
        "def f(x):\n    d = dict.fromkeys({'aa', 'b', 'cccc', 'ddd'})\n    return x * len(next(iter(d)))\n" + X
    ),
    "text_of_set": Program("def f(x): return x * len(str(frozenset(('aa', 'b', 'cccc'))).split(',')[0])\n" + X),
    "default_argument": Program(
        "def f(x, names=frozenset(('aa', 'b', 'cccc'))): return x * len(next(iter(names)))\n" + X
    ),
    "sorted_key": Program("def f(x): return x * len(sorted(('aa', 'b', 'cccc'), key=hash)[0])\n" + X),
    "order_of_names": Program("def f(x): return x, list(set(NAMES))\nNAMES = ['first', 'second', 'first']\n" + X),
    "orders_of_pairs": Program(
        "def f(x): return x, [list(set(each)) for each in NAMES], list(set(set(NAMES[0])))\n"
        "NAMES = [[f'name {n}', f'other {n}', 'third'][: 2 + n % 2] for n in range(50)]\n" + X
    ),
    "order_after_taking_away": Program(
        "def f(x):\n    s = set(NAMES)\n    s.discard('third')\n    s.add('fourth')\n    return x, list(s)\n"
        "NAMES = ['third', 'first', 'second']\n" + X
    ),
    "order_of_many": Program("def f(x): return x, list({f'{n} {n}' for n in range(9)})\n" + X),
    "order_of_a_set_that_was_there": Program("S = {'first', 'second'}\ndef f(x): return x, list(S)\n" + X),
    "set_returned": Program("def f(x): return x, list({'aa', 'b', 'cccc', 'dd'})\n" + X),
}


def replaced(function: str, place: str, by: str, given: str = "x", imports: str = "") -> Program:
    """Return a program that has a function of a library, in whose place there is another in the second process."""
    head = f"import torch.nn.functional as F\n{imports}\ng = {function}\n"
    rest = f"def f(x): return g({given}) + x\ndef args(): return (torch.ones(1, 2, 4),)\n"
    return Program(f"{head}pass\n{rest}", f"{head}{place} = {by}\n{rest}")  # lines stay where they are


REPLACED: dict[str, Program] = {
    "function_in_python": replaced("F.softmax", "F.softmax", "lambda x, d: x * 100", "x, 0"),
    "function_in_c": replaced("torch.sin", "torch.sin", "lambda x: x * 100"),
    "function_by_a_sibling": replaced("F.max_pool1d", "F.max_pool1d", "F.max_pool2d", "x, 1"),
    "what_numpys_function_calls": replaced(
        "np.sum",
        "np._core.fromnumeric._wrapreduction",
        "lambda *a, **k: 42.0",
        "[2, 3]",
        "import numpy as np\nimport numpy._core.fromnumeric",
    ),
    "module_of_numpys_function": replaced(
        "np.mean",
        "np._core._methods._mean",
        "lambda *a, **k: 42.0",
        "[2, 3]",
        "import numpy as np\nimport numpy._core._methods",
    ),
}
"""Programs in which functions of torch and NumPy are replaced: the second process goes on without these."""
