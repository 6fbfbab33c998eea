"""Compilers of the ensemble: each file registers one member, or a family of members, when it is imported."""
