"""Keep what was captured and compiled on disk, for the processes that come after: see docs/warm_start.md.

An entry is one immutable file. `values.py` writes plain data, `facts.py` describes objects that are none, `rows.py`
writes sources and guards, `instructions.py` the replacement code, `graphs.py` the graph; `files.py` is the format of a
file, `places.py` says where files are and who may have written them, `keys.py` under which name, `eviction.py` for how
long. No part of a file is pickled, nor marshalled, and reading one imports nothing.
"""
