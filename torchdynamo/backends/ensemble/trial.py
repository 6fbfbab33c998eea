"""Build and try one member for one recorded graph, in a process of its own: it may crash, hang or eat memory."""

from __future__ import annotations

import sys
from pathlib import Path

from torchdynamo.backends.ensemble.candidate import Candidate
from torchdynamo.backends.ensemble.database import Row
from torchdynamo.backends.ensemble.member import MEMBERS
from torchdynamo.backends.ensemble.recorded import Recorded, load
from torchdynamo.backends.ensemble.reference import Reference
from torchdynamo.backends.ensemble.requests import TrialAnswer, TrialRequest, load_users_members
from torchdynamo.backends.ensemble.settings import Settings


def candidate_of(recorded: Recorded, name: str, settings: Settings) -> Candidate:
    """Return a member's candidate, built and tried if it takes the graph. Raises KeyError for an unknown member."""
    made = Candidate(MEMBERS[name], recorded.subgraph, settings)
    if made.state == "waiting":
        made.build(recorded.subgraph, Reference(recorded.subgraph), recorded.subgraph.gm.forward)
    return made


def main(text: str) -> None:
    """TrialAnswer a request with a row for each of its members."""
    request = TrialRequest.of(text)
    load_users_members(request.imports)
    recorded = load(Path(request.folder), constants=request.constants)
    rows: list[Row] = []
    with recorded.as_captured():
        for name in request.members:
            rows.append(candidate_of(recorded, name, Settings(constants=request.constants)).measured())
    TrialAnswer(rows).write(request.out)


if __name__ == "__main__":
    main(sys.argv[1])
