"""CPython code objects <-> canonical instructions: the only Python that names a Python version, and free of torch."""
