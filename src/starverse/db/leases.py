"""Lease rows: which server runs a loop, until when, and under which fencing token.

A token grows with every taking and never falls. Whoever works under a lease has each write transaction ask
:func:`require` first: it locks the row against a taking until that transaction is over, so that nothing is
ever written under a token that another server has replaced. Time is the database's, the same for all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, bindparam, select, update

from starverse.db.metadata import EPOCH, from_micros
from starverse.db.server_tables import leases
from starverse.db.session import database_micros
from starverse.db.statements import insert_new
from starverse.domain.errors import Conflict

Transaction = Connection
DatabaseClock = Callable[[Transaction], datetime]
"""Tells the time of the database within a transaction."""


class LeaseLost(Conflict):
    """Another server runs this loop now; nothing of this was written."""

    code = "lease_lost"


@dataclass(frozen=True, slots=True)
class Lease:
    """``holder`` ``""``: nobody has it. ``report`` is what its holder says about the loop."""

    name: str
    holder: str
    token: int
    expires_at: datetime
    report: str = ""

    def free_at(self, now: datetime) -> bool:
        """Whether another may take it."""
        return not self.holder or self.expires_at <= now


_TOKEN = (
    select(leases.c.holder, leases.c.token)
    .where(leases.c.name == bindparam("name"))
    .with_for_update(read=True, key_share=True)
)


def clock(connection: Connection) -> datetime:
    """The database's time."""
    return from_micros(connection.execute(select(database_micros())).scalar_one())


def ensure(connection: Connection, names: Collection[str]) -> None:
    """Every lease has a row."""
    for name in sorted(names):
        row = {"name": name, "holder": "", "token": 0, "expires_at": EPOCH, "report": ""}
        insert_new(connection, leases, row)


def load(connection: Connection) -> tuple[Lease, ...]:
    """Every lease by name."""
    rows = connection.execute(select(leases).order_by(leases.c.name))
    return tuple(Lease(row.name, row.holder, row.token, row.expires_at, row.report) for row in rows)


def take(connection: Connection, seen: Lease, holder: str, until: datetime) -> Lease | None:
    """Take a lease as it was seen under the next token; ``None`` when another was faster, or when a write
    under it is under way: then it is tried again later."""
    row = select(leases.c.token).where(leases.c.name == seen.name).with_for_update(skip_locked=True)
    if connection.execute(row).scalar_one_or_none() != seen.token:
        return None
    taken = Lease(seen.name, holder, seen.token + 1, until)
    done = connection.execute(
        update(leases)
        .where(leases.c.name == seen.name, leases.c.token == seen.token, leases.c.holder == seen.holder)
        .values(holder=holder, token=taken.token, expires_at=until, report="")
    )
    return taken if done.rowcount == 1 else None


def renew(connection: Connection, held: Lease, until: datetime, report: str) -> bool:
    """Keep it until then; false when it is another's."""
    done = connection.execute(_own(held).values(expires_at=until, report=report))
    return done.rowcount == 1


def release(connection: Connection, held: Lease) -> bool:
    """Let others have it at once; false when it is another's already."""
    done = connection.execute(_own(held).values(holder="", expires_at=EPOCH))
    return done.rowcount == 1


def require(connection: Connection, held: Lease) -> None:
    """Raises :class:`LeaseLost` unless this very taking stands, now and until this transaction ends."""
    row = connection.execute(_TOKEN, {"name": held.name}).one_or_none()
    if row is None or (row.holder, row.token) != (held.holder, held.token):
        raise LeaseLost(context={"lease": held.name, "token": held.token})


def _own(held: Lease):  # type: ignore[no-untyped-def]
    return update(leases).where(
        leases.c.name == held.name, leases.c.holder == held.holder, leases.c.token == held.token
    )
