"""After warming up, a service wants no surprises: under `run()` nothing is compiled, whatever comes in."""

from __future__ import annotations

import torch

import torchdynamo


@torchdynamo.optimize("ofi")
def normalize(a):
    return (a - a.mean()) / (a.std() + 1e-5)


def versions() -> int:
    return len(torchdynamo.eval_frame.cache_entries(normalize))


if __name__ == "__main__":
    with torch.no_grad():
        normalize(torch.randn(10))
        print("compiled versions after warming up:", versions())
        with torchdynamo.run():
            normalize(torch.randn(3, 7))  # a new shape: runs eagerly
        print("compiled versions after a new shape in run mode:", versions())
        normalize(torch.randn(3, 7))
        print("compiled versions after a new shape outside of it:", versions())
