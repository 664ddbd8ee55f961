"""Disks: a team's persistent storage, what is done with it, and what stands against that.

State says where something is, the message says why to people. Which state follows which stands in each
enum's diagram; attachments have their machine in ``domain/workloads/states.py``.
"""

from __future__ import annotations

from enum import StrEnum


class DiskState(StrEnum):
    """A disk from its making to the end of its bytes.

    ::

        making ---> ready <---> deleted ---> purged
           '-> failed
    """

    MAKING = "making"
    READY = "ready"
    FAILED = "failed"
    DELETED = "deleted"
    PURGED = "purged"


class SnapshotState(StrEnum):
    """A copy of a disk at one instant.

    ::

        making ---> made ---> removed
           '-> failed
    """

    MAKING = "making"
    MADE = "made"
    FAILED = "failed"
    REMOVED = "removed"


class SyncState(StrEnum):
    """One copy between a disk and a remote.

    ::

        queued ---> running ---> succeeded | failed | cancelled
           '-> cancelled  '-> queued (interrupted: goes on where it was)
    """

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class SyncDirection(StrEnum):
    """``pull``: from the remote into the disk; ``push``: from the disk to the remote."""

    PULL = "pull"
    PUSH = "push"
