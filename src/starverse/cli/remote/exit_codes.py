"""Error codes to exit codes, in one place (interfaces.md, Command line)."""

from __future__ import annotations

from collections.abc import Mapping

OK = 0
FAILURE = 1
USAGE = 2
NOT_FOUND = 3
NOT_ALLOWED = 4
CONFLICT = 5
NO_CARDS = 6
NOT_ENOUGH_MONEY = 7
LIMIT = 8
TIMED_OUT = 9
INTERRUPTED = 130
SIGNAL_BASE = 128
"""A job that a signal ended exits with this plus the signal's number, as a shell says it."""

_BY_CODE: Mapping[str, int] = {
    "invalid": USAGE,
    "usage": USAGE,
    "not_found": NOT_FOUND,
    "unauthenticated": NOT_ALLOWED,
    "forbidden": NOT_ALLOWED,
    "conflict": CONFLICT,
    "lost_race": CONFLICT,
    "changed": CONFLICT,
    "target_not_empty": CONFLICT,
    "no_capacity": NO_CARDS,
    "not_enough_money": NOT_ENOUGH_MONEY,
    "limit_exceeded": LIMIT,
    "too_large": LIMIT,
    "timed_out": TIMED_OUT,
    "interrupted": INTERRUPTED,
}


def exit_code_of(code: str) -> int:
    """The exit code of an error code; codes that are not known here are a plain failure."""
    return _BY_CODE.get(code, FAILURE)


def exit_code_of_job(state: str, exit_code: int | None, exit_signal: int | None) -> int:
    """What ``--wait`` returns: the job's own code, 128 and more for a signal, 1 where it has none."""
    if exit_signal:
        return SIGNAL_BASE + exit_signal
    if exit_code is not None and (exit_code or state == "succeeded"):
        return exit_code
    return OK if state == "succeeded" else FAILURE
