"""Asking again until something is over: pauses that grow, through a server that is away for a while."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import TypeVar

from starverse.client.errors import ClientError, NotReachable
from starverse.client.transport import Transport

GIVE_UP_SECONDS = 600.0
"""How long a server may stay away before waiting for it ends with an error."""
_AWAY_STATUSES = frozenset({502, 503, 504})
_GROWTH = 1.5

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Patience:
    """The first and the longest pause between two looks, and how long to look in all."""

    pause_seconds_first: float
    pause_seconds_max: float
    seconds_max: float = inf


def wait_until(
    transport: Transport,
    look: Callable[[], T],
    done: Callable[[T], bool],
    patience: Patience,
    *,
    on_wait: Callable[[T], None] = lambda found: None,
    on_break: Callable[[ClientError], None] = lambda error: None,
) -> T:
    """What is seen once it is ``done``, or after ``patience.seconds_max``.

    ``on_wait`` is told what is seen and not done yet, ``on_break`` each look that found nobody. Raises
    :class:`ClientError` when the API refuses, or stays away for :data:`GIVE_UP_SECONDS`.
    """
    pause_seconds, waited_seconds, away_seconds = patience.pause_seconds_first, 0.0, 0.0
    while True:
        try:
            found = look()
        except ClientError as error:
            if not is_away(error) or away_seconds >= GIVE_UP_SECONDS:
                raise
            on_break(error)
            away_seconds += pause_seconds
        else:
            away_seconds = 0.0
            if done(found) or waited_seconds >= patience.seconds_max:
                return found
            on_wait(found)
        transport.pause(pause_seconds)
        waited_seconds += pause_seconds
        pause_seconds = min(pause_seconds * _GROWTH, patience.pause_seconds_max)


def is_away(error: ClientError) -> bool:
    """Whether nobody answers now who may answer later."""
    return isinstance(error, NotReachable) or error.code == "timed_out" or error.status in _AWAY_STATUSES
