"""Commands that are given several names: one that is refused keeps none of the others from being done."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from starverse.cli.remote.session import Session
from starverse.client.errors import ClientError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Several(Generic[T]):
    """What was answered for those that were not refused, in the order of their names."""

    answers: list[T]
    refusals: list[ClientError]

    def emit(self, session: Session, payload: dict[str, Any]) -> None:
        """The answer, and then the first refusal as the command's own, the others told beside it; with
        ``--json`` a refusal is the whole answer."""
        if not (session.json and self.refusals):
            session.emit(payload, lambda: "")
        for refusal in self.refusals[1:]:
            session.note(str(refusal))
        if self.refusals:
            raise self.refusals[0]


def do_to_each(names: Iterable[str], act: Callable[[str], T]) -> Several[T]:
    """``act`` on every name."""
    done: Several[T] = Several([], [])
    for name in names:
        try:
            done.answers.append(act(name))
        except ClientError as error:
            done.refusals.append(error)
    return done
