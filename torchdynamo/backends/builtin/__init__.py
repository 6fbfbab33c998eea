"""The backends that come with the package. A file here that registers one is all it takes."""
