"""Sandbox drivers: ``bwrap``, and ``process`` by name only."""
