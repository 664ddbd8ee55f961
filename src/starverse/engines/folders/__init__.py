"""What engines share whose allocations live in folders that launchers write and the platform reads."""

from starverse.engines.folders.engine import FolderEngine, OpenChannel, newer_state

__all__ = ["FolderEngine", "OpenChannel", "newer_state"]
