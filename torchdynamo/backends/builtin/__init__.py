"""The backends that come with the package. To add one, add a file here that registers it."""
