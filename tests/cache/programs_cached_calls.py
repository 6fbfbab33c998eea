"""Programs that call functions with `functools.lru_cache`, which have effects: as they are, and as they change."""

from __future__ import annotations

from programs_changed import changed
from two_processes import Program

HEAD = """
import functools, logging
LOG = []
"""
TAIL = """
def args(): return (torch.ones(3),)
def after(result): return tuple(LOG)
def reset():
    LOG.clear()
    for each in CACHED: each.cache_clear()
"""


def program(text: str, tail: str = "CACHED = [g]") -> str:
    """Return a program whose calls leave their traces in LOG. The caches are empty when it is compiled."""
    return f"{HEAD}{text}{tail}\n{TAIL}"


G = "def g(n, k=1):\n    LOG.append((n, k))\n    return n * k * 2\n"
SELF = """class C:
    def __init__(self, n): self.n = n
    @functools.lru_cache(None)
    def g(self, k):
        LOG.append(k)
        return self.n * k
c = C(@@)
def f(x): return x * c.g(3)
"""

AS_THEY_ARE: dict[str, Program] = {
    "without_limit": Program(program("@functools.cache\n" + G + "def f(x): return x * g(3) + g(4) + g(3)\n")),
    "with_limit": Program(program("@functools.lru_cache(2)\n" + G + "def f(x): return x * g(3) + g(4)\n")),
    "keywords": Program(program("@functools.lru_cache\n" + G + "def f(x): return x * g(3, k=2) + g(3)\n")),
    "types_apart": Program(
        program("@functools.lru_cache(typed=True)\n" + G + "def f(x): return x * g(1) + g(1.0) + g(True)\n")
    ),
    "method": Program(program(SELF.replace("@@", "2"), "CACHED = [C.g]")),
    "argument_of_the_frame": Program(
        program("@functools.cache\n" + G + "def f(x): return x * g(x.shape[0]) + len(g.__name__)\n")
    ),
    "tuple": Program(
        program("@functools.cache\ndef g(t):\n    LOG.append(t)\n    return sum(t)\ndef f(x): return x * g((1, 2))\n")
    ),
    "message_shown_once": Program(
        program(
            "class Keep(logging.Handler):\n    def emit(self, record): LOG.append(record.getMessage())\n"
            "log = logging.getLogger(__name__)\nlog.addHandler(Keep())\n"
            "@functools.lru_cache(None)\ndef g(self, *args): self.warning(*args)\n"
            "class Logger(logging.Logger): once = g\nlog.__class__ = Logger\n"
            "def f(x):\n    log.once('old')\n    return x + 1\n"
        )
    ),
    "written_and_put_back": Program(
        program(
            "class S: flag = False\ns = S()\ns.flag = False\n@functools.cache\n" + G + "def f(x):\n    s.flag = True\n"
            "    y = x + s.flag\n    s.flag = False\n    return y * g(3)\n"
        )
    ),
    "one_clears_the_cache_of_another": Program(
        program(
            "@functools.cache\n" + G + "@functools.cache\ndef h(n):\n    g.cache_clear()\n    return n\n"
            "def f(x): return x * g(3) * h(3) * g(3)\n",
            "CACHED = [g, h]",
        )
    ),
    "used_last": Program(
        program("@functools.lru_cache(3)\n" + G + "def f(x): return x * g(1) * g(2) * g(1)\n").replace(
            "return tuple(LOG)", "g(5); g(6); LOG.append('after'); g(1); return tuple(LOG)"
        )
    ),
    "layers": Program(
        program(
            "class Layer(torch.nn.Module):\n    def __init__(self, n):\n        super().__init__()\n"
            "        self.n = n\n        self.linear = torch.nn.Linear(3, 3)\n"
            "    def forward(self, x): return self.linear(x) * g(self)\n"
            "@functools.cache\ndef g(layer):\n    LOG.append(layer.n)\n    return layer.n\n"
            "layers = [Layer(n) for n in range(1, 6)]\ndef f(x):\n    for layer in layers: x = layer(x)\n    return x\n"
        )
    ),
    "written_and_put_back_unread": Program(
        program(
            "class S: pass\ns = S()\ns.flag = False\n@functools.cache\n" + G + "def f(x):\n    s.flag = True\n"
            "    s.flag = False\n    return x * g(3)\n"
        )
    ),
    "written": Program(
        program(
            "class S: pass\ns = S()\n@functools.cache\n" + G + "def f(x):\n    s.kept = {'x': x}\n    return x * g(3)\n"
        )
    ),
    "of_a_library": Program(
        "from library_with_cache import g, LOG\n" + program("def f(x): return x * g(5)\n").replace("LOG = []", ""),
        None,
        {"library_with_cache": ("import functools\nLOG = []\n@functools.cache\n" + G,) * 2},
    ),
}

