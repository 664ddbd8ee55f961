"""Measurements behind ``docs/benchmarks.md``; ``python -m benchmarks.NAME --json``. Never timed tests."""
