"""What is told on stderr while something is waited for, each thing once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from starverse.cli.remote.session import Session

T = TypeVar("T")


def tell_break(session: Session) -> Callable[[Exception], None]:
    """Says once per break that the connection is being made again."""
    told: list[str] = []

    def tell(error: Exception) -> None:
        if str(error) not in told:
            told.append(str(error))
            session.note(f"connection lost ({error}); trying again")

    return tell


def tell_new(session: Session, line: Callable[[T], str]) -> Callable[[T], None]:
    """Says each new ``line`` of what is seen."""
    told = ""

    def tell(seen: T) -> None:
        nonlocal told
        if line(seen) != told:
            told = line(seen)
            session.note(told)

    return tell
