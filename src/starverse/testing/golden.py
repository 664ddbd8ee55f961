"""Golden files: what a command prints, kept in the repository and compared character by character."""

from __future__ import annotations

import os
from pathlib import Path

ACCEPT_VARIABLE = "STARVERSE_GOLDEN_ACCEPT"


def check_golden(path: Path, actual: str) -> None:
    """Compare with the file; ``STARVERSE_GOLDEN_ACCEPT=1`` writes what is new instead.

    Raises ``AssertionError`` with the command that accepts it.
    """
    if os.environ.get(ACCEPT_VARIABLE) == "1":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(actual, encoding="utf-8")
        return
    accept = f"look at the difference; accept it with {ACCEPT_VARIABLE}=1 pytest"
    assert path.exists(), f"there is no {path.name}; {accept}"
    expected = path.read_text(encoding="utf-8")
    assert actual == expected, f"{path.name} differs; {accept}"
