"""Ids of the host for the users inside container images: of each team a block of its own."""

from __future__ import annotations

SUB_IDS_FIRST = 1 << 30
"""Above what hosts, directories and ``/etc/subuid`` give to people."""
SUB_IDS_EACH = 65_536
"""As many as an image can name; of these the first is the team's own user."""
_SUB_IDS_END = 1 << 31
"""Some programs take ids for signed numbers."""


def sub_ids_first(unix_uid: int, unix_uid_first: int) -> int:
    """Where the block of the team with this Unix user begins, users being counted from ``unix_uid_first``;
    0: there is none left for it."""
    first = SUB_IDS_FIRST + (unix_uid - unix_uid_first) * SUB_IDS_EACH
    return first if SUB_IDS_FIRST <= first <= _SUB_IDS_END - SUB_IDS_EACH else 0
