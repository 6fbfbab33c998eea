"""Random changes of a random world, which read nothing but the world and its dice: equal worlds stay equal."""

from __future__ import annotations

import builtins
import enum
import importlib.machinery
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from random_worlds import CLASS_NAMES, NAMES, World
from torch import nn

Change = Callable[[World, list[Any]], str]  # given what there is; says what it did, or "" where there was nothing to do


def things(world: World) -> list[Any]:
    """Every container and tensor of the world, in an order that equal worlds share."""
    found: list[Any] = []
    seen: set[int] = set()
    todo: list[Any] = [world.root, world.net, world.items, world.table, world.globals["G"], world.cell]
    while todo:
        obj = todo.pop(0)
        if id(obj) in seen or isinstance(obj, (int, float, str, type(None))):
            continue
        seen.add(id(obj))
        found.append(obj)
        todo += inside(obj)
    return found


def inside(obj: Any) -> list[Any]:
    """What an object holds."""
    if isinstance(obj, dict):
        return list(obj.values())
    if isinstance(obj, (list, tuple)):
        return list(obj)
    if isinstance(obj, types.CellType):
        return [obj.cell_contents]
    if isinstance(obj, nn.Module):
        return [*obj._parameters.values(), *obj._buffers.values(), *obj._modules.values()]
    if isinstance(obj, torch.Tensor):
        return []
    return [getattr(obj, name) for name in NAMES if name in getattr(obj, "__dict__", ()) or has_slot(obj, name)]


def has_slot(obj: Any, name: str) -> bool:
    """Whether a slot of the object is filled."""
    return not hasattr(obj, "__dict__") and hasattr(obj, name)


def pick(world: World, found: list[Any], *kinds: Any) -> Any:
    """One thing of these kinds, or None."""
    fitting = [obj for obj in found if isinstance(obj, kinds)]
    return world.rng.choice(fitting) if fitting else None


def instances(world: World, found: list[Any]) -> list[Any]:
    """Those of the world's plain classes."""
    return [obj for obj in found if type(obj).__name__ in CLASS_NAMES]


def something(world: World, found: list[Any]) -> Any:
    """A new value, or one that is in the world already."""
    return world.rng.choice(found) if world.rng.random() < 0.25 and found else world.grow(1)


# ---- Changes --------------------------------------------------------------------------------------------------------


def attribute(world: World, found: list[Any]) -> str:
    obj = world.rng.choice(instances(world, found) or [None])
    if obj is None:
        return ""
    name = world.rng.choice(NAMES)
    if world.rng.random() < 0.25:
        if name in getattr(obj, "__dict__", ()) or has_slot(obj, name):
            delattr(obj, name)
            return f"del {type(obj).__name__}.{name}"
        return ""
    setattr(obj, name, something(world, found))
    return f"{type(obj).__name__}.{name} ="


def shadow(world: World, found: list[Any]) -> str:
    obj = world.rng.choice(instances(world, found) or [None])
    if obj is None or not hasattr(obj, "__dict__"):
        return ""
    if "step" in vars(obj):
        del obj.step
        return "del instance.step"
    obj.step = lambda acc: acc + 51
    return "instance.step ="


def class_reassigned(world: World, found: list[Any]) -> str:
    obj = world.rng.choice([each for each in instances(world, found) if hasattr(each, "__dict__")] or [None])
    if obj is None:
        return ""
    obj.__class__ = getattr(world.classes, world.rng.choice(CLASS_NAMES[:3]))
    return "__class__ ="


def class_attribute(world: World, found: list[Any]) -> str:
    cls = getattr(world.classes, world.rng.choice(CLASS_NAMES[:3]))
    kind = world.rng.randrange(5)
    if kind == 0:
        factor = world.rng.randrange(2, 9)
        cls.step = lambda self, acc: acc * factor
        return f"{cls.__name__}.step ="
    if kind == 1:
        number = world.rng.randrange(60, 70)
        cls.size = property(lambda self: number)
        return f"{cls.__name__}.size = property"
    name = world.rng.choice(["c", "d", "size"])
    if kind == 2 and name in vars(cls):
        delattr(cls, name)
        return f"del {cls.__name__}.{name}"
    setattr(cls, name, world.leaf())
    return f"{cls.__name__}.{name} ="


