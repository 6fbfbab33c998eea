"""Draw how fast each member of the ensemble is for each model: python benchmarks/members_picture.py [CSV] [SVG].

The CSV has a row `model,batch,member,speedup` for each member that was right: its speed over eager's, for the largest
graph of the model. matplotlib is needed (requirements-bench.txt).
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import TwoSlopeNorm

DOCS = Path(__file__).parent.parent / "docs"


def draw(table: Path, picture: Path) -> None:
    """Write a heat map of models and members; grey where a member declined, was wrong, or was not measured."""
    with table.open() as file:
        rows = list(csv.DictReader(file))
    speed = {(f"{row['model']}, {row['batch']}", row["member"]): float(row["speedup"]) for row in rows}
    models, members = sorted({model for model, _ in speed}), sorted({member for _, member in speed})
    grid = np.array([[speed.get((model, member), np.nan) for member in members] for model in models])
    plt.rcParams["svg.hashsalt"] = "members"
    figure, axes = plt.subplots(figsize=(1.1 + 0.95 * len(members), 1.4 + 0.36 * len(models)), layout="constrained")
    axes.set_facecolor("0.92")
    axes.imshow(grid, cmap="RdBu", norm=TwoSlopeNorm(1.0, 0.0, 2.2), aspect="auto")
    axes.set_xticks(range(len(members)), members, rotation=30, ha="right")
    axes.set_yticks(range(len(models)), models)
    best = np.nanmax(grid, axis=1, keepdims=True)
    for (row, column), value in np.ndenumerate(grid):
        if not np.isnan(value):
            weight = "bold" if value == best[row, 0] else "normal"
            color = "white" if value > 1.8 or value < 0.3 else "black"
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", weight=weight, color=color, fontsize=9)
    axes.set_title("Speed over eager by model, batch and member (bold: the fastest)", fontsize=11)
    figure.savefig(picture, metadata={"Date": None})


if __name__ == "__main__":
    given = [Path(argument) for argument in sys.argv[1:]]
    draw(*(given + [DOCS / "members.csv", DOCS / "members.svg"][len(given) :]))
