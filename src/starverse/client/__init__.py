"""Typed client of the HTTP API; the CLI and the Slurm shims talk to the platform only through it."""
