"""Make modules of the state of an exported call: parameters, buffers and other tensors, and nothing else.

torch.export takes a module. It gets one that has the state of the program's, under the same names, and whose `forward`
runs the captured graph.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Sequence
from types import MethodType
from typing import Any

import torch

from torchdynamo.core.source import Source
from torchdynamo.exporting.calls import SUBJECT

SELF = f"{SUBJECT}."


class State(torch.nn.Module):
    """A module that has state only."""

    def place_of(self, name: str) -> tuple[torch.nn.Module, str]:
        """Return the module that holds what has a qualified name, which is made if there is none, and its last part."""
        holder: torch.nn.Module = self
        *parts, last = name.split(".")
        for part in parts:
            if part not in holder._modules:
                holder._modules[part] = State()
            holder = holder._modules[part]  # type: ignore[assignment]
        return holder, last


class Owned:
    """The state of an exported call, by tensor."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.module = State()
        self.names: dict[int, str] = {}  # by the id of the tensor
        self.variables = getattr(getattr(fn, "__code__", None), "co_freevars", ())  # what is read through a closure
        subject = fn.__self__ if isinstance(fn, MethodType) else fn
        if isinstance(subject, torch.nn.Module):
            # torch's own methods: classes that have theirs do not take `remove_duplicate`
            for name, parameter in torch.nn.Module.named_parameters(subject, remove_duplicate=False):
                self.own(name, parameter)
            for name, buffer in torch.nn.Module.named_buffers(subject, remove_duplicate=False):
                owner = subject.get_submodule(name.rpartition(".")[0])
                persistent = name.rpartition(".")[2] not in owner._non_persistent_buffers_set
                if persistent or buffer.layout is torch.strided:  # torch cannot save others; they are had where used
                    self.own(name, buffer, persistent)

    def own(self, name: str, tensor: torch.Tensor, persistent: bool = True) -> None:
        """Give the module a parameter or buffer."""
        holder, last = self.module.place_of(name)
        if isinstance(tensor, torch.nn.Parameter):
            holder._parameters[last] = tensor
        else:
            holder._buffers[last] = tensor
            if not persistent:
                holder._non_persistent_buffers_set.add(last)
        self.names.setdefault(id(tensor), name)

    def name_of(self, tensor: torch.Tensor, source: Source | None, written: bool) -> str:
        """Return the qualified name of a tensor; one that is no parameter or buffer gets one by where it was found.

        written: the graph writes to it, so that it cannot be a constant.
        """
        found = self.names.get(id(tensor))
        if found is None:
            found = self.free(readable(source, self.variables))
            holder, last = self.module.place_of(found)
            if isinstance(tensor, torch.nn.Parameter) or is_of_module(source):
                self.own(found, tensor)
            elif written:
                self.own(found, tensor, persistent=False)
            else:
                holder.__dict__[last] = tensor  # a constant
                self.names[id(tensor)] = found
        return found

    def hold(self, hint: str, body: torch.nn.Module) -> str:
        """Return the name of the body of an operator, which the module gets."""
        name = self.free(hint)
        self.module._modules[name] = body
        return name

    def free(self, name: str) -> str:
        """Return a name that nothing has, made from this one."""
        taken, tries = name, 0
        while True:
            holder, last = self.module.place_of(taken)
            if not hasattr(holder, last):
                return taken
            tries += 1
            taken = f"{name}_{tries}"


def is_of_module(source: Source | None) -> bool:
    """Return whether a source is a parameter or a buffer of a module."""
    base = None if source is None else source.base
    return base is not None and base.how == "key" and base.arg in ("_parameters", "_buffers")


def readable(source: Source | None, variables: Sequence[str]) -> str:
    """Return a qualified name for what is at a source: `model.layers.0.weight`; parts that are no names are made so.

    variables: those that the function has from around it, in the order of its closure.
    """
    if source is None:
        return "constant"
    text = re.sub(r"\[['\"]?(\w+)['\"]?\]", r".\1", str(source))
    text = text.removeprefix(f"{source.root()}." if source.root().how == "module" else SELF)
    text = re.sub(r"^\w+\.__closure__\.(\d+)\b", lambda found: variables[int(found[1])], text)
    if all((part.isidentifier() or part.isdigit()) and not hasattr(torch.nn.Module, part) for part in text.split(".")):
        return text
    flat = re.sub(r"\W+", "_", text).strip("_") or "constant"
    return f"_{flat}" if flat[0].isdigit() or keyword.iskeyword(flat) else flat
