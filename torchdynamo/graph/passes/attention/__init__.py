"""Rewrite attention, however it is spelled, into `scaled_dot_product_attention`.

`calls.py` reads operators under one name each, `scores.py` and `weights.py` follow the scores from the first product
to the softmax and on to the second, `form.py` is what they find, `masks.py` proves what masks are, `lower.py` says
what that means for the operator, and `emit.py` writes it. `match.py` does all this for each softmax of a graph.
"""
