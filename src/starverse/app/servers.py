"""The servers of one database, as this one knows them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from starverse.db import leases, servers
from starverse.db.servers import Server
from starverse.db.session import Database
from starverse.domain.errors import Conflict

__all__ = ["KnownServers", "Server", "require_same_data"]


@dataclass(slots=True)
class KnownServers:
    """``me`` is this server; ``living`` all that live, this one always among them, as last looked up."""

    me: Server
    living: tuple[Server, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.living = (self.me,)

    def note(self, living: tuple[Server, ...]) -> None:
        self.living = living if any(server.id == self.me.id for server in living) else (self.me, *living)

    def channels(self) -> tuple[str, ...]:
        """Where launchers on other machines dial, this server's channel first."""
        others = (server.channel_address for server in self.living if server.id != self.me.id)
        return tuple(address for address in (self.me.channel_address, *others) if address)


def require_same_data(database: Database, me: Server, seconds: float) -> None:
    """Raises ``Conflict`` when a server that spoke within so many seconds keeps another data folder."""
    with database.read() as connection:
        since = leases.clock(connection) - timedelta(seconds=seconds)
        others = [s for s in servers.living(connection, since) if s.data_id != me.data_id]
    if others and database.shared:
        raise Conflict(
            f"the server at {others[0].api_url} has this database with another data folder",
            hint="servers of one database share one data folder: start this one with that --data, or use "
            "another database",
        )
