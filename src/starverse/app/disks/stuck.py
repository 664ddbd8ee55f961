"""Disks that are stuck at a run: what an operator sees of them, and says after a look at the node."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from starverse.app.disks.attachments import move_on
from starverse.app.identity import Identity
from starverse.app.platform import Platform
from starverse.db import allocations, attachments, disks, events, teams
from starverse.db.attachments import Attachment
from starverse.db.events import Event
from starverse.domain.disk_kind import DiskKind
from starverse.domain.errors import Conflict, Forbidden, NotFound
from starverse.domain.ids import TeamId
from starverse.domain.workloads.states import AttachmentState


@dataclass(frozen=True, slots=True)
class StuckView:
    """A disk that did not come out of a run: ``nodes`` are where to look, ``instance`` ``None``: a job's."""

    id: str
    disk: str
    disk_id: str
    kind: DiskKind
    team: str
    instance: str | None
    job: str
    nodes: tuple[str, ...]
    target: str
    message: str
    asked_at: datetime
    detach_by: datetime | None


def list_stuck(platform: Platform, identity: Identity) -> tuple[StuckView, ...]:
    """The stuck attachments of every team, the oldest first, for an operator."""
    _require_operator(identity)
    with platform.database.read() as connection:
        return tuple(_stuck_view(connection, one) for one in attachments.all_stuck(connection))


def clear_stuck(platform: Platform, identity: Identity, attachment_id: str) -> None:
    """An operator says that nothing has the disk any more (its node was looked at, or is no more)."""
    _require_operator(identity)

    def act(connection: Connection) -> None:
        one = attachments.get(connection, attachment_id)
        if one is None:
            raise NotFound(f"There is no attachment {attachment_id[:80]!r}.")
        if one.state is not AttachmentState.STUCK:
            raise Conflict(f"The attachment is {one.state.value}, not stuck.")
        now = platform.clock.now()
        move_on(connection, one, AttachmentState.DETACHED, reason="operator", ended_at=now)
        text = f"cleared by {identity.email}"
        events.record(
            connection,
            Event(now, "disk", one.disk_id, "admin", "cleared", text, one.team_id, identity.account_id),
        )

    platform.database.write_retrying(act)


def _stuck_view(connection: Connection, one: Attachment) -> StuckView:
    disk, run = disks.get(connection, one.disk_id), allocations.get(connection, one.allocation_id)
    team = teams.get_team(connection, TeamId(one.team_id))
    owner = attachments.owners_of(connection, [one.allocation_id])[one.allocation_id]
    return StuckView(
        id=one.id,
        disk="" if disk is None else disk.name,
        disk_id=one.disk_id,
        kind=DiskKind.BLOCK if one.exclusive else DiskKind.SHARED,
        team="" if team is None else team.name,
        instance=owner.instance,
        job=owner.job,
        nodes=() if run is None else run.nodes,
        target=one.target,
        message=one.message,
        asked_at=one.asked_at,
        detach_by=one.detach_by,
    )


def _require_operator(identity: Identity) -> None:
    if not identity.operator:
        raise Forbidden("Only the operator may do this.")
