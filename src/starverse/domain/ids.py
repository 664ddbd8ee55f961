"""Typed identifiers. All are uuid7 text made by the caller or by an injected generator (``app/ports.py``).

A type checker keeps them apart; at run time they are plain strings.
"""

from __future__ import annotations

import re
from typing import NewType

AccountId = NewType("AccountId", str)
TeamId = NewType("TeamId", str)
TokenId = NewType("TokenId", str)
JobId = NewType("JobId", str)
AllocationId = NewType("AllocationId", str)
NodeId = NewType("NodeId", str)
CardId = NewType("CardId", str)
CheckpointId = NewType("CheckpointId", str)
DatasetId = NewType("DatasetId", str)
FolderId = NewType("FolderId", str)
"""``sha256:<64 hex>`` of a packed submit folder: content-addressed, so a repeat costs nothing."""
LedgerAccountId = NewType("LedgerAccountId", str)
TransferId = NewType("TransferId", str)
PriceBookId = NewType("PriceBookId", str)
ChargeId = NewType("ChargeId", str)

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def is_uuid(text: str) -> bool:
    """Whether ``text`` is a lower-case uuid, as every generated id is."""
    return _UUID.fullmatch(text) is not None


def format_job_number(number: int, array_index: int | None) -> str:
    """What people see and type: ``123``, or ``123_4`` for the task with index 4 of array 123."""
    return str(number) if array_index is None else f"{number}_{array_index}"


def parse_job_number(text: str) -> tuple[int, int | None]:
    """Read ``123`` or ``123_4``; raises ``ValueError`` for anything else."""
    found = re.fullmatch(r"(\d{1,10})(?:_(\d{1,7}))?", text)
    if found is None:
        raise ValueError(f"{text!r} is not a job number such as 123 or 123_4")
    return int(found[1]), None if found[2] is None else int(found[2])
