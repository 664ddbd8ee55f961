"""A round over many items in which the fault of one never keeps the others waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from starverse.domain.errors import Conflict

T = TypeVar("T")

OTHERS_WENT_ON = "everything else in this round was done"
"""The note on an error that only some items of a round met."""


class Round:
    """Acts on items one by one and keeps what went wrong for the end."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self._error: Exception | None = None

    def act_on(self, items: Iterable[T], act: Callable[[T], str]) -> None:
        """Act on every item, whatever befalls some of them."""
        for item in items:
            try:
                word = act(item)
            except Exception as error:
                if self._error is None or isinstance(self._error, Conflict):
                    self._error = error
            else:
                if word:
                    self.did.append(word)

    @property
    def fault(self) -> Exception | None:
        """The first error, a lost race last; it says that the others went on."""
        if self._error is not None and OTHERS_WENT_ON not in getattr(self._error, "__notes__", ()):
            self._error.add_note(OTHERS_WENT_ON)
        return self._error

    def end(self) -> list[str]:
        """What was done, in words, without the empty ones; raises :attr:`fault`."""
        if self.fault is not None:
            raise self.fault
        return self.did


def each(items: Iterable[T], act: Callable[[T], str]) -> list[str]:
    """Act on every item; what was done, in words, without the empty ones.

    The first error is raised after the last item: the loop is shown as failing and runs again, but whatever
    else was due is done.
    """
    round_ = Round()
    round_.act_on(items, act)
    return round_.end()
