"""Which instance a reference names."""

from __future__ import annotations

from sqlalchemy import Connection

from starverse.app.identity import Identity
from starverse.db import instances
from starverse.domain.errors import NotFound
from starverse.domain.ids import is_uuid
from starverse.domain.workloads.instances import Instance

NUMBER_DIGITS_MAX = 10


def find(connection: Connection, identity: Identity, ref: str) -> Instance:
    """The instance of the caller's team that a name, a number or an id names; raises ``NotFound`` also for
    another team's. A released one has no name any more."""
    found: Instance | None
    if is_uuid(ref):
        found = instances.get(connection, ref)
    elif ref.isascii() and ref.isdecimal() and len(ref) <= NUMBER_DIGITS_MAX:
        found = instances.by_number(connection, int(ref))
    else:
        found = instances.by_name(connection, identity.team_id, ref)
    if found is None or (found.team_id != identity.team_id and not identity.operator):
        shown = ref[:80].encode("utf-8", "backslashreplace").decode()
        raise NotFound(f"There is no instance {shown} in team {identity.team_name}; see `starverse ps`.")
    return found
