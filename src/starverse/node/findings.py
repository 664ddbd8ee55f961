"""An answer of ``starverse doctor``."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Health(StrEnum):
    OK = "ok"
    WARN = "warn"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Finding:
    """One answer: ``name`` is stable, ``what`` says what was found, ``remedy`` is empty where all is well.

    ``missing``: workloads cannot run (or not as asked) without it; ``warn``: they run with less.
    """

    name: str
    health: Health
    what: str
    remedy: str = ""
