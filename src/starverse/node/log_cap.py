"""A cap on log files that moves no offset: the oldest part becomes a hole.

A log is append-only and a place in it is a byte offset, so nothing may be cut off. Its oldest part is
given back to the file system (``fallocate`` PUNCH_HOLE); readers see a gap.
"""

from __future__ import annotations

import os

from starverse.node.sandbox.syscalls import fallocate

_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_BLOCK = 4096


def cap_log(handle: int, cap_bytes: int, punched: int) -> int:
    """Punch away all but the newest ``cap_bytes``; answers up to which offset it is punched.

    ``punched`` is the last answer (0 at first). Whole blocks, and an eighth of the cap at once, so that
    a chatty script does not cost a call each second. Raises ``OSError`` where the file system has no
    holes.
    """
    size = os.fstat(handle).st_size
    slack = max(_BLOCK, cap_bytes // 8)
    if size - punched <= cap_bytes + slack:
        return punched
    end = (size - cap_bytes) // _BLOCK * _BLOCK
    fallocate(handle, _PUNCH_HOLE | _KEEP_SIZE, 0, end)
    return end


def first_byte(handle: int) -> int:
    """The offset of the oldest byte still there; the size where the file is all hole or empty."""
    try:
        return os.lseek(handle, 0, os.SEEK_DATA)
    except OSError:
        return os.fstat(handle).st_size
