"""What people do with disks of a simulated platform."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from starverse.app.disks import orders, plugging, snapshots
from starverse.app.disks.orders import DiskChange, NewDisk
from starverse.app.disks.plugging import AttachRequest
from starverse.app.disks.stuck import clear_stuck
from starverse.app.idempotency import Once
from starverse.app.identity import Identity
from starverse.db import attachments
from starverse.domain.catalog.disks import GIB, SnapshotState
from starverse.domain.disk_kind import DiskKind
from starverse.domain.errors import StarverseError
from starverse.testing.simulated_world import SimulatedWorld

DISKS_MAX = 12
SIZES = (1, 20, 49, 50, 60, 300)


@dataclass(slots=True)
class DiskMoves:
    """Random moves by the teams of a cast with their disks; ``instances`` (owner, id) are those there are."""

    seed: int
    world: SimulatedWorld
    teams: tuple[Identity, ...]
    operator: Identity
    instances: Sequence[tuple[Identity, str]]
    known: list[tuple[Identity, str]] = field(default_factory=list)
    dice: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.dice = random.Random(f"{self.seed}:disks")

    def table(self) -> dict[Callable[[], str], float]:
        """Every move with its weight."""
        return {
            self.create: 6,
            self.attach: 8,
            self.detach: 4,
            self.resize: 2,
            self.snapshot: 2,
            self.drop_snapshot: 1,
            self.schedule: 1,
            self.delete: 1,
            self.restore: 1,
            self.fill: 2,
            self.jam: 1,
            self.clear: 1,
        }

    def create(self) -> str:
        if len(self.known) >= DISKS_MAX:
            return self.resize()
        who = self.dice.choice(self.teams)
        wanted = NewDisk(
            name=f"disk {self.dice.randrange(1000)}",
            kind=self.dice.choice(list(DiskKind)),
            gib=self.dice.choice(SIZES),
            from_snapshot=self._snapshot_of(who) if self.dice.random() < 0.2 else None,
            once=Once(f"disk-{self.seed}-{self.dice.getrandbits(40)}", "the same request"),
        )
        for _ in range(self.dice.choice([1, 1, 2])):
            made = orders.create_disk(self.world.platform, who, wanted)
            if (who, made.id) not in self.known:
                self.known.append((who, made.id))
        return f"{who.team_name} orders {wanted.name} of {wanted.gib} GiB"

    def attach(self) -> str:
        who, disk_id = self._some()
        own = [instance_id for owner, instance_id in self.instances if owner is who]
        if not own:
            raise StarverseError("no instance to attach it to")
        wanted = AttachRequest(self.dice.choice(own), read_only=self.dice.random() < 0.2)
        plugging.attach(self.world.platform, who, disk_id, wanted)
        return f"attach {disk_id} to {wanted.instance}"

    def detach(self) -> str:
        who, disk_id = self._some()
        had = orders.get_disk(self.world.platform, who, disk_id).instances
        if not had:
            raise StarverseError("nobody has it")
        plugging.detach(self.world.platform, who, disk_id, self.dice.choice(had).instance_id)
        return f"detach {disk_id}"

    def resize(self) -> str:
        who, disk_id = self._some()
        gib = self.dice.choice(SIZES)
        orders.change_disk(self.world.platform, who, disk_id, DiskChange(gib=gib), None)
        return f"resize {disk_id} to {gib}"

    def snapshot(self) -> str:
        who, disk_id = self._some()
        snapshots.order_snapshot(self.world.platform, who, disk_id, f"s{self.dice.getrandbits(20)}", None)
        return f"snapshot of {disk_id}"

    def drop_snapshot(self) -> str:
        who, disk_id = self._some()
        there = snapshots.list_snapshots(self.world.platform, who, disk_id)
        if not there:
            raise StarverseError("it has none")
        snapshots.remove_snapshot(self.world.platform, who, disk_id, self.dice.choice(there).id)
        return f"drop a snapshot of {disk_id}"

    def schedule(self) -> str:
        who, disk_id = self._some()
        wanted = DiskChange(snapshot_schedule=self.dice.choice(["30 * * * *", ""]), snapshots_kept=2)
        orders.change_disk(self.world.platform, who, disk_id, wanted, None)
        return f"schedule of {disk_id}: {wanted.snapshot_schedule!r}"

    def delete(self) -> str:
        who, disk_id = self._some()
        orders.delete_disk(self.world.platform, who, disk_id)
        return f"delete {disk_id}"

    def restore(self) -> str:
        who, disk_id = self._some()
        orders.restore_disk(self.world.platform, who, disk_id)
        return f"restore {disk_id}"

    def fill(self) -> str:
        """A disk's owner writes, or cleans up."""
        there = sorted(self.world.engine.storage.trees)
        if not there:
            raise StarverseError("there is no disk")
        disk = self.world.engine.storage.trees[self.dice.choice(there)]
        disk.used_bytes = self.dice.choice([0, disk.tree.gib * GIB // 2, disk.tree.gib * GIB + 1])
        disk.content = f"content {self.dice.getrandbits(30)}"
        return f"{disk.tree.disk_id} holds {disk.used_bytes}"

    def jam(self) -> str:
        """From now on no disk comes out of some run, or each does again."""
        live = [run for _, run in sorted(self.world.engine.launchers.items()) if run.claimed]
        if not live:
            raise StarverseError("nothing runs")
        run = self.dice.choice(live)
        run.run = replace(run.run, keeps_plugs=not run.run.keeps_plugs)
        return f"{run.spec.allocation_id} keeps its disks: {run.run.keeps_plugs}"

    def clear(self) -> str:
        with self.world.database.read() as connection:
            stuck = attachments.all_stuck(connection)
        if not stuck:
            raise StarverseError("nothing is stuck")
        clear_stuck(self.world.platform, self.operator, self.dice.choice(stuck).id)
        return "an operator clears what is stuck"

    def _some(self) -> tuple[Identity, str]:
        if not self.known:
            raise StarverseError("nobody has a disk yet")
        return self.dice.choice(self.known)

    def _snapshot_of(self, who: Identity) -> str | None:
        own = [disk_id for owner, disk_id in self.known if owner is who]
        if not own:
            return None
        there = snapshots.list_snapshots(self.world.platform, who, self.dice.choice(own))
        made = [one.id for one in there if one.state is SnapshotState.MADE]
        return self.dice.choice(made) if made else None
