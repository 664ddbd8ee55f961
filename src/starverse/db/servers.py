"""The servers of a database by their own word."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, delete, insert, select, update

from starverse.db.server_tables import servers

FORGOTTEN_AFTER = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Server:
    """``channel_address`` is ``HOST:PORT`` of its launchers' channel, ``""`` where it has none but a Unix
    socket; ``data_id`` names the data folder that all servers of a database share."""

    id: str
    api_url: str = ""
    channel_address: str = ""
    data_id: str = ""


def note_alive(connection: Connection, server: Server, now: datetime) -> None:
    """It lives; known from now on if it was not."""
    row = {"api_url": server.api_url, "channel_address": server.channel_address, "alive_at": now}
    done = connection.execute(update(servers).where(servers.c.id == server.id).values(row))
    if not done.rowcount:
        row |= {"id": server.id, "started_at": now, "data_id": server.data_id}
        connection.execute(insert(servers).values(row))
        connection.execute(delete(servers).where(servers.c.alive_at < now - FORGOTTEN_AFTER))


def living(connection: Connection, since: datetime) -> tuple[Server, ...]:
    """Those that spoke since then, the oldest first."""
    rows = connection.execute(
        select(servers).where(servers.c.alive_at >= since).order_by(servers.c.started_at, servers.c.id)
    )
    return tuple(Server(row.id, row.api_url, row.channel_address, row.data_id) for row in rows)


def remove_others(connection: Connection, server_id: str) -> None:
    """There is no other one any more."""
    connection.execute(delete(servers).where(servers.c.id != server_id))


def remove(connection: Connection, server_id: str) -> None:
    """It has ended."""
    connection.execute(delete(servers).where(servers.c.id == server_id))


def forget_all(connection: Connection) -> None:
    """None of them has this database: it was restored from a backup that was taken while they ran."""
    connection.execute(delete(servers))
