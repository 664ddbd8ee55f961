"""A round over many items in which the fault of one never keeps the others waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def each(items: Iterable[T], act: Callable[[T], str]) -> list[str]:
    """Act on every item; what was done, in words, without the empty ones.

    The first error is raised after the last item: the loop is shown as failing and runs again, but whatever
    else was due is done.
    """
    did, first = [], None
    for item in items:
        try:
            word = act(item)
        except Exception as error:
            first = first or error
        else:
            if word:
                did.append(word)
    if first is not None:
        raise first
    return did
