"""Group commit: postings of many threads share one transaction, and so one flush to disk.

For postings that stand alone (top-ups, refunds, gifts). One that must commit together with other rows is
posted by ``ledger.post`` inside their transaction.

While one thread flushes, the others line up; the first in line then posts for all that wait. Nobody is
answered before the flush, and nobody waits for a timer: a lone caller commits at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import datetime

from starverse.db import ledger
from starverse.db.session import Database
from starverse.domain.errors import Unavailable
from starverse.domain.ledger.posting import Outcome
from starverse.domain.ledger.transfers import Transfer

GROUPS_PER_FLUSH_MAX = 1_000


class PostingQueue:
    """Posts groups durably from any number of threads. ``clock`` is read once per transaction."""

    def __init__(self, database: Database, clock: Callable[[], datetime]) -> None:
        self._database = database
        self._clock = clock
        self._mutex = threading.Lock()
        self._line: list[_Ticket] = []
        self._has_leader = False

    def post(self, group: Sequence[Transfer]) -> Outcome:
        """Record one group, all or nothing; returns when it is on disk.

        Raises :class:`Unavailable` when the database refused the shared transaction: nothing of it is
        recorded, and repeating with the same ids is safe.
        """
        ticket = _Ticket(group)
        with self._mutex:
            self._line.append(ticket)
            leads, self._has_leader = not self._has_leader, True
        if not leads:
            ticket.wait()
        if ticket.outcome is None and ticket.failure is None:
            self._post_for_all_waiting()
        if ticket.outcome is None:
            raise Unavailable("The posting could not be written; nothing moved.") from ticket.failure
        return ticket.outcome

    @property
    def waiting(self) -> int:
        """How many callers stand in line for the next flush."""
        return len(self._line)

    def _post_for_all_waiting(self) -> None:
        with self._mutex:
            tickets = self._line[:GROUPS_PER_FLUSH_MAX]
            del self._line[:GROUPS_PER_FLUSH_MAX]
        try:
            with self._database.write() as connection:
                outcomes = ledger.post_groups(connection, [ticket.group for ticket in tickets], self._clock())
        except BaseException as failure:
            for ticket in tickets:
                ticket.failure = failure
            if not isinstance(failure, Exception):
                raise
        else:
            for ticket, outcome in zip(tickets, outcomes, strict=True):
                ticket.outcome = outcome
        finally:
            with self._mutex:
                successor = self._line[0] if self._line else None
                self._has_leader = successor is not None
            for ticket in tickets:
                ticket.wake()
            if successor is not None:
                successor.wake()


class _Ticket:
    """One caller in the line: woken with an answer, or without one to lead."""

    __slots__ = ("_asleep", "failure", "group", "outcome")

    def __init__(self, group: Sequence[Transfer]) -> None:
        self.group = group
        self.outcome: Outcome | None = None
        self.failure: BaseException | None = None
        self._asleep = threading.Lock()
        self._asleep.acquire()

    def wait(self) -> None:
        self._asleep.acquire()

    def wake(self) -> None:
        self._asleep.release()
