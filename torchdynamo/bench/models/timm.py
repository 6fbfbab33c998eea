"""Models of timm."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from torchdynamo.bench.models import add
from torchdynamo.bench.models.torch_nn import features

NAMES = (
    *("vit_tiny_patch16_224", "vit_small_patch16_224", "deit_tiny_patch16_224", "swin_tiny_patch4_window7_224"),
    *("mixer_s32_224", "convnext_atto", "convmixer_768_32", "resmlp_12_224", "poolformer_s12", "ghostnet_100"),
    *("efficientnet_lite0", "mobilevit_xxs", "levit_128s", "repvgg_a0"),
)
SIZES = {"mobilevit_xxs": 256}


def make(name: str) -> Any:
    """Return a model. Raises ImportError without timm."""
    return importlib.import_module("timm").create_model(name, pretrained=False)


for _name in NAMES:
    add(_name, functools.partial(make, _name), features(3, SIZES.get(_name, 224), SIZES.get(_name, 224)))
