"""Models of torchvision."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from torchdynamo.bench.models import add
from torchdynamo.bench.models.torch_nn import features

NAMES = (
    *("resnet18", "resnet50", "mobilenet_v2", "mobilenet_v3_small", "efficientnet_b0", "regnet_y_400mf"),
    *("squeezenet1_1", "shufflenet_v2_x1_0", "densenet121", "mnasnet1_0", "alexnet", "googlenet"),
)


def make(name: str) -> Any:
    """Return a classification model. Raises ImportError without torchvision."""
    options = {"init_weights": False, "aux_logits": False} if name == "googlenet" else {}
    return getattr(importlib.import_module("torchvision.models"), name)(weights=None, **options)


def segmentation() -> Any:
    """Return a small segmentation model."""
    models = importlib.import_module("torchvision.models.segmentation")
    return models.lraspp_mobilenet_v3_large(weights=None, weights_backbone=None)


for _name in NAMES:
    add(_name, functools.partial(make, _name), features(3, 224, 224))
add("lraspp_mobilenet", segmentation, features(3, 192, 192))
