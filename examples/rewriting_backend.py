"""A backend may change the graph it is given: this one takes the dropout out of a model."""

from __future__ import annotations

import copy

import torch
from torch import nn

import torchdynamo


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(100, 3)
        self.dropout = nn.Dropout(p=0.3)

    def forward(self, x):
        return self.dropout(self.linear(x))


def without_dropout(gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor]):
    graph = copy.deepcopy(gm.graph)
    for node in graph.nodes:
        if node.target is nn.functional.dropout:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
    graph.lint()
    return torch.fx.GraphModule(gm, graph).forward


if __name__ == "__main__":
    model, x = Classifier(), torch.randn(10, 100)
    compiled = torchdynamo.compile(model, backend=without_dropout)
    print("equal to the linear layer alone:", torch.equal(compiled(x), model.linear(x)))
