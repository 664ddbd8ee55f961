"""Alembic migrations. ``tests/integration`` holds the schema they make against ``tables.py``."""
