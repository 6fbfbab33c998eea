"""Convert CPython code objects to canonical instructions and back. No other Python code names a Python version, and
none of this needs torch.
"""
