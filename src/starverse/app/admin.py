"""What operators see and do beside accounts and prices: the ledger, nodes and cards, status, events."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Connection

from starverse.app.disk_space import bytes_free
from starverse.app.etags import require_version
from starverse.app.identity import Identity
from starverse.app.offers import NodeView, node_view
from starverse.app.platform import Platform
from starverse.app.readiness import engine_is_away, engine_trouble
from starverse.app.views import PAGE_ITEMS_DEFAULT, Page, ReconcilerStatus
from starverse.db import ledger, nodes, teams
from starverse.db.events import Event, StoredEvent, newest, record
from starverse.db.nodes import CardUse, NodeUse
from starverse.domain.errors import FieldFault, Invalid, NotFound
from starverse.domain.ledger.accounts import AccountKind
from starverse.domain.ledger.invariants import INVARIANTS
from starverse.domain.money import Money

CHECKS = (*INVARIANTS, "open_holds_match")


EventView = StoredEvent
"""An event and its place in the order recorded."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Counts for metrics: nothing of any team."""

    jobs: Mapping[str, int]
    cards: Mapping[str, int]
    nodes_up: int


@dataclass(frozen=True, slots=True)
class InvariantResult:
    """``detail`` names the first place where it is broken, and how many there are."""

    name: str
    holds: bool
    detail: str


@dataclass(frozen=True, slots=True)
class LedgerCheck:
    """Whether the whole books are sound."""

    holds: bool
    invariants: tuple[InvariantResult, ...]


@dataclass(frozen=True, slots=True)
class LedgerAccountView:
    """``posted`` is the balance in the account's own direction, ``pending`` what open holds keep back."""

    id: str
    kind: str
    team: str | None
    label: str
    posted: Money
    pending: Money


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """The engine, whether it answered its loops last and what it said if not, and what it cannot do."""

    name: str
    answers: bool
    binds_cards: bool
    multi_node: bool
    cannot: tuple[str, ...]
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class DiskStatus:
    """``below_reserve``: nothing new is stored or started."""

    bytes_free: int
    reserve_bytes: int
    below_reserve: bool


@dataclass(frozen=True, slots=True)
class StatusView:
    """How the platform fares. ``servers``: the URLs of those that live, the oldest first."""

    now: datetime
    engine: EngineStatus
    disk: DiskStatus
    database: str
    servers: tuple[str, ...]
    reconcilers: tuple[ReconcilerStatus, ...]
    jobs: Mapping[str, int]
    cards: Mapping[str, int]


def figures(platform: Platform) -> Figures:
    """The platform's figures, now."""
    with platform.database.read() as connection:
        all_nodes = nodes.all_nodes(connection)
        jobs = nodes.jobs_by_state(connection)
    cards = Counter(card.state for node in all_nodes for card in node.cards)
    return Figures(jobs, dict(cards), sum(node.up for node in all_nodes))


def status(platform: Platform, reconcilers: Sequence[ReconcilerStatus]) -> StatusView:
    """Reconcilers, engine, disk, clock and figures."""
    now = figures(platform)
    free = bytes_free(platform)
    reserve = platform.settings.disk_reserve_bytes
    able, answers = platform.engine.capabilities, not engine_is_away(reconcilers)
    trouble = engine_trouble(reconcilers)
    return StatusView(
        now=platform.clock.now(),
        engine=EngineStatus(able.name, answers, able.binds_cards, able.multi_node, able.cannot, trouble),
        disk=DiskStatus(free, reserve, free < reserve),
        database=platform.database.kind,
        servers=tuple(server.api_url for server in platform.servers()),
        reconcilers=tuple(reconcilers),
        jobs=now.jobs,
        cards=now.cards,
    )


def check_ledger(platform: Platform) -> LedgerCheck:
    """Read the whole books and check every invariant; takes time in proportion to the history."""
    with platform.database.read() as connection:
        broken = ledger.check(connection)
    by_name: dict[str, list[str]] = defaultdict(list)
    for found in broken:
        by_name[found.name].append(f"{found.subject}: {found.detail}")
    results = tuple(
        InvariantResult(name, not by_name[name], _first(by_name[name]))
        for name in dict.fromkeys((*CHECKS, *by_name))
    )
    return LedgerCheck(all(result.holds for result in results), results)


