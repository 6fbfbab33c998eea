"""Tune recorded graphs in other processes: `python -m torchdynamo tune FOLDER`."""