def sequence(world: World, found: list[Any]) -> str:
    obj = pick(world, found, list)
    if obj is None:
        return ""
    kind = world.rng.choice(["append", "pop", "set", "reverse", "insert"])
    if kind == "append":
        obj.append(something(world, found))
    elif kind == "insert":
        obj.insert(0, something(world, found))
    elif obj and kind == "pop":
        obj.pop(world.rng.randrange(len(obj)))
    elif obj and kind == "set":
        obj[world.rng.randrange(len(obj))] = something(world, found)
    else:
        obj.reverse()
    return f"list {kind}"


def mapping(world: World, found: list[Any]) -> str:
    obj = pick(world, found, dict)
    if obj is None:
        return ""
    kind = world.rng.choice(["set", "del", "move", "new"])
    if obj and kind in ("del", "move", "set"):
        key = world.rng.choice(list(obj))
        value = obj[key] if kind == "set" else obj.pop(key)
        if kind != "del":
            obj[key] = value if kind == "move" else something(world, found)
    else:
        obj[world.rng.choice([*NAMES, 0, 1, True])] = something(world, found)
    return f"dict {kind}"


class Number(enum.IntEnum):
    ONE = 1


class Text(str):
    """A string of a class of its own."""


def key(world: World, found: list[Any]) -> str:
    """A key gives way to an equal one of another type."""
    obj = pick(world, found, dict)
    if not obj:
        return ""
    old = world.rng.choice(list(obj))
    new = world.rng.choice([Text(old), str(old)] if isinstance(old, str) else [1, True, 1.0, Number.ONE])
    if old != new:
        return ""
    obj[new] = obj.pop(old)
    return f"key {type(new).__name__}"


