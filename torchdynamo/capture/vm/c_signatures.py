"""Signatures of functions in C that do not show theirs, written as `def` would have them."""

from __future__ import annotations

import _json
import _thread
import collections
import functools
import itertools
import math
import operator
import types
import weakref
from typing import Any

import torch

LOCK, RLOCK = type(_thread.allocate_lock()), type(_thread.RLock())

# By how they take them: the functions; a default says only that an argument may be left out.
SAID: dict[str, tuple[Any, ...]] = {
    "(item=None, /)": (vars, dir, bool),
    "(item, /)": (staticmethod, classmethod),
    "(cls=None, item=None, /)": (super,),
    "(item, default=None, /)": (iter, next, weakref.ReferenceType),
    "(items=(), /)": (set, frozenset),
    "(object, name, default=None, /)": (getattr,),
    "(function, items, /)": (filter,),
    "(function, items, /, *more)": (map,),
    "(start, stop=None, step=None, /)": (slice, range),
    "(*items)": (itertools.chain,),
    "(*items, strict=False)": (zip,),
    "(*items, fillvalue=None)": (itertools.zip_longest,),
    "(*items, repeat=1)": (itertools.product,),
    "(item, start, stop=None, step=None, /)": (itertools.islice,),
    "(object, times=None)": (itertools.repeat,),
    "(number, base=None, /)": (math.log,),
    "(value=0, /, base=10)": (int,),
    "(object='', encoding='', errors='')": (str,),
    "(source=b'', encoding='', errors='')": (bytes, bytearray),
    "(item, /, *items)": (operator.attrgetter, operator.itemgetter),
    "(user_function, maxsize, typed, cache_info_type)": (type(functools.lru_cache(len)),),
    "(context)": (_json.make_scanner,),
    "(markers, default, encoder, indent, key_separator, item_separator, sort_keys, skipkeys, allow_nan)": (
        _json.make_encoder,
    ),
    "(name, /, *args, **kwargs)": (operator.methodcaller, functools.partial),
    "(function, sequence, initial=None, /)": (functools.reduce,),
    "(mycmp)": (functools.cmp_to_key,),
    "(string, end, strict=True, /)": (_json.scanstring,),
    "(mapping)": (types.MappingProxyType,),
    "(**kwargs)": (types.SimpleNamespace,),
    "(items=(), /, **kwargs)": (dict,),
    "(default_factory=None, items=(), /, **kwargs)": (collections.defaultdict,),
    "(iterable=(), maxlen=None)": (collections.deque,),
    "(item, /, *items, key=None, default=None)": (min, max),
    "(self, other=(), /, **kwargs)": (dict.update, collections.OrderedDict.update),
    "(self, key, default=None)": (collections.OrderedDict.pop,),
    "(self, key, default=None, /)": (dict.pop, types.MappingProxyType.get),
    "(self, sub, start=None, end=None, /)": (
        *(bytearray.count, bytearray.find, bytearray.index, bytearray.rfind, bytearray.rindex),
        *(bytearray.startswith, bytearray.endswith),
    ),
    "(self, sep=None, bytes_per_sep=1)": (bytearray.hex, memoryview.hex),
    "(self, format, shape=())": (memoryview.cast,),
    "(self, n=1, /)": (collections.deque.rotate,),
    "(self, value, start=0, stop=0, /)": (collections.deque.index,),
    "(self, index, object, /)": (collections.deque.insert,),
    "(self, type, value=None, traceback=None, /)": (types.GeneratorType.throw,),
    "(self, blocking=True, timeout=-1)": (LOCK.acquire, LOCK.__enter__, RLOCK.acquire, RLOCK.__enter__),
    # torch
    "(*, level)": (torch._C._exit_dual_level,),
    "(*args, device=None)": (torch.Tensor, *torch._tensor_classes),
    "(device=None)": (torch.Generator,),
    "(tensor, num_classes=-1)": (torch.nn.functional.one_hot,),
    "(self, /, *, force=False)": (torch.Tensor.numpy,),
    "(self, /, requires_grad=True)": (torch.Tensor.requires_grad_,),
    "(self, /, cls)": (torch.Tensor.as_subclass,),
}
# Types whose `__new__` looks at the arguments although they have an `__init__`, which looks again.
BOTH_LOOK = frozenset({weakref.ReferenceType})
