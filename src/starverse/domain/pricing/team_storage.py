"""What the disks of a team cost together: its free GiB fall to all of them (pricing.md, storage).

The free GiB of one disk depend on the sizes of the others, so a team's time is split at every change of any
of its disks, and at every version of the price book. Each disk has a running total of its own; what it comes
to does not depend on when, or how often, it was metered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from starverse.domain.disk_kind import DiskKind
from starverse.domain.pricing.price_book import PriceBooks
from starverse.domain.pricing.storage import DiskUsage, free_gib_shares
from starverse.domain.timespan import Timespan


@dataclass(frozen=True, slots=True)
class SizeChange:
    """From ``since`` on a disk has ``gib``; 0: it costs nothing any more."""

    disk_id: str
    kind: DiskKind
    since: datetime
    gib: int


def team_usages(
    changes: Sequence[SizeChange], metered_until: Mapping[str, datetime], until: datetime, books: PriceBooks
) -> dict[str, tuple[DiskUsage, ...]]:
    """Disk id -> what of it was not metered yet, up to ``until``, in order of time; nothing for no size.

    ``changes`` are all that the team's disks ever had; ``metered_until`` leaves out disks that never were.
    """
    kinds = {change.disk_id: change.kind for change in changes}
    begins: dict[str, datetime] = {}
    for disk_id in kinds:
        own = [change for change in changes if change.disk_id == disk_id]
        begin = metered_until.get(disk_id, min(change.since for change in own))
        if _sizes_at(own, begin) or any(change.gib for change in own if change.since > begin):
            begins[disk_id] = begin
    first = min(begins.values(), default=until)
    if first >= until:
        return {}
    found: dict[str, list[DiskUsage]] = {disk_id: [] for disk_id in kinds}
    edges = [*(change.since for change in changes), *begins.values(), *books.edges(first, until)]
    for part in Timespan(first, until).split_at(edges):
        sizes = _sizes_at(changes, part.start)
        free = free_gib_shares(books.at(part.start), list(sizes.items()))
        for disk_id, gib in sizes.items():
            if disk_id in begins and begins[disk_id] <= part.start:
                _add(found[disk_id], DiskUsage(part, kinds[disk_id], gib, free[disk_id]))
    return {disk_id: tuple(usages) for disk_id, usages in found.items() if usages}


def _sizes_at(changes: Iterable[SizeChange], instant: datetime) -> dict[str, int]:
    """The disks that have a size then."""
    sizes: dict[str, int] = {}
    for change in sorted(changes, key=lambda change: change.since):
        if change.since <= instant:
            sizes[change.disk_id] = change.gib
    return {disk_id: gib for disk_id, gib in sizes.items() if gib}


def _add(usages: list[DiskUsage], usage: DiskUsage) -> None:
    """What goes on as it was is one usage."""
    last = usages[-1] if usages else None
    same = last is not None and (last.span.end, last.gib, last.free_gib) == (
        usage.span.start,
        usage.gib,
        usage.free_gib,
    )
    if last is not None and same:
        usages[-1] = DiskUsage(
            Timespan(last.span.start, usage.span.end), usage.kind, usage.gib, usage.free_gib
        )
    else:
        usages.append(usage)
