"""An instance: what its owner wants of it, kept apart from what is seen of it.

Each start of it is a job (``Job.instance_id``), which the platform places, runs, charges and ends as any
other; the instance goes on from start to start with the same files and disks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from starverse.domain.ids import is_uuid
from starverse.domain.money import Money
from starverse.domain.tariff import Tariff
from starverse.domain.workloads.reasons import EndCause, JobEndReason
from starverse.domain.workloads.states import InstanceState

RUN_SECONDS_MAX = 365 * 24 * 3600
"""The time limit of one start: an instance lives until it is stopped."""

RUN_SCRIPT = "#!/bin/sh\nexec sleep infinity\n"
"""What an engine runs that knows nothing of instances; others run their own agent instead."""

CARDS_MAX = 64
NAME_EXPECTED = "letters, digits, '.', '_' and '-', at most 63, begun with a letter, such as my-host"
TARIFFS = (Tariff.ON_DEMAND, Tariff.SPOT)
"""The tariffs that an instance is started on; ``no_gpu`` is another way of starting it."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,62}")


class Restart(StrEnum):
    """What follows when its cards are reclaimed or its node is lost."""

    ELSEWHERE = "elsewhere"
    STAY = "stay"


class IdleStop(StrEnum):
    """Whether idleness stops it. ``unset``: nobody said; ``default``: after the operator's time, whatever
    that is then; ``after``: after a time of its own, which may be 0."""

    UNSET = "unset"
    OFF = "off"
    DEFAULT = "default"
    AFTER = "after"


class InstanceReason(StrEnum):
    """Why an instance is stopped, or is being stopped; ``""`` beside the other states."""

    NEW = "new"
    ASKED = "asked"
    ACCOUNT_DISABLED = "account_disabled"
    IDLE = "idle"
    TTL = "ttl"
    RESIZED = "resized"
    CLONING = "cloning"
    ENDED = "ended"
    RECLAIMED = "reclaimed"
    NODE_LOST = "node_lost"
    CARD_FAULT = "card_fault"
    OUT_OF_MEMORY = "out_of_memory"
    NO_MONEY = "no_money"
    NO_CARDS = "no_cards"
    DISK_RESERVE = "disk_reserve"
    DISK_IN_USE = "disk_in_use"
    START_FAILED = "start_failed"
    TIME_LIMIT = "time_limit"
    IMPOSSIBLE = "impossible"
    PLATFORM = "platform"


class Next(StrEnum):
    """What follows once the present run of an instance is over."""

    START = "start"
    RELEASE = "release"


@dataclass(frozen=True, slots=True)
class StartWish:
    """How it is to be started. ``tariff`` ``None``: that of the instance. ``wait``: for cards, if need be;
    ``account_id`` is who asked, whose membership counts."""

    account_id: str
    no_gpu: bool = False
    tariff: Tariff | None = None
    wait: bool = False


@dataclass(frozen=True, slots=True)
class Afterwards:
    """What its owner asked for that has to wait for the end of its present run. ``start`` ``None``: a
    release."""

    what: Next
    start: StartWish | None = None


