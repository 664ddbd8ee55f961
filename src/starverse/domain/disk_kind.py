"""The kinds of disk: ``domain/pricing/storage.py`` has what they cost, ``domain/catalog`` their rules."""

from __future__ import annotations

from enum import StrEnum


class DiskKind(StrEnum):
    """``shared``: a directory that many instances and jobs of the team write. ``block``: a file system of its
    own with a hard quota and one writer (glossary: disk)."""

    BLOCK = "block"
    SHARED = "shared"
