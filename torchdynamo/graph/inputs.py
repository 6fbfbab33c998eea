"""The source of a graph's placeholder."""

from __future__ import annotations

from typing import Any

from torchdynamo.core.source import Source
from torchdynamo.graph.torch_compat import TorchSource


class InputSource(TorchSource):
    """The source of a placeholder, with the interface that torch expects: a name unique among the graph's inputs.

    It is `node.meta["source"]`; `path` is where the frame hook finds the tensor.
    """

    def __init__(self, name: str, path: Source | None, static: bool, boxed: bool = False) -> None:
        # The base class is frozen and hands out `name` from this template.
        object.__setattr__(self, "_input_name", name)
        object.__setattr__(self, "path", path)
        object.__setattr__(self, "static", static)
        object.__setattr__(self, "boxed", boxed)

    path: Source | None
    static: bool
    boxed: bool  # the tensor only carries a float into the graph
    _input_name: str

    def boxing(self) -> InputSource:
        """Return this source for a tensor that only carries a float into the graph."""
        return InputSource(self._input_name, self.path, self.static, boxed=True)

    @property
    def _name_template(self) -> str:
        return self._input_name

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the path, which is of this process: Inductor keeps graphs and their sources on disk."""
        return InputSource, (self._input_name, None, self.static, self.boxed)

    def __deepcopy__(self, memo: dict[int, Any]) -> InputSource:
        return self

    def __hash__(self) -> int:
        return hash(self._input_name)

    def __eq__(self, other: object) -> bool:
        return type(other) is InputSource and other._input_name == self._input_name and other.path is self.path

    def __repr__(self) -> str:
        return f"<input {self._input_name}>"
