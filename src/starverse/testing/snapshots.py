"""Builders of scheduler snapshots with defaults; times count in seconds from :data:`NOW`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from itertools import combinations
from typing import Any

from starverse.domain.ids import AllocationId, CardId, JobId, NodeId, TeamId
from starverse.domain.scheduling.snapshot import (
    Card,
    Link,
    Node,
    NodeShare,
    NodeState,
    RunningAllocation,
    WaitingJob,
)
from starverse.domain.tariff import Tariff
from starverse.domain.workloads.specs import Resources

NOW = datetime(2026, 3, 10, 2, tzinfo=UTC)
GIB = 1024**3


def at(seconds: float) -> datetime:
    """The instant so many seconds after :data:`NOW`."""
    return NOW + timedelta(seconds=seconds)


def all_linked(groups: Iterable[Iterable[int]], quality: int = 100) -> tuple[Link, ...]:
    """Links between all cards of each group of indices."""
    return tuple(Link(a, b, quality) for group in groups for a, b in combinations(sorted(group), 2))


def a_node(
    name: str = "n1",
    cards: int = 8,
    model: str = "rtx4090",
    *,
    models: tuple[str, ...] | None = None,
    links: tuple[Link, ...] = (),
    broken: tuple[int, ...] = (),
    **changes: Any,
) -> Node:
    """A usable node ``n1`` with cards ``n1.0`` ...; ``models`` names one per card instead of ``model``."""
    names = models if models is not None else (model,) * cards
    facts: dict[str, Any] = {
        "id": NodeId(name),
        "generation": 7,
        "zone": "bj1",
        "fabric": "eth",
        "cpus": 64,
        "memory_bytes": 512 * GIB,
        "cards": tuple(
            Card(CardId(f"{name}.{index}"), index, each, index not in broken)
            for index, each in enumerate(names)
        ),
        "links": links,
        "state": NodeState.USABLE,
    }
    return Node(**(facts | changes))


def a_share(node: str, *indices: int, cpus: int = 1, memory_bytes: int = 2 * GIB) -> NodeShare:
    """Cards of a node by index."""
    cards = tuple(CardId(f"{node}.{index}") for index in indices)
    return NodeShare(NodeId(node), cards, cpus, memory_bytes)


def an_allocation(
    name: str, *shares: NodeShare, tariff: Tariff = Tariff.SPOT, team: str = "lab", **changes: Any
) -> RunningAllocation:
    """Placed an hour ago, ready since, ends in a day; ``bid`` is CNY 1."""
    facts: dict[str, Any] = {
        "id": AllocationId(name),
        "job_id": JobId(f"job-of-{name}"),
        "number": name,
        "team_id": TeamId(team),
        "tariff": tariff,
        "shares": shares,
        "placed_at": at(-3600),
        "ready_at": at(-3590),
        "expected_end_at": at(86_400),
        "bid": Fraction(1_000_000),
    }
    return RunningAllocation(**(facts | changes))


def a_job(
    name: str, cards: int = 1, *, tariff: Tariff = Tariff.ON_DEMAND, team: str = "lab", **changes: Any
) -> WaitingJob:
    """Asks for ``cards`` rtx4090 on one node for an hour, submitted a minute ago.

    Fields of :class:`Resources` may be given beside those of the job.
    """
    fields = Resources.__dataclass_fields__
    asked: dict[str, Any] = {"card_model": "rtx4090" if cards else None, "cards_per_node": cards}
    asked |= {key: changes.pop(key) for key in list(changes) if key in fields}
    facts: dict[str, Any] = {
        "job_id": JobId(name),
        "number": name,
        "team_id": TeamId(team),
        "tariff": tariff,
        "resources": Resources(**asked),
        "submitted_at": at(-60),
        "time_limit_seconds": 3600,
    }
    return WaitingJob(**(facts | changes))
