"""The verbs of the command line, `python -m torchdynamo VERB`."""
