"""Asking for one graph: `nopython=True` says what stands in the way, and where."""

from __future__ import annotations

import torch
from toy_example import toy_example

import torchdynamo

if __name__ == "__main__":
    try:
        with torchdynamo.optimize("eager", nopython=True):
            toy_example(torch.randn(10), torch.randn(10))
    except torchdynamo.exc.Unsupported as error:
        print(error)
