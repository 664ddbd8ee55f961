"""What of a container image is given its own owners and modes again as an instance begins."""

from __future__ import annotations

ODD_MAX, ODD_BYTES_MAX = 10_000, 64 * 1024**2
Odd = tuple[str, int, int, int]
"""Path from the image's top, mode, owner and group inside."""


def is_plain(mode: int, uid: int, gid: int) -> bool:
    """Root's, for all to read and nobody else to change: as the store keeps everything."""
    return not mode & 0o7022 and bool(mode & 0o004) and not uid and not gid
