"""Record what a compiled graph does on the GPU as a CUDA graph, and replay that with one launch.

`runner.py` decides for each call whether it records, replays or runs plain; `recording.py` is one capture, `slots.py`
its inputs, `escape.py` its results, `lanes.py` the memory that recordings share, `limits.py` how many there may be and
what users hear of it. `device.py` is all that speaks to CUDA; `seam.py` is where compilers are wrapped.
"""
