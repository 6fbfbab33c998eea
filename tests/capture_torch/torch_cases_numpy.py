"""NumPy inside a frame: constants that NumPy computes with while the frame is captured."""

from __future__ import annotations

import numpy as np
import torch
from torch_cases import case

X = torch.randn(4, 4)
LOWER = np.tril_indices(4, -1)
WEIGHTS = np.arange(6, dtype=np.float32).reshape(2, 3)
TWO = np.int64(2)
HALF = np.float32(0.5)


@case(X)
def indices_made_elsewhere(x):
    y = torch.zeros(4, 4)
    y[LOWER[0], LOWER[1]] = x[0, 0]
    return y, x[LOWER]


@case(X)
def functions(x):
    grid = np.meshgrid(*[range(0, 4, 2) for _ in range(2)], indexing="ij")
    corners = np.asarray([each.flatten() for each in grid]).T
    patches = [tuple(slice(at, at + 2) for at in row) for row in corners]
    return torch.stack([x[patch].sum() for patch in patches]), len(corners), corners.max() > 1


@case(X)
def arrays_to_tensors(x):
    double = WEIGHTS * 2 + TWO
    mean = torch.from_numpy(double).mean()
    return x * mean, x + torch.as_tensor(WEIGHTS * 1)[0, 0], torch.tensor(WEIGHTS) + 1


@case(X)
def memory_of_an_older_array(x):
    return torch.from_numpy(WEIGHTS).add_(x[:2, :3])


@case(X)
def writes_under_a_tensor(x):
    a = np.zeros(4)
    t = torch.from_numpy(a)
    a[0] = 1
    return x + t


@case(X)
def scalars(x):
    size = np.prod(x.shape)
    total = float(WEIGHTS.sum()) + np.sqrt(TWO)
    return x.view(TWO, np.int64(8)) * HALF, int(size), x * total, list(range(TWO)), TWO + 1, 3 - TWO, -HALF


@case(X)
def methods(x):
    a = np.linspace(0, 1, 5)
    return x + a[1:3].sum(), a.shape, a.ndim, a.dtype == np.float64, [float(v) for v in a], a.argmax() == 4


@case(X)
def writes_into_its_own(x):
    table = np.zeros((2, 2))
    row = table[0]
    row[1] = 3
    table += 1
    return x + table[0, 1], x * float(row.sum())


@case(X)
def writes_into_anothers(x):
    WEIGHTS[0] = 1
    return x + 1


@case(X, breaks="data-dependent value")
def of_a_tensor(x):
    return x + np.sum(x)


@case(np.array([1.5, 2.5]), X)
def argument(a, x):
    return x * a[0] + torch.tensor(a).sum()


@case(X)
def errors(x):
    try:
        np.zeros(3) + np.zeros(4)
    except ValueError:
        return x + 1
    return x
