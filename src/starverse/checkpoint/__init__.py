"""Checkpoints for training scripts, on the platform and anywhere else; the standard library is enough.

::

    from starverse.checkpoint import Checkpointer

    checkpointer = Checkpointer()
    with checkpointer.restoring() as path:
        state = load_my_state(path) if path else new_state()
    for step in range(state.step, 10_000):
        state.train()
        if step % 500 == 0 or checkpointer.requested:
            with checkpointer.save(step) as folder:
                state.write_to(folder)
        if checkpointer.requested:
            checkpointer.exit_for_requeue()

A checkpoint is published by one rename after everything is flushed and hashed: a kill at any instant
leaves the previous one whole, and :meth:`Checkpointer.latest` returns only what matches its manifest.
"""

from starverse.checkpoint.arrays import LoadedArray
from starverse.checkpoint.checkpointer import EXIT_FOR_REQUEUE, Checkpointer
from starverse.checkpoint.errors import (
    AlreadyPublished,
    CheckpointError,
    DiskFull,
    Fenced,
    SaveFailed,
    Unusable,
    Unverified,
)
from starverse.checkpoint.manifest import Fault, Manifest, Published, Verification, published, verify
from starverse.checkpoint.notice import Notice

__all__ = [
    "EXIT_FOR_REQUEUE",
    "AlreadyPublished",
    "CheckpointError",
    "Checkpointer",
    "DiskFull",
    "Fault",
    "Fenced",
    "LoadedArray",
    "Manifest",
    "Notice",
    "Published",
    "SaveFailed",
    "Unusable",
    "Unverified",
    "Verification",
    "published",
    "verify",
]
