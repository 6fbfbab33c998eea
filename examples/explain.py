"""What became of a function: graphs, what ended them and where, and what they take for granted."""

from __future__ import annotations

import torch
from toy_example import toy_example

import torchdynamo

if __name__ == "__main__":
    print(torchdynamo.explain(toy_example)(torch.ones(10), -torch.ones(10)))
