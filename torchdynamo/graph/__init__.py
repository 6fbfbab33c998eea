"""The FX graph: how it is built, its specification, and the passes over it."""

from torchdynamo.graph.build import GraphBuilder
from torchdynamo.graph.errors import GraphError, OperatorError

__all__ = ["GraphBuilder", "GraphError", "OperatorError"]