class Finder:
    """Finds a module that is made up."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        return importlib.machinery.ModuleSpec(name, self) if name == "shared_module" else None  # type: ignore[arg-type]

    def create_module(self, spec: Any) -> types.ModuleType:
        made = types.ModuleType(spec.name)
        made.k = 3  # type: ignore[attr-defined]
        return made

    def exec_module(self, module: types.ModuleType) -> None: ...


FINDER, ERRORS, OPTIONS = Finder(), np.geterr(), np.get_printoptions()


def setting(world: World, found: list[Any]) -> str:
    """Something of the whole process, which both worlds are in: it is given a value, whatever it has been."""
    kind = world.rng.choice(["errors", "precision", "builtin", "finder", "module"])
    value = world.rng.randrange(4)
    if kind == "errors":
        np.seterr(under="raise" if value < 2 else "ignore")
    elif kind == "precision":
        np.set_printoptions(precision=value + 1)
    elif kind == "builtin":
        vars(builtins).pop("shared", None)
        if value:
            vars(builtins)["shared"] = value
    else:
        sys.modules.pop("shared_module", None)
        if kind == "finder":
            sys.meta_path[:] = [each for each in sys.meta_path if each is not FINDER] + [FINDER] * (value < 2)  # type: ignore[list-item]
    return f"setting {kind} {value}"


def undo_settings() -> None:
    """The process is as it was."""
    np.seterr(**ERRORS)
    np.set_printoptions(**OPTIONS)
    vars(builtins).pop("shared", None)
    sys.modules.pop("shared_module", None)
    sys.meta_path[:] = [each for each in sys.meta_path if each is not FINDER]


def members(world: World, found: list[Any]) -> str:
    obj = pick(world, found, set)
    if obj is None:
        return ""
    obj ^= {world.rng.randrange(6)}
    return "set ^="


def tensor(world: World, found: list[Any]) -> str:
    obj = pick(world, found, torch.Tensor)
    if obj is None:
        return ""
    kind = world.rng.choice(["data", "grad", "t_", "write", "alias", "of a view"])
    other = pick(world, found, torch.Tensor)
    with torch.no_grad():
        if kind == "data":
            obj.data = world.tensor().data
        elif kind == "grad" and obj.is_leaf and not obj._is_view():
            obj.requires_grad_(not obj.requires_grad)
        elif kind == "t_" and obj.dim() == 2 and not obj.requires_grad:
            obj.t_()
        elif kind == "alias" and obj.dtype == other.dtype:
            obj.data = other.data
        elif kind == "of a view" and obj.dtype == other.dtype and other.dim():
            obj.data = other.data[:1]
        else:
            obj.data.mul_(0.5)
    return f"tensor {kind}"


def module(world: World, found: list[Any]) -> str:
    obj = pick(world, found, nn.Module)
    if obj is None:
        return ""
    kind = world.rng.choice(["train", "hook", "unhook", "weight", "mean", "child", "forward", "freeze", "class"])
    if kind == "train":
        obj.train(not obj.training)
    elif kind == "hook":
        obj.register_forward_hook(lambda module, args, out: out * 1.5)
    elif kind == "unhook" and obj._forward_hooks:
        obj._forward_hooks.popitem()
    elif kind == "weight":
        obj.weight = nn.Parameter(torch.ones(world.rng.randrange(1, 4)))
    elif kind == "mean":
        obj.mean = torch.ones(world.rng.randrange(1, 4))
    elif kind == "child":
        setattr(obj, world.rng.choice(NAMES[:2]), world.module(0))
    elif kind == "forward":
        obj.__dict__.pop("forward", None) or setattr(obj, "forward", lambda acc: acc + 71)
    elif kind == "freeze":
        obj.weight.requires_grad_(not obj.weight.requires_grad)
    else:
        old = world.classes.Net.forward
        world.classes.Net.forward = lambda self, acc: old(self, acc) + 1
    return f"module {kind}"


def function(world: World, found: list[Any]) -> str:
    helper = world.globals["helper"]
    kind = world.rng.choice(["defaults", "kwdefaults", "code", "new"])
    if kind == "defaults":
        helper.__defaults__ = (world.rng.randrange(2, 6),)
    elif kind == "kwdefaults":
        helper.__kwdefaults__ = {"plus": world.rng.randrange(6)}
    elif kind == "code":
        helper.__code__ = (lambda acc, by=1, *, plus=1: acc * by - plus).__code__
    else:
        world.globals["helper"] = lambda acc, by=3: acc - by
    return f"helper {kind}"


def variable(world: World, found: list[Any]) -> str:
    kind = world.rng.choice(["G", "H", "cell", "len", "isinstance"])
    if kind == "cell":
        world.cell.cell_contents = something(world, found)
    elif kind in ("G", "H"):
        world.globals[kind] = something(world, found)
    elif kind == "len":
        world.globals.pop("len", None) or world.globals.update(len=lambda obj: 81)
    else:
        world.globals["World"] = types.SimpleNamespace(**{**vars(world.classes), "First": world.classes.Second})
    return f"global {kind}"


def roots(world: World, found: list[Any]) -> str:
    name = world.rng.choice(["root", "items", "table", "net"])
    made = world.module(1) if name == "net" else world.grow(2)
    setattr(world, name, made)
    return f"argument {name}"


CHANGES: list[Change] = [
    *(attribute, attribute, shadow, class_reassigned, class_attribute, sequence, mapping, members),
    *(tensor, tensor, module, module, function, variable, roots, key, setting, setting),
]


def change(world: World) -> str:
    """Change something; says what."""
    for _ in range(20):
        did = world.rng.choice(CHANGES)(world, things(world))
        if did:
            return did
    return ""
