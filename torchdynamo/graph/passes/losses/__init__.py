"""Rewrite the loss of a large vocabulary so that its logits are never in memory all at once.

`match.py` finds a cross entropy of a linear layer and replaces both, `chunked.py` is what it puts there, and `plan.py`
says in how many chunks.
"""
