"""The benchmark runner, `python -m torchdynamo.bench`: models of installed packages under one or several backends."""
