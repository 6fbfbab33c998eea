"""Five-fold cross-validation of a small network, in one decorated function: training, validation, metrics.

The loop over folds and epochs has breaks in it (`backward()`, `.item()`), so it stays Python; what it calls is
compiled: the network's forward for training and for evaluation, the loss, and Adam's update. `my_compiler` prints each
graph.

    pip install -r examples/requirements.txt
    python examples/kfold_training.py [--eager] [--epochs N] [--picture loss.png]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn.metrics import r2_score
from sklearn.model_selection import KFold, train_test_split
from sklearn.preprocessing import StandardScaler
from torch import nn

import torchdynamo


class SimpleNN(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(features, 64)
        self.fc2 = nn.Linear(64, 32)
        self.fc3 = nn.Linear(32, 1)

    def forward(self, x):
        x = torch.relu(self.fc1(x))
        x = torch.relu(self.fc2(x))
        return self.fc3(x)


def my_compiler(gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor]) -> Callable[..., Any]:
    print("my_compiler() called with FX graph:")
    gm.graph.print_tabular()
    return gm.forward


def train_and_evaluate(model, criterion, optimizer, X_train, y_train, X_test, y_test, n_epochs):
    folds = KFold(n_splits=5, shuffle=True, random_state=42)
    train_losses = np.zeros(n_epochs)
    val_losses = np.zeros(n_epochs)
    for train_idx, val_idx in folds.split(X_train):
        X_fold, X_val = X_train[train_idx], X_train[val_idx]
        y_fold, y_val = y_train[train_idx], y_train[val_idx]
        for epoch in range(n_epochs):
            model.train()
            optimizer.zero_grad()
            train_loss = criterion(model(X_fold), y_fold)
            train_loss.backward()
            optimizer.step()

            model.eval()
            val_loss = criterion(model(X_val), y_val)
            train_losses[epoch] += train_loss.item() / folds.get_n_splits()
            val_losses[epoch] += val_loss.item() / folds.get_n_splits()

    model.eval()
    y_pred = model(X_test)
    test_loss = criterion(y_pred, y_test).item()
    test_r2 = r2_score(y_test.detach().numpy(), y_pred.detach().numpy())
    return train_losses, val_losses, test_loss, test_r2


def data() -> tuple[torch.Tensor, ...]:
    """A linear relation of ten features, with noise."""
    random = np.random.RandomState(42)
    X = random.rand(1000, 10)
    y = X @ random.rand(10) + random.rand(1000) * 0.1
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.2, random_state=42)
    scaler = StandardScaler()
    X_train, X_test = scaler.fit_transform(X_train), scaler.transform(X_test)
    columns = (X_train, y_train.reshape(-1, 1), X_test, y_test.reshape(-1, 1))
    return tuple(torch.tensor(column, dtype=torch.float32) for column in columns)


def run(function: Callable[..., Any], epochs: int) -> tuple[Any, ...]:
    """The whole experiment, from the same start each time."""
    torch.manual_seed(42)
    X_train, y_train, X_test, y_test = data()
    model = SimpleNN(X_train.shape[1])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    metrics: tuple[Any, ...] = function(model, nn.MSELoss(), optimizer, X_train, y_train, X_test, y_test, epochs)
    return metrics


def draw(train_losses: Any, val_losses: Any, picture: str) -> None:
    """Save the losses of the epochs as a picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    epochs = range(1, len(train_losses) + 1)
    plt.plot(epochs, train_losses, label="training")
    plt.plot(epochs, val_losses, label="validation")
    plt.xlabel("epoch")
    plt.ylabel("mean squared error")
    plt.legend()
    plt.savefig(picture)


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--eager", action="store_true", help="without torchdynamo")
    options.add_argument("--epochs", type=int, default=100)
    options.add_argument("--picture", default="loss.png")
    chosen = options.parse_args()
    function = train_and_evaluate if chosen.eager else torchdynamo.optimize(my_compiler)(train_and_evaluate)
    train_losses, val_losses, test_loss, test_r2 = run(function, chosen.epochs)
    print(f"Test MSE: {test_loss:.6f}")
    print(f"Test R^2: {test_r2:.6f}")
    draw(train_losses, val_losses, chosen.picture)
