"""What must hold of the disks of a whole platform at any moment, by name."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from starverse.db import disk_meters, disks
from starverse.db.attachments import Attachment
from starverse.db.disk_tables import attachments, disk_charges, disk_snapshots
from starverse.db.disk_tables import disks as disk_rows
from starverse.db.disks import Disk
from starverse.db.tables import allocations, price_books
from starverse.domain.catalog.disks import (
    DISK_TRANSITIONS,
    SNAPSHOT_TRANSITIONS,
    DiskState,
    SnapshotState,
)
from starverse.domain.workloads.states import ATTACHMENT_TRANSITIONS, AttachmentState, path
from starverse.testing.invariants import Broken
from starverse.testing.plain_price import PlainBook, PlainSize, plain_disk_costs
from starverse.testing.worlds import World

_OVER = (AttachmentState.REFUSED, AttachmentState.DETACHED)


@dataclass(frozen=True, slots=True)
class DisksSeen:
    """All disks, attachments and snapshots at one moment; ``cleaned`` are runs of which nothing is left."""

    found: Mapping[str, Disk]
    attachments: Mapping[str, Attachment]
    snapshots: Mapping[str, SnapshotState]
    cleaned: frozenset[str]


@dataclass(slots=True)
class DiskInspector:
    """Looks at the disks of a world after each tick, and at what its fake engine really has."""

    world: World
    last: DisksSeen | None = None

    def tick(self) -> list[Broken]:
        with self.world.database.read() as connection:
            seen = look(connection)
            broken = [*charged_as_sized(connection, seen)]
        broken += [*one_writer(seen), *no_run_no_disk(seen), *legal(seen, self.last)]
        broken += [*self._really_had(seen), *self._bytes_are_there(seen)]
        self.last = seen
        return broken

    def end(self) -> list[Broken]:
        """Once everything has come to rest, nothing is under way."""
        with self.world.database.read() as connection:
            seen = look(connection)
        moving = (AttachmentState.ATTACHING, AttachmentState.DETACHING)
        broken = [
            Broken("attachments_come_to_rest", f"{one.id} is {one.state.value} for ever")
            for one in seen.attachments.values()
            if one.state in moving
        ]
        broken += [
            Broken(
                "disks_come_to_rest", f"{disk.name} is {disk.state.value}, {disk.made_gib} of {disk.gib} GiB"
            )
            for disk in seen.found.values()
            if disk.state is DiskState.MAKING or (disk.state is DiskState.READY and disk.growing)
        ]
        return broken

    def _really_had(self, seen: DisksSeen) -> Iterator[Broken]:
        """A block file is mounted once; what is recorded as taken out is out, unless an operator said so."""
        mounted: Counter[str] = Counter()
        for run in self.world.engine.launchers.values():
            for plug in run.plugs.there.values():
                if plug.kind == "block":
                    mounted[plug.source] += 1
                one = seen.attachments.get(plug.id)
                if one is None:
                    yield Broken("plugs_are_on_record", f"{plug.id} at {run.spec.allocation_id}")
                elif one.state is AttachmentState.DETACHED and one.reason != "operator":
                    yield Broken("detached_is_out", f"{one.id} ({one.reason}) is plugged in")
        for source, times in mounted.items():
            if times > 1:
                yield Broken("block_disks_have_one_writer", f"{source} is mounted {times} times")

    def _bytes_are_there(self, seen: DisksSeen) -> Iterator[Broken]:
        there = self.world.engine.storage.trees
        for disk in seen.found.values():
            kept = disk.state in (DiskState.READY, DiskState.DELETED)
            if kept and disk.id not in there:
                yield Broken("disks_are_kept", f"{disk.name} is {disk.state.value} and its bytes are gone")
            if disk.purged_at is not None and disk.id in there:
                yield Broken("purged_disks_are_gone", disk.name)


def look(connection: Connection) -> DisksSeen:
    """Everything the checks need."""
    ids = list(connection.execute(select(disk_rows.c.id)).scalars())
    fields = Attachment.__dataclass_fields__
    return DisksSeen(
        found=disks.get_many(connection, ids),
        attachments={
            row.id: Attachment(**{name: row._mapping[name] for name in fields})
            for row in connection.execute(select(attachments))
        },
        snapshots={row.id: row.state for row in connection.execute(select(disk_snapshots))},
        cleaned=frozenset(
            connection.execute(
                select(allocations.c.id).where(allocations.c.cleaned_at.is_not(None))
            ).scalars()
        ),
    )


def one_writer(seen: DisksSeen) -> Iterator[Broken]:
    """A block disk has at most one open attachment."""
    held = Counter(one.disk_id for one in seen.attachments.values() if one.exclusive and one.open)
    for disk_id, times in held.items():
        if times > 1:
            yield Broken("block_disks_have_one_writer", f"{disk_id} has {times} open attachments")


def no_run_no_disk(seen: DisksSeen) -> Iterator[Broken]:
    """An allocation of which nothing is left has no disk; an attachment that is over has its time."""
    for one in seen.attachments.values():
        if one.open and one.allocation_id in seen.cleaned:
            yield Broken("no_run_no_disk", f"{one.id} is {one.state.value}, its run is cleaned up")
        if (one.state in _OVER) != (one.ended_at is not None):
            yield Broken("ends_have_times", f"attachment {one.id} is {one.state.value}")
        if one.open and seen.found[one.disk_id].state is not DiskState.READY:
            yield Broken("only_ready_disks_are_had", f"{one.id} of {seen.found[one.disk_id].state.value}")


def legal(seen: DisksSeen, before: DisksSeen | None) -> Iterator[Broken]:
    """What is on record now can be reached from what was on record at the last tick."""
    if before is None:
        return
    for key, disk in seen.found.items():
        old = before.found.get(key)
        if old is not None and path(DISK_TRANSITIONS, old.state, disk.state) is None:
            yield Broken("legal_transitions", f"disk {disk.name}: {old.state} -> {disk.state}")
    for key, one in seen.attachments.items():
        was = before.attachments.get(key)
        if was is not None and path(ATTACHMENT_TRANSITIONS, was.state, one.state) is None:
            yield Broken("legal_transitions", f"attachment {key}: {was.state} -> {one.state}")
    for key, state in seen.snapshots.items():
        past = before.snapshots.get(key)
        if past is not None and path(SNAPSHOT_TRANSITIONS, past, state) is None:
            yield Broken("legal_transitions", f"snapshot {key}: {past} -> {state}")


def charged_as_sized(connection: Connection, seen: DisksSeen) -> Iterator[Broken]:
    """What a disk was charged is what its sizes over time cost, up to where its meter stands."""
    books = [
        PlainBook.read(row.effective_from, row.content) for row in connection.execute(select(price_books))
    ]
    total = func.sum(disk_charges.c.total_micro)
    charged = {
        row.disk_id: int(row.charged.micro)
        for row in connection.execute(
            select(disk_charges.c.disk_id, total.label("charged")).group_by(disk_charges.c.disk_id)
        )
    }
    teams: dict[str, list[str]] = defaultdict(list)
    for disk in seen.found.values():
        teams[disk.team_id].append(disk.id)
    for team_id, own in teams.items():
        sizes = [
            PlainSize(size.disk_id, seen.found[size.disk_id].kind.value, size.since, size.gib)
            for size in disks.sizes_of_team(connection, team_id)
        ]
        for disk_id, meter in disk_meters.load_meters(connection, own).items():
            right = plain_disk_costs(sizes, meter.metered_until, books).get(disk_id, 0)
            if right != charged.get(disk_id, 0):
                told = f"{disk_id} is charged {charged.get(disk_id, 0)} until {meter.metered_until}"
                yield Broken("disks_charged_as_sized", f"{told}, not {right}")
