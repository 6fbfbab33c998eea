"""Backends whose compiled graphs can be written and read: each file has a `KIND`, and bears its name in the data."""
