"""Signals that people send to what runs: their names, and whom they go to (scancel manual page)."""

from __future__ import annotations

import signal
from enum import StrEnum

NAMES = (
    "HUP", "INT", "QUIT", "ABRT", "KILL", "ALRM", "TERM", "USR1", "USR2", "URG", "CONT", "STOP", "TSTP",
    "TTIN", "TTOU",
)  # fmt: skip
"""Those that Slurm's scancel knows."""


class SignalTo(StrEnum):
    """Which processes inside get it: all but the batch shell, the batch shell alone, or every one."""

    STEPS = "steps"
    BATCH = "batch"
    ALL = "all"


def read_signal(text: str) -> str:
    """``USR1`` from ``USR1``, ``sigusr1`` or ``10``; raises ``ValueError`` for what scancel does not know."""
    by_number = {str(signal.Signals[f"SIG{name}"].value): name for name in NAMES}
    name = by_number.get(text, text.upper().removeprefix("SIG"))
    if name not in NAMES:
        raise ValueError(f"{text!r} is none of {', '.join(NAMES)}")
    return name
