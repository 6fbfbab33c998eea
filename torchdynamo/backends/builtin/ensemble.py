"""Let several compilers compete for each graph, and keep the fastest one that is right."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch.fx

from torchdynamo.backends.ensemble import members as files
from torchdynamo.backends.ensemble.by_size import BySize
from torchdynamo.backends.ensemble.choice import Choice
from torchdynamo.backends.ensemble.member import MEMBERS
from torchdynamo.backends.ensemble.settings import settings_of
from torchdynamo.backends.preserve import leaves_inputs_alone
from torchdynamo.backends.registry import discover, register_backend, tries_graphs
from torchdynamo.backends.settings import checked_by
from torchdynamo.graph.sizes import sizes_of

discover(files)


@register_backend
@tries_graphs
@checked_by(settings_of)
@leaves_inputs_alone
def ensemble(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Return a callable that chooses the fastest correct member for the graph, beside eager.

    mode: none is known. options: see `ensemble.settings.Settings`. Raises UnknownSetting for others.
    """
    settings = settings_of(mode, options)
    allowed = settings.members or tuple(MEMBERS)
    members = [member for name, member in MEMBERS.items() if name in allowed]
    kind = Choice if sizes_of(gm) is None else BySize
    choice = kind(gm, members, settings)
    choice.start(example_inputs)
    return choice
