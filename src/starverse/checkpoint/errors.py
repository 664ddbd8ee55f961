"""Errors of the checkpoint library: their own small hierarchy, because it stands alone in user scripts.

As everywhere here, ``code`` is stable and the docstring is the default message and says what to do next.
"""

from __future__ import annotations

import errno

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class CheckpointError(Exception):
    """The checkpoint could not be handled; the previous one is untouched."""

    code = "checkpoint"

    def __init__(self, detail: str | None = None) -> None:
        self.detail = detail or " ".join((type(self).__doc__ or "").split())
        super().__init__(self.detail)


class SaveFailed(CheckpointError):
    """Writing the checkpoint failed and it was abandoned; the previous one is untouched."""

    code = "checkpoint_save_failed"


class DiskFull(SaveFailed):
    """No room for the checkpoint: it was abandoned and the previous one is untouched; free some space."""

    code = "checkpoint_disk_full"


class Fenced(CheckpointError):
    """A newer attempt of this job has published here already; this older run must end."""

    code = "checkpoint_fenced"


class AlreadyPublished(CheckpointError):
    """This step is published with other content; a published checkpoint never changes: save a higher step."""

    code = "checkpoint_already_published"


class Unusable(CheckpointError):
    """What was given cannot be stored in a checkpoint, or asked of one; the message names it."""

    code = "checkpoint_unusable"


class Unverified(CheckpointError):
    """The checkpoint's bytes do not match its manifest; resume from an older one."""

    code = "checkpoint_unverified"


def is_disk_full(error: OSError) -> bool:
    """Whether ``error`` says that a disk, a quota or a size limit is full."""
    return error.errno in _FULL


def save_failure(error: OSError) -> SaveFailed:
    """The error to raise for ``error`` while saving; :class:`DiskFull` where the disk is."""
    reason = f"{error.strerror or error}" + (f" ({error.filename})" if error.filename else "")
    if is_disk_full(error):
        return DiskFull(f"{DiskFull().detail.removesuffix('.')} ({reason}).")
    return SaveFailed(
        f"Writing the checkpoint failed: {reason}; it was abandoned, the previous one is untouched."
    )
