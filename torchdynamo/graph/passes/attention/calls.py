"""Read the calls of a graph under one name each, however they are spelled.

To teach a spelling, add it to a row: the name, then the names of its parameters in order. A `*` takes the rest.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
import torch.nn.functional as F

Node = torch.fx.Node

OF_LOSSES = "input target weight size_average ignore_index reduce reduction"
FUNCTIONS: dict[Any, str] = {
    torch.matmul: "matmul input other",
    operator.matmul: "matmul input other",
    torch.bmm: "matmul input other",
    torch.mm: "matmul input other",
    torch.baddbmm: "baddbmm start input other beta alpha",
    torch.einsum: "einsum equation *operands",
    torch.mul: "mul input other",
    torch.multiply: "mul input other",
    operator.mul: "mul input other",
    torch.div: "div input other",
    torch.divide: "div input other",
    torch.true_divide: "div input other",
    operator.truediv: "div input other",
    torch.add: "add input other alpha",
    operator.add: "add input other",
    torch.sub: "sub input other alpha",
    torch.subtract: "sub input other alpha",
    operator.sub: "sub input other",
    torch.neg: "neg input",
    torch.negative: "neg input",
    operator.neg: "neg input",
    torch.masked_fill: "masked_fill input mask value",
    torch.where: "where condition input other",
    torch.tanh: "tanh input",
    torch.softmax: "softmax input dim dtype",
    F.softmax: "softmax input dim _stacklevel dtype",
    torch.log_softmax: "log_softmax input dim dtype",
    F.log_softmax: "log_softmax input dim _stacklevel dtype",
    torch.exp: "exp input",
    torch.logsumexp: "logsumexp input dim keepdim",
    torch.sum: "sum input dim keepdim",
    torch.cumsum: "cumsum input dim",
    torch.amax: "amax input dim keepdim",
    torch.max: "max input dim keepdim",
    torch.dropout: "dropout input p training",
    F.dropout: "dropout input p training inplace",
    torch.nan_to_num: "nan_to_num input nan",
    F.linear: "linear input weight bias",
    F.cross_entropy: f"cross_entropy {OF_LOSSES} label_smoothing",
    F.nll_loss: f"nll_loss {OF_LOSSES}",
    torch.transpose: "transpose input dim0 dim1",
    torch.swapaxes: "transpose input dim0 dim1",
    torch.swapdims: "transpose input dim0 dim1",
    torch.permute: "permute input *dims",
    torch.reshape: "reshape input *shape",
    torch.flatten: "reshape input start_dim end_dim",
    torch.unflatten: "reshape input dim sizes",
    torch.squeeze: "reshape input *dim",
    torch.unsqueeze: "reshape input dim",
    torch.Tensor.unflatten: "reshape input dim sizes",
    operator.getitem: "getitem input index",
    getattr: "attribute input name",
    torch.logical_not: "not input",
    torch.bitwise_not: "not input",
    operator.invert: "not input",
}
METHODS: dict[str, str] = {
    "matmul": "matmul input other",
    "__matmul__": "matmul input other",
    "bmm": "matmul input other",
    "mm": "matmul input other",
    "baddbmm": "baddbmm start input other beta alpha",
    "mul": "mul input other",
    "multiply": "mul input other",
    "div": "div input other",
    "divide": "div input other",
    "true_divide": "div input other",
    "add": "add input other alpha",
    "sub": "sub input other alpha",
    "subtract": "sub input other alpha",
    "neg": "neg input",
    "masked_fill": "masked_fill input mask value",
    "where": "where input condition other",
    "tanh": "tanh input",
    "softmax": "softmax input dim dtype",
    "log_softmax": "log_softmax input dim dtype",
    "exp": "exp input",
    "logsumexp": "logsumexp input dim keepdim",
    "sum": "sum input dim keepdim",
    "cumsum": "cumsum input dim",
    "amax": "amax input dim keepdim",
    "max": "max input dim keepdim",
    "nan_to_num": "nan_to_num input nan",
    "transpose": "transpose input dim0 dim1",
    "swapaxes": "transpose input dim0 dim1",
    "swapdims": "transpose input dim0 dim1",
    "permute": "permute input *dims",
    "view": "reshape input *shape",
    "reshape": "reshape input *shape",
    "flatten": "reshape input start_dim end_dim",
    "unflatten": "reshape input dim sizes",
    "squeeze": "reshape input *dim",
    "unsqueeze": "reshape input dim",
    "view_as": "reshape input other",
    "reshape_as": "reshape input other",
    "expand": "expand input *shape",
    "expand_as": "expand input other",
    "contiguous": "same input",
    "clone": "same input",
    "detach": "detach input",
    "to": "cast input *to",
    "float": "cast input",
    "double": "cast input",
    "half": "cast input",
    "bfloat16": "cast input",
    "type": "cast input dtype",
    "type_as": "cast input other",
    "logical_not": "not input",
    "bitwise_not": "not input",
}
IN_PLACE: dict[Any, Any] = {  # spelling of a write -> spelling of the same without
    operator.iadd: operator.add,
    operator.isub: operator.sub,
    operator.imul: operator.mul,
    operator.itruediv: operator.truediv,
    **{f"{name}_": name for name in ("add", "sub", "mul", "div", "masked_fill", "tanh", "neg", "exp")},
}
NAMES_OF = {  # keyword of a call -> parameter here
    ("baddbmm", "input"): "start",
    ("baddbmm", "batch1"): "input",
    ("baddbmm", "batch2"): "other",
    ("matmul", "mat2"): "other",
    ("where", "self"): "input",
}
TRANSPOSED = {"mT": (-2, -1), "T": (0, 1)}  # properties of tensors


@dataclass(frozen=True)
class NamedCall:
    """A call under its one name, with its arguments by parameter."""

    name: str
    given: dict[str, Any]

    def __getitem__(self, parameter: str) -> Any:
        return self.given.get(parameter)


def read(node: Any) -> NamedCall | None:
    """Return a node's call under its one name; None for a value that is no node, and for other calls."""
    if not isinstance(node, Node) or node.op not in ("call_function", "call_method"):
        return None
    row = (METHODS if node.op == "call_method" else FUNCTIONS).get(node.target)  # type: ignore[arg-type]
    if row is None:
        return None
    name, *parameters = row.split()
    given: dict[str, Any] = {}
    for index, parameter in enumerate(parameters):
        if parameter.startswith("*"):
            rest = node.args[index:]
            given[parameter[1:]] = rest[0] if len(rest) == 1 and isinstance(rest[0], (tuple, list)) else rest
            break
        if index < len(node.args):
            given[parameter] = node.args[index]
    else:
        if len(node.args) > len(parameters):
            return None
    named = {NAMES_OF.get((name, parameter), parameter): value for parameter, value in node.kwargs.items()}
    known = {parameter.lstrip("*") for parameter in parameters}
    if name not in ("cast", "same") and not named.keys() <= known:
        return None  # an argument that decides something else
    given.update(named)
    if name == "attribute" and given["name"] in TRANSPOSED:
        return NamedCall(
            "transpose", {"input": given["input"], **dict(zip(("dim0", "dim1"), TRANSPOSED[given["name"]]))}
        )
    return NamedCall(name, given)


def example(node: Any) -> Any:
    """Return the fake tensor of a node; other values are returned as they are."""
    return node.meta.get("example_value") if isinstance(node, Node) else node


def is_float(value: Any) -> bool:
    """Return whether a node gives a tensor of real floats."""
    found = example(value)
    return isinstance(found, torch.Tensor) and found.is_floating_point()


def is_last(dim: Any, rank: int) -> bool:
    """Return whether an argument `dim` names the last dimension and no other."""
    if isinstance(dim, (tuple, list)):
        return len(dim) == 1 and is_last(dim[0], rank)
    return type(dim) is int and dim in (-1, rank - 1)
