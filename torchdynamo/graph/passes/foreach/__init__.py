"""Updates of many tensors, one after the other, as `torch._foreach_*`, which are a few kernels for all of them.

`operators.py` says which operators there are for lists, `components.py` which updates have nothing to do with each
other, and `match.py` puts those that are alike in step.
"""
