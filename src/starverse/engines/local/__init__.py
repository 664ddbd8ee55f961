"""The engine for one machine: launchers as processes, known by their folders and locks."""

from starverse.engines.local.engine import LocalEngine

__all__ = ["LocalEngine"]
