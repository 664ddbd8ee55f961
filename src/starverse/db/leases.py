"""Lease rows: which server runs a loop, until when, and under which fencing token.

A token grows with every taking and never falls. Whoever works under a lease has each write transaction ask
:func:`require` first: it locks the row against a taking until that transaction is over, so that nothing is
ever written under a token that another server has replaced. Time is the database's, the same for all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, select, update

from starverse.db.metadata import EPOCH, from_micros
from starverse.db.prepared import Prepared
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


_TOKEN = Prepared(
    select(leases.c.holder, leases.c.token)
    .where(leases.c.name == bindparam("wanted"))
    .with_for_update(read=True, key_share=True)
)
_FREE_TOKEN = Prepared(
    select(leases.c.token).where(leases.c.name == bindparam("wanted")).with_for_update(skip_locked=True)
)
_OWN = update(leases).where(
    leases.c.name == bindparam("wanted"),
    leases.c.holder == bindparam("holder_seen"),
    leases.c.token == bindparam("token_seen"),
)
_TAKE = Prepared(_OWN, ("holder", "token", "expires_at", "report"))
_RENEW = Prepared(_OWN, ("expires_at", "report"))
_RELEASE = Prepared(_OWN, ("holder", "expires_at"))


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
    row = _FREE_TOKEN.first(connection, wanted=seen.name)
    if row is None or row.token != seen.token:
        return None
    taken = Lease(seen.name, holder, seen.token + 1, until)
    done = _TAKE.run(
        connection, **_as(seen), holder=holder, token=taken.token, expires_at=until, report=taken.report
    )
    return taken if done == 1 else None


def renew(connection: Connection, held: Lease, until: datetime, report: str) -> bool:
    """Keep it until then; false when it is another's."""
    return _RENEW.run(connection, **_as(held), expires_at=until, report=report) == 1


def release(connection: Connection, held: Lease) -> bool:
    """Let others have it at once; false when it is another's already."""
    return _RELEASE.run(connection, **_as(held), holder="", expires_at=EPOCH) == 1


def require(connection: Connection, held: Lease) -> None:
    """Raises :class:`LeaseLost` unless this very taking stands, now and until this transaction ends."""
    row = _TOKEN.first(connection, wanted=held.name)
    if row is None or (row.holder, row.token) != (held.holder, held.token):
        raise LeaseLost(context={"lease": held.name, "token": held.token})


def _as(seen: Lease) -> dict[str, Any]:
    """What ``_OWN`` asks for: the lease as it was seen."""
    return {"wanted": seen.name, "holder_seen": seen.holder, "token_seen": seen.token}