NOT_CALLED_TWICE: dict[str, Program] = {
    "reads_a_global": changed(
        program(
            "N = @@\n@functools.cache\ndef g(n):\n    LOG.append(n)\n    return n * N\ndef f(x): return x * g(3)\n"
        ),
        *("2", "3", ""),
    ),
    "calls_another": changed(
        program(
            "def h(n): return n * @@\n@functools.cache\ndef g(n):\n    LOG.append(n)\n    return h(n)\n"
            "def f(x): return x * g(3)\n"
        ),
        *("2", "3", ""),
    ),
    "reads_its_object": changed(program(SELF, "CACHED = [C.g]"), "2", "3", ""),
    "second_of_two": changed(
        program(
            "N = @@\n@functools.cache\ndef g(n):\n    LOG.append(n)\n    return n if n < 3 else n * N\n"
            "def f(x): return x * g(1) * g(3) * g(4)\n"
        ),
        *("2", "3", ""),
    ),
    "decides_about_the_next": changed(
        program(
            "N = @@\n@functools.cache\ndef g(n):\n    LOG.append(n)\n    return N\n"
            "def f(x): return x * g(2) if g(1) else x + 1\n"
        ),
        *("1", "0", ""),
    ),
    "not_called_if_a_guard_fails": changed(
        program("FLAG = @@\n@functools.cache\n" + G + "def f(x): return x * g(3) if FLAG else x + 1\n"),
        *("True", "False", ""),
    ),
    "not_called_if_another_is_there": changed(
        program(
            "@functools.cache\n"
            + G
            + "@functools.cache\ndef h(n): return n * 7\nnow = @@\ndef f(x): return x * now(3)\n"
        ),
        *("g", "h", ""),
    ),
    "not_called_if_it_does_something_else": changed(
        program("@functools.cache\ndef g(n):\n    LOG.append(n)\n    return n * @@\ndef f(x): return x * g(3)\n"),
        *("2", "3", ""),
    ),
    "writes_what_the_frame_reads": changed(
        program(
            "S = [1]\n@functools.cache\ndef g(n):\n    LOG.append(n)\n    S[0] = @@\n    return n\n"
            "def f(x): return x * g(3) + S[0]\n",
            "CACHED = [g]\nS[0] = 1",
        ),
        *("5", "6", ""),
    ),
    "reads_the_grad_mode": changed(
        program(
            "@functools.cache\ndef g(n):\n    LOG.append(n)\n    return n * (1 + torch.is_grad_enabled())\n"
            "def f(x):\n    with torch.no_grad():\n        return x * g(3) * @@\n"
        ),
        *("2", "3", ""),
    ),
    "cleared_by_another": Program(
        program(
            "@functools.cache\n" + G + "@functools.cache\ndef h(n):\n    g.cache_clear()\n    return n\n"
            "def f(x): return x * g(3) * h(3)\n",
            "import torchdynamo\nagain = torchdynamo.compile(f, backend='eager')\nCACHED = [g, h]",
        ).replace("return tuple(LOG)", "again(torch.ones(3)); again(torch.ones(3)); return tuple(LOG)")
    ),
    "full": changed(
        program(
            "@functools.lru_cache(3)\ndef g(n):\n    LOG.append(n)\n    return n * N\n"
            "N = 1\nFIRST = @@\ndef f(x): return x * g(3) * g(4)\n",
            "class Full:\n    def cache_clear(self): g.cache_clear(); g(1); LOG.clear()\n"
            "CACHED = [g if FIRST else Full()]",
        ),
        *("True", "False", ""),
    ),
}

RAISES = """
@functools.cache
def g(n):
    LOG.append(n)
    if @@: raise ValueError(n)
    return n
def f(x):
    try: return x * g(3)
    except ValueError: return x - 1
"""
FEW = program("N = @@\n" + RAISES.replace("@@", "N")).replace("return tuple(LOG)", "return len(LOG) <= 2")
"""Nothing is kept of a call that raises: whoever asks first has the effects once more, but only one of them does."""
THAT_RAISE: dict[str, Program] = {
    "raises_later": changed(FEW, "False", "True", ""),
    "raised_before": changed(FEW, "True", "False", ""),
}
