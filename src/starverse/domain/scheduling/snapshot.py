"""What the scheduler sees: one immutable picture of nodes, allocations and waiting jobs at an instant.

``reconcilers/schedule.py`` reads it in one transaction; ``decide()`` turns it into a
:class:`~starverse.domain.scheduling.decision.Decision`. Who waits, who runs and what there is are kept
apart. Order inside the tuples never matters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum, StrEnum
from fractions import Fraction

from starverse.domain.ids import AllocationId, CardId, JobId, NodeId, TeamId
from starverse.domain.tariff import Tariff
from starverse.domain.workloads.reasons import JobEndReason, WaitReason
from starverse.domain.workloads.specs import Resources

GRACE_SECONDS_DEFAULT = 120
"""From the notice to TERM (architecture.md, Notice)."""

KILL_AFTER_SECONDS = 10
"""From TERM to KILL: what a reclaimed allocation may take at most beyond its deadline."""

NO_MODEL = ""
"""The model of a pool seen by a workload without cards."""


class Claim(IntEnum):
    """How strong the right to a card is; the greater goes first (architecture.md, Scheduling)."""

    IDLE = 1
    SPOT = 2
    ON_DEMAND = 3
    RESERVED = 4


_CLAIMS: Mapping[Tariff, Claim] = {
    Tariff.IDLE: Claim.IDLE,
    Tariff.SPOT: Claim.SPOT,
    Tariff.ON_DEMAND: Claim.ON_DEMAND,
    Tariff.NO_GPU: Claim.ON_DEMAND,
    Tariff.RESERVED: Claim.RESERVED,
    Tariff.DAY: Claim.RESERVED,
    Tariff.MONTH: Claim.RESERVED,
    Tariff.YEAR: Claim.RESERVED,
}

RECLAIMABLE_CLAIMS = frozenset({Claim.SPOT, Claim.IDLE})
"""What may be taken back, each for a greater claim only."""


def claim_of(tariff: Tariff) -> Claim:
    """The claim class of a tariff: reservation and package > on-demand > spot > idle."""
    return _CLAIMS[tariff]


@dataclass(frozen=True, slots=True, order=True)
class Pool:
    """The cards of one zone, model and fabric; ``model`` :data:`NO_MODEL` stands for the nodes alone."""

    zone: str
    model: str
    fabric: str

    def __str__(self) -> str:
        return f"{self.zone}/{self.model or 'no cards'}/{self.fabric}"


class NodeState(StrEnum):
    """``drained`` keeps what runs and takes nothing new; ``down`` is lost or failed its health gate."""

    USABLE = "usable"
    DRAINED = "drained"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class Card:
    """A card; ``usable`` false: quarantined or unhealthy, nothing is placed on it."""

    id: CardId
    index: int
    model: str
    usable: bool = True


@dataclass(frozen=True, slots=True)
class Link:
    """A link between two cards of a node by index; higher ``quality`` is better, no link means 0."""

    a: int
    b: int
    quality: int


@dataclass(frozen=True, slots=True)
class Node:
    """A host with its cards, possibly of several models (at most 64 cards).

    ``generation`` is what the applier compares before it writes. ``driver`` is the version of its NVIDIA
    driver, ``""``: not told.
    """

    id: NodeId
    generation: int
    zone: str
    fabric: str
    cpus: int
    memory_bytes: int
    cards: tuple[Card, ...] = ()
    links: tuple[Link, ...] = ()
    state: NodeState = NodeState.USABLE
    driver: str = ""

    def pool(self, model: str) -> Pool:
        return Pool(self.zone, model, self.fabric)


@dataclass(frozen=True, slots=True)
class NodeShare:
    """What an allocation holds of one node. ``generation`` of the node as the decision saw it."""

    node_id: NodeId
    card_ids: tuple[CardId, ...]
    cpus: int
    memory_bytes: int
    generation: int = 0


@dataclass(frozen=True, slots=True)
class RunningAllocation:
    """An allocation that holds its cards: placed, starting, running or stopping.

    ``bid`` is the highest price accepted, micro-yuan per card-hour (``None``: whatever the price).
    ``member_factor`` turns the price of the pool into the rate this account pays. ``expected_end_at`` is
    placed + time limit (``None``: without an end). ``notice_deadline`` is set once a notice was given:
    it is coming free and is never reclaimed again; ``reclaimed_for`` names the job that the cards are
    promised to. ``array_group`` is shared by all tasks of one array. ``script`` is the job's name: what its
    run time is told by.
    """

    id: AllocationId
    job_id: JobId
    number: str
    team_id: TeamId
    tariff: Tariff
    shares: tuple[NodeShare, ...]
    placed_at: datetime
    expected_end_at: datetime | None
    bid: Fraction | None = None
    member_factor: Fraction = Fraction(1)
    ready_at: datetime | None = None
    newest_verified_checkpoint_at: datetime | None = None
    notice_deadline: datetime | None = None
    reclaimed_for: JobId | None = None
    requeue: bool = True
    array_group: str | None = None
    script: str = ""

    @property
    def claim(self) -> Claim:
        return claim_of(self.tariff)

    @property
    def cards(self) -> int:
        """All cards it holds, over all its nodes."""
        return sum(len(share.card_ids) for share in self.shares)


@dataclass(frozen=True, slots=True)
class Blocked:
    """A job may not start yet, whatever is free. ``until`` ``None``: not known when that ends."""

    reason: WaitReason
    message: str
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Never:
    """A job can never start; it ends as failed with this reason."""

    reason: JobEndReason
    message: str


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A queued job. ``blocked`` comes from :mod:`~starverse.domain.scheduling.eligibility`.

    ``number`` is what people see (``123``, ``123_4``). ``bid`` as in :class:`RunningAllocation`: the
    job's ``--price-max``, or ``None``. ``bid_rank`` orders spot: the bid, or the list price where there
    is none. ``promised_at`` is set once cards were reclaimed in its name since it last queued: it goes
    first in its claim class. ``array_running_max`` ``None``: no limit. ``at_once``: it waits for nothing but
    cards that are coming free for it; else it is refused. ``script`` is its name, to tell its run time by.
    """

    job_id: JobId
    number: str
    team_id: TeamId
    tariff: Tariff
    resources: Resources
    submitted_at: datetime
    time_limit_seconds: int
    bid: Fraction | None = None
    bid_rank: Fraction = Fraction(0)
    member_factor: Fraction = Fraction(1)
    blocked: Blocked | Never | None = None
    promised_at: datetime | None = None
    array_group: str | None = None
    array_running_max: int | None = None
    at_once: bool = False
    script: str = ""

    @property
    def claim(self) -> Claim:
        return claim_of(self.tariff)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything a decision depends on, beside the instant.

    ``nodes`` are all nodes that exist, down and drained ones too: what no node can hold is *impossible*,
    what none holds now is *waiting*. ``team_usage`` is in card-seconds, decayed to the instant of the
    snapshot (:func:`~starverse.domain.scheduling.team_usage.decayed_usage`). ``prices`` are micro-yuan
    per card-hour now, before any member factor; a pair that is missing is not checked.
    """

    nodes: tuple[Node, ...]
    running: tuple[RunningAllocation, ...] = ()
    waiting: tuple[WaitingJob, ...] = ()
    team_usage: Mapping[TeamId, float] = field(default_factory=dict)
    prices: Mapping[tuple[Pool, Tariff], Fraction] = field(default_factory=dict)
    grace_seconds: int = GRACE_SECONDS_DEFAULT
