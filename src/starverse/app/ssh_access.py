"""Who comes into which instance by SSH, the web terminal or an app's port, and for how long.

A person names an instance by its name, its number or its id. A name is unique within a team; where it fits
several instances, only the number tells which one is meant. Somebody else may have added the same public key
and called an instance of theirs alike: names are those of the one account into whose instances the key came
before, which takes the private key; before that, or where there are several such accounts, the number tells.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from starverse.app.identity import Identity
from starverse.app.platform import Platform
from starverse.db import ssh_access, ssh_keys
from starverse.db.ssh_access import Admission, Way
from starverse.domain.errors import Conflict, NotFound
from starverse.domain.workloads.states import InstanceState

__all__ = ["Ambiguous", "Visit", "Way", "admit_by_key", "admit_by_sign_in", "ended_visits", "locate"]

NAME_CHARACTERS_MAX = 64
USE_NOTED_EVERY = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Visit:
    """Someone who may be in an instance: by which way, and which instance it is."""

    way: Way
    instance_id: str
    number: int
    name: str


@dataclass(frozen=True, slots=True)
class Ambiguous:
    """A name that fits several instances; ``message`` says how to tell which one is meant."""

    message: str


@dataclass(frozen=True, slots=True)
class Located:
    """Where an instance runs now; ``allocation_id`` ``None``: nowhere, and ``message`` says why."""

    allocation_id: str | None
    message: str = ""


def admit_by_key(platform: Platform, fingerprint: str, name: str) -> Visit | Ambiguous | None:
    """Whom the holder of a key may visit under this name; ``None`` says no more than that there is nothing:
    the key, the instance or the way between them may be missing."""
    if not 1 <= len(name) <= NAME_CHARACTERS_MAX or "\0" in name:
        return None
    with platform.database.read() as connection:
        found = ssh_access.by_key(connection, fingerprint, name)
        holders = ssh_keys.holders(connection, fingerprint) if found else {}
    exact = [one for one in found if name in (str(one.number), one.instance_id)]
    candidates = exact or list(found)
    if not candidates:
        return None
    if len(holders) > 1 and not exact:
        proven = [account_id for account_id, came_before in holders.items() if came_before]
        own = [one for one in candidates if proven == [one.way.account_id]]
        if not own:
            return Ambiguous(_which(name, candidates, len(holders)))
        candidates = own
    if len({one.instance_id for one in candidates}) > 1:
        return Ambiguous(_which(name, candidates, len(holders)))
    return _visit(candidates[0])


def admit_by_sign_in(platform: Platform, identity: Identity, ref: str) -> Visit:
    """The team's instance that a signed-in member names; raises :class:`NotFound`."""
    with platform.database.read() as connection:
        found = ssh_access.by_sign_in(connection, identity.account_id, identity.team_id, ref)
    exact = [one for one in found if ref in (str(one.number), one.instance_id)]
    if not found:
        raise NotFound(f"There is no instance {ref[:80]!r} in team {identity.team_name}; see `starverse ps`.")
    return _visit((exact or list(found))[0])


def locate(platform: Platform, visit: Visit) -> Located:
    """Where the instance runs now, as of the newest record."""
    with platform.database.read() as connection:
        found = ssh_access.by_sign_in(connection, visit.way.account_id, visit.way.team_id, visit.instance_id)
        if not found:
            return Located(None, f"The instance {visit.name} was released.")
        one = found[0]
        allocation_id = None
        if one.state is InstanceState.RUNNING and one.run_id is not None:
            allocation_id = ssh_access.accepting_allocation(connection, one.run_id)
    return Located(allocation_id, "" if allocation_id else _why_not(one))


def require_running(platform: Platform, visit: Visit) -> str:
    """The allocation where the instance runs; raises :class:`Conflict` when it does not."""
    located = locate(platform, visit)
    if located.allocation_id is None:
        raise Conflict(located.message)
    return located.allocation_id


def note_visit(platform: Platform, visit: Visit, newest: datetime | None) -> datetime:
    """Record that the visit's key was used now, unless that was done a short while ago; when it was."""
    now = platform.clock.now()
    if newest is not None and now - newest < USE_NOTED_EVERY:
        return newest
    with platform.database.write() as connection:
        ssh_keys.note_use(connection, visit.way.key_id, now)
    return now


def ended_visits(platform: Platform, visits: Collection[tuple[Visit, str]]) -> dict[tuple[Visit, str], str]:
    """Those of the visits (each with its allocation) that have to end, and what to tell the visitor."""
    if not visits:
        return {}
    with platform.database.read() as connection:
        ways = ssh_access.still_open(connection, {visit.way for visit, _ in visits})
        running = ssh_access.still_accepting(connection, {allocation for _, allocation in visits})
    ended = {}
    for visit, allocation in visits:
        if visit.way not in ways:
            ended[visit, allocation] = f"Your access to {visit.name} has ended."
        elif allocation not in running:
            ended[visit, allocation] = f"The instance {visit.name} has stopped."
    return ended


def _visit(one: Admission) -> Visit:
    return Visit(one.way, one.instance_id, one.number, one.name)


def _which(name: str, candidates: list[Admission], holders: int) -> str:
    choices = sorted({(one.number, f"{one.team_name}/{one.name}") for one in candidates})
    several = "fits several instances" if len(choices) > 1 else "may be meant by several accounts"
    reason = "; this key is in more than one account" if holders > 1 else ""
    listed = ", ".join(f"{number} ({label})" for number, label in choices)
    return f"{name!r} {several}{reason}. Say which by its number instead of its name: {listed}."


def _why_not(one: Admission) -> str:
    because = f" ({one.message})" if one.message else ""
    if one.state is InstanceState.QUEUED:
        return f"The instance {one.name} waits for its cards{because}; see `starverse show {one.name}`."
    if one.state is InstanceState.RUNNING:
        return f"The instance {one.name} is starting; try again in a moment."
    return f"The instance {one.name} is stopped{because}; start it: `starverse start {one.name}`."