@dataclass(frozen=True, slots=True)
class InstanceSpec:
    """What each start gives it. ``image`` is an image's id, ``image_name`` what people called it; ``None``
    and ``""``: the host's programs alone; ``driver_min`` is the lowest NVIDIA driver it runs on.
    ``price_max`` is per card-hour. ``cpus`` and ``memory_bytes`` ``None``: its cards' share of a node.
    ``cloned_from`` is the instance whose files it began with."""

    card: str
    cards: int
    fabric: str | None = None
    zone: str | None = None
    tariff: Tariff = Tariff.ON_DEMAND
    price_max: Money | None = None
    cpus: int | None = None
    memory_bytes: int | None = None
    image: str | None = None
    image_name: str = ""
    driver_min: str = ""
    datasets: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    cloned_from: str | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """What its owner wants beyond its size, in a row of its own: no refresh of what was seen touches it.

    ``idle_seconds`` belongs to ``after``; ``ttl_seconds`` counts from the first *ready* of each start that
    was asked for, however often that start is reclaimed or loses its node; ``None``: until it is stopped.
    """

    idle_stop: IdleStop = IdleStop.UNSET
    idle_seconds: int | None = None
    ttl_seconds: int | None = None
    restart: Restart = Restart.STAY
    generation: int = 0
    changed_at: datetime | None = None

    def stops_at(self, first_ready_at: datetime | None) -> datetime | None:
        """The end of its time to live; ``None``: it has none, or its start was not ready yet."""
        if self.ttl_seconds is None or first_ready_at is None:
            return None
        return first_ready_at + timedelta(seconds=self.ttl_seconds)

    def ttl_left(self, first_ready_at: datetime | None, counted_from: datetime) -> int:
        """What a launcher is told, which counts from when it is ready itself: whole seconds, at least one.

        0: it has no time to live.
        """
        if self.ttl_seconds is None or first_ready_at is None:
            return self.ttl_seconds or 0
        used = max(timedelta(), counted_from - first_ready_at)
        return max(1, self.ttl_seconds - int(used.total_seconds()))

    @property
    def ttl_text(self) -> str:
        """Why it was stopped when that time was over."""
        return f"its time to live of {self.ttl_seconds} s is over"


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance as it stands in the database; ``generation`` counts the writes.

    ``run_id`` is the job that runs it, or ran it last; ``starts`` how many there were. ``first_ready_at``:
    since then there are files of its owner. ``release_at``: when a stopped one is released.
    """

    id: str
    number: int
    team_id: str
    account_id: str
    name: str
    workspace_id: str
    spec: InstanceSpec
    state: InstanceState
    reason: str
    message: str
    created_at: datetime
    generation: int = 0
    run_id: str | None = None
    starts: int = 0
    first_ready_at: datetime | None = None
    stopped_at: datetime | None = None
    release_at: datetime | None = None
    release_warned_at: datetime | None = None
    released_at: datetime | None = None
    afterwards: Afterwards | None = None


def is_name(text: str) -> bool:
    """Whether an instance may be called so: it is also what people type before the ``@`` of ``ssh``."""
    return _NAME.fullmatch(text) is not None and not is_uuid(text)


_REASONS: Mapping[EndCause, InstanceReason] = {
    EndCause.COMPLETED: InstanceReason.ENDED,
    EndCause.USER_CODE: InstanceReason.ENDED,
    EndCause.OUT_OF_MEMORY: InstanceReason.OUT_OF_MEMORY,
    EndCause.CARD_FAULT: InstanceReason.CARD_FAULT,
    EndCause.NODE_LOST: InstanceReason.NODE_LOST,
    EndCause.RECLAIMED: InstanceReason.RECLAIMED,
    EndCause.TIME_LIMIT: InstanceReason.TIME_LIMIT,
    EndCause.MONEY: InstanceReason.NO_MONEY,
    EndCause.COST_MAX: InstanceReason.NO_MONEY,
    EndCause.WINDOW: InstanceReason.NO_MONEY,
    EndCause.CANCELLED: InstanceReason.ASKED,
    EndCause.START_FAILED: InstanceReason.START_FAILED,
    EndCause.PLATFORM: InstanceReason.PLATFORM,
}

_REFUSALS: Mapping[JobEndReason, InstanceReason] = {
    JobEndReason.NO_CARDS: InstanceReason.NO_CARDS,
    JobEndReason.NO_MONEY: InstanceReason.NO_MONEY,
    JobEndReason.DISK_RESERVE: InstanceReason.DISK_RESERVE,
    JobEndReason.DISK_IN_USE: InstanceReason.DISK_IN_USE,
    JobEndReason.CANCELLED: InstanceReason.ASKED,
}


def reason_of(cause: EndCause) -> InstanceReason:
    """Why an instance is stopped whose run ended so."""
    return _REASONS[cause]


def reason_of_refusal(reason: str) -> InstanceReason:
    """Why an instance is stopped whose run never had an allocation; ``reason`` is a ``JobEndReason``."""
    try:
        return _REFUSALS.get(JobEndReason(reason), InstanceReason.IMPOSSIBLE)
    except ValueError:
        return InstanceReason.IMPOSSIBLE
