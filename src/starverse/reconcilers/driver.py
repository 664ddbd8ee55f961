"""Runs the reconcilers: each in its own thread, when its period has passed or something woke it, and while
this server holds its lease (``leadership.py``).

The simulation does not use the threads: it calls :meth:`Reconciler.run` itself, in an order from a seed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Protocol

import structlog

from starverse.app.one_by_one import OTHERS_WENT_ON
from starverse.app.ports import Clock, Wakeups
from starverse.app.views import ReconcilerStatus
from starverse.db.session import DatabaseAway
from starverse.domain.errors import Conflict, StarverseError
from starverse.engines.base import EngineUnavailable

BACKOFF_SECONDS_MAX = 30.0
RACES_MAX = 5
"""A race lost so often in a row is no race: the loop is shown as failing and backs off."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Reconciler:
    """``act`` does one round and says in words what it did (``""``: nothing).

    ``run`` of the same reconciler is never concurrent with itself in one process.
    """

    name: str
    purpose: str
    period_seconds: float
    act: Callable[[], str]


class Turns(Protocol):
    """Who may run a loop: this server, or another one of the same database."""

    def holds(self, name: str) -> bool: ...

    def round_of(self, name: str) -> AbstractContextManager[bool]:
        """A block that runs one round of the loop if it is given true."""
        ...

    def why_not(self, name: str) -> str:
        """Why this server does not run the loop, in words."""
        ...

    def fault(self) -> str:
        """What keeps this server from any turn; ``""``: nothing."""
        ...

    def reports(self) -> Mapping[str, ReconcilerStatus]:
        """How the loops fare that others run."""
        ...


class OwnTurn:
    """There is no other server: every loop is run here."""

    def holds(self, name: str) -> bool:
        return True

    def round_of(self, name: str) -> AbstractContextManager[bool]:
        return nullcontext(True)

    def why_not(self, name: str) -> str:
        return ""

    def fault(self) -> str:
        return ""

    def reports(self) -> Mapping[str, ReconcilerStatus]:
        return {}


@dataclass(slots=True)
class _Loop:
    reconciler: Reconciler
    status: ReconcilerStatus
    woken: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None
    races: int = 0
    backs_off: bool = False


class Driver:
    """Starts and stops the loops; ``statuses`` is safe to call from any thread."""

    def __init__(
        self,
        reconcilers: Sequence[Reconciler],
        clock: Clock,
        wakeups: Wakeups,
        turns: Turns | None = None,
    ) -> None:
        self._clock = clock
        self._turns = turns or OwnTurn()
        self._stopping = threading.Event()
        self._loops = [_Loop(r, _never_run(r)) for r in reconcilers]
        for loop in self._loops:
            wakeups.listen(loop.reconciler.name, loop.woken.set)

    def start(self) -> None:
        for loop in self._loops:
            loop.thread = threading.Thread(
                target=self._run, args=(loop,), name=f"reconcile-{loop.reconciler.name}", daemon=True
            )
            loop.thread.start()

    def stop(self, wait_seconds: float = 10.0) -> None:
        """Let each finish its round and end; what is half done is found again at the next start."""
        self._stopping.set()
        for loop in self._loops:
            loop.woken.set()
        deadline = time.monotonic() + wait_seconds
        for loop in self._loops:
            if loop.thread is not None:
                loop.thread.join(max(0.0, deadline - time.monotonic()))

    def statuses(self) -> list[ReconcilerStatus]:
        """How each loop fares, by this server or by the one that runs it."""
        told, holds = self._turns.reports(), self._turns.holds
        found = []
        for loop in self._loops:
            name = loop.reconciler.name
            found.append(loop.status if holds(name) else told.get(name) or self._without_turn(loop))
        return found

    def _run(self, loop: _Loop) -> None:
        while not self._stopping.is_set():
            self.run_once(loop.reconciler.name)
            if loop.backs_off:  # a wake-up is answered by the round that follows
                self._stopping.wait(backoff_seconds(loop.reconciler.period_seconds, loop.status.failures))
            else:
                loop.woken.wait(loop.reconciler.period_seconds)
            loop.woken.clear()

    def run_once(self, name: str) -> None:
        """One round, if it is this server's turn; an error is logged, counted and shown, and the next round
        starts afresh.

        Where only some items failed, the next round comes in its time: nobody waits for somebody else's
        fault.
        """
        loop = next(loop for loop in self._loops if loop.reconciler.name == name)
        with self._turns.round_of(name) as ours:
            if ours:
                self._round(loop)
        if not ours:  # what kept it from its turn is the turns' to tell, and no failure of its own
            loop.races, loop.backs_off = 0, False
            loop.status = replace(loop.status, healthy=True, failures=0, message="", away="")

    def _without_turn(self, loop: _Loop) -> ReconcilerStatus:
        fault, why_not = self._turns.fault(), self._turns.why_not(loop.reconciler.name)
        away = "database" if fault else ""
        return replace(loop.status, healthy=not fault, failures=0, message=why_not, away=away)

    def _round(self, loop: _Loop) -> None:
        name = loop.reconciler.name
        before, begun = loop.status, time.monotonic()
        failures, message, away = 0, before.message if before.healthy else "", ""
        try:
            message = loop.reconciler.act() or message
            loop.races, loop.backs_off = 0, False
        except Exception as error:  # a loop must survive whatever one round meets
            loop.races = loop.races + 1 if isinstance(error, Conflict) else 0
            failures = 0 if 0 < loop.races <= RACES_MAX else before.failures + 1
            loop.backs_off = failures > 0 and OTHERS_WENT_ON not in getattr(error, "__notes__", ())
            if failures:
                away = _who_is_away(error)
                context = error.context if isinstance(error, StarverseError) else {}
                message = f"{type(error).__name__}: {error}"
                log.exception("reconciler failed", reconciler=name, context=context)
            else:
                log.debug("lost a race, running again", reconciler=name, detail=str(error))
                loop.woken.set()
        loop.status = ReconcilerStatus(
            name=name,
            healthy=not failures,
            activations=before.activations + 1,
            failures=failures,
            last_at=self._clock.now(),
            last_seconds=time.monotonic() - begun,
            message=message,
            away=away,
        )


def _who_is_away(error: Exception) -> str:
    if isinstance(error, EngineUnavailable):
        return "engine"
    return "database" if isinstance(error, DatabaseAway) else ""


def backoff_seconds(period_seconds: float, failures: int) -> float:
    """The pause after so many failed rounds in a row: it doubles, and is never longer than half a minute."""
    return min(BACKOFF_SECONDS_MAX, max(period_seconds, 0.2 * 2.0 ** min(failures, 8)))


def _never_run(reconciler: Reconciler) -> ReconcilerStatus:
    return ReconcilerStatus(reconciler.name, True, 0, 0, None, None, reconciler.purpose)