def list_ledger_accounts(
    platform: Platform, limit: int = PAGE_ITEMS_DEFAULT, cursor: str | None = None
) -> Page[LedgerAccountView]:
    """Every ledger account by id."""
    with platform.database.read() as connection:
        found = [account for kind in AccountKind for account in ledger.accounts_of_kind(connection, kind)]
        after = sorted(
            (account for account in found if cursor is None or account.id > cursor),
            key=lambda account: account.id,
        )
        shown = after[:limit]
        names = {
            team_id: team.name
            for team_id in {account.team_id for account in shown if account.team_id is not None}
            if (team := teams.get_team(connection, team_id)) is not None
        }
    items = tuple(
        LedgerAccountView(
            id=account.id,
            kind=account.kind.value,
            team=None if account.team_id is None else names.get(account.team_id, account.team_id),
            label=account.label,
            posted=account.balance,
            pending=account.held,
        )
        for account in shown
    )
    return Page(items, items[-1].id if len(after) > limit else None)


def get_node(platform: Platform, identity: Identity, node_id: str) -> NodeView:
    """One node as the operator sees it."""
    with platform.database.read() as connection:
        return node_view(platform, _node(connection, node_id), identity)


def set_drained(
    platform: Platform, identity: Identity, node_id: str, drained: bool, version: str | None
) -> NodeView:
    """Start nothing new on a node (what runs there goes on), or take it into use again."""
    with platform.database.write() as connection:
        node = _node(connection, node_id)
        require_version(version, node_view(platform, node, identity))
        if node.drained != drained:
            nodes.set_drained(connection, node_id, drained)
            _note(platform, connection, identity, "node", node_id, "drained" if drained else "undrained")
        changed = node_view(platform, _node(connection, node_id), identity)
    platform.wakeups.wake("schedule")
    return changed


def get_card(platform: Platform, card_id: str) -> CardUse:
    """One card as the operator sees it."""
    with platform.database.read() as connection:
        return _card(connection, card_id)


def set_quarantined(
    platform: Platform, identity: Identity, card_id: str, quarantined: bool, version: str | None
) -> CardUse:
    """Keep a card from being placed on, or take it into use again."""
    with platform.database.write() as connection:
        card = _card(connection, card_id)
        require_version(version, card)
        if card.quarantined != quarantined:
            nodes.set_quarantined(connection, card_id, quarantined)
            kind = "quarantined" if quarantined else "released"
            _note(platform, connection, identity, "card", card_id, kind)
        changed = replace(card, quarantined=quarantined)
    platform.wakeups.wake("schedule")
    return changed


def list_events(
    platform: Platform, limit: int = PAGE_ITEMS_DEFAULT, cursor: str | None = None, subject: str | None = None
) -> Page[StoredEvent]:
    """What happened, newest first; of one subject where given."""
    if cursor is not None and not (cursor.isascii() and cursor.isdigit() and len(cursor) <= 18):
        raise Invalid(faults=[FieldFault("cursor", cursor[:40], "the next_cursor of the page before")])
    with platform.database.read() as connection:
        found = newest(connection, limit + 1, None if cursor is None else int(cursor), subject)
    return Page(found[:limit], str(found[limit - 1].id) if len(found) > limit else None)


def _note(
    platform: Platform, connection: Connection, identity: Identity, subject: str, subject_id: str, kind: str
) -> None:
    event = Event(
        platform.clock.now(),
        subject,
        subject_id,
        kind,
        "",
        f"by {identity.email}",
        account_id=identity.account_id,
    )
    record(connection, event)


def _node(connection: Connection, node_id: str) -> NodeUse:
    for node in nodes.all_nodes(connection):
        if node.id == node_id:
            return node
    raise NotFound(f"There is no node {node_id[:80]!r}.")


def _card(connection: Connection, card_id: str) -> CardUse:
    for node in nodes.all_nodes(connection):
        for card in node.cards:
            if card.id == card_id:
                return card
    raise NotFound(f"There is no card {card_id[:80]!r}.")


def _first(details: Sequence[str]) -> str:
    if not details:
        return ""
    return details[0] + (f" (and {len(details) - 1} more)" if len(details) > 1 else "")
