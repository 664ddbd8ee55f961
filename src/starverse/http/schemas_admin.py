"""Shapes of what operators see and change."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from starverse.app.admin import EventView, StatusView
from starverse.app.views import ReconcilerStatus
from starverse.http.schemas_accounts import Password
from starverse.http.shapes import Amount, In, Instant, InstantText, Out


class BookSummaryOut(Out):
    """A price-book version. ``created_by`` null: it came with the product."""

    id: str
    effective_from: InstantText
    created_at: InstantText
    created_by: str | None
    in_effect: bool
    warnings: list[str]


class BookOut(BookSummaryOut):
    """A version with its text."""

    yaml: str


class AdminAccountOut(Out):
    """An account as operators see it; ``member`` is its price-book class."""

    id: str
    email: str
    operator: bool
    disabled: bool
    member: str | None
    created_at: InstantText


class AccountChangeIn(In):
    """What to change; what is left out stays. ``member`` ``""`` takes the member class away."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"member": "edu"}, {"disabled": True}]})

    member: Annotated[str | None, Field(max_length=100)] = None
    disabled: bool | None = None
    operator: bool | None = None
    password: Password | None = None


class AdminTeamOut(Out):
    """A team and its money."""

    id: str
    name: str
    personal: bool
    members: list[str]
    created_at: InstantText
    free_micro: int
    free: str
    held_micro: int
    held: str


class GrantIn(In):
    """A gift to a team: credit pays anything, a coupon at most the book's share of a charge."""

    kind: Literal["credit", "coupon"]
    amount: Amount
    reason: Annotated[str, Field(max_length=1000)]
    expires_at: Instant | None = None


class GrantedOut(Out):
    """The gift, by its own ledger account."""

    id: str
    team: str
    kind: str
    amount_micro: int
    amount: str
    expires_at: InstantText | None


class InvariantOut(Out):
    """``detail`` names the first place where it is broken."""

    name: str
    holds: bool
    detail: str


class LedgerCheckOut(Out):
    """Whether the whole books are sound."""

    holds: bool
    invariants: list[InvariantOut]


class LedgerAccountOut(Out):
    """``posted`` is the balance in the account's own direction, ``pending`` what open holds keep back."""

    id: str
    kind: str
    team: str | None
    label: str
    posted_micro: int
    posted: str
    pending_micro: int
    pending: str


class ReconcilerOut(Out):
    """``state`` is ok or failing; ``failures`` counts those in a row; ``server`` runs it (empty: the only
    one)."""

    name: str
    state: str
    runs: int
    failures: int
    last_run_at: InstantText | None
    last_seconds: float | None
    message: str
    server: str

    @classmethod
    def made(cls, status: ReconcilerStatus) -> ReconcilerOut:
        return cls.of(
            status,
            state="ok" if status.healthy else "failing",
            runs=status.activations,
            last_run_at=status.last_at,
        )


class EngineOut(Out):
    """The engine, whether it answered its loops last and what it said if not (``trouble``), and what it
    cannot do."""

    name: str
    answers: bool
    binds_cards: bool
    multi_node: bool
    cannot: list[str]
    trouble: str


class DiskStatusOut(Out):
    """``below_reserve``: nothing new is stored or started."""

    bytes_free: int
    reserve_bytes: int
    below_reserve: bool


class StatusOut(Out):
    """How the platform fares."""

    now: InstantText
    engine: EngineOut
    disk: DiskStatusOut
    database: str
    servers: list[str]
    reconcilers: list[ReconcilerOut]
    jobs: dict[str, int]
    cards: dict[str, int]

    @classmethod
    def made(cls, view: StatusView) -> StatusOut:
        return cls.of(view, reconcilers=[ReconcilerOut.made(status) for status in view.reconcilers])


class DrainIn(In):
    """Start nothing new there, or take it into use again."""

    drained: bool


class QuarantineIn(In):
    """Keep the card from being placed on, or take it into use again."""

    quarantined: bool


class AdminCardOut(Out):
    """A card as operators see it."""

    id: str
    node_id: str
    index: int
    model: str
    state: str
    declared: bool
    healthy: bool
    quarantined: bool
    message: str
    job_number: str | None

    @classmethod
    def made(cls, card: object, state: str) -> AdminCardOut:
        return cls.of(card, state=state)


class EventOut(Out):
    """What happened; ``reason`` is typed, ``message`` for people."""

    id: int
    at: InstantText
    subject_kind: str
    subject_id: str
    kind: str
    reason: str
    message: str
    team_id: str | None
    account_id: str | None

    @classmethod
    def made(cls, stored: EventView) -> EventOut:
        return cls.of(stored.event, id=stored.id)
