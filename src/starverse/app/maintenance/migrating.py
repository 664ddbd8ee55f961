"""``starverse admin migrate``: the database brought to the schema of this version, tried first if asked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from starverse.app.maintenance.alone import alone_on
from starverse.app.maintenance.content import broken_invariants
from starverse.db import schema
from starverse.db.maintenance.dialects import reading, rebuilding
from starverse.db.maintenance.filling import opened
from starverse.db.schema import MigrationPlan
from starverse.db.server_lock import only_server
from starverse.db.session import Database
from starverse.domain.errors import Conflict, InvariantBroken


@dataclass(frozen=True, slots=True)
class Migrated:
    """``tried``: every step ran on the real rows and the ledger was sound after; ``done``: and it is kept."""

    plan: MigrationPlan
    tried: bool
    done: bool


class _NotKept(Exception):
    """Rolls a trial back."""


def migrate(data: Path, url: str, *, dry_run: bool) -> Migrated:
    """Run every migration that the database lacks, in one transaction, and check the ledger before its end.

    ``dry_run``: the same, rolled back; while a server runs, only the plan. Raises ``Conflict`` while a server
    runs, ``Unavailable`` for a database of a newer version, ``InvariantBroken`` when the ledger is not sound
    afterwards: then nothing was changed.
    """
    with opened(url) as database:
        with reading(database) as connection:
            plan = schema.plan_of(connection)
        if plan.present is not None and not plan.steps:
            return Migrated(plan, tried=False, done=False)
        try:
            with alone_on(data, url):
                return Migrated(plan, tried=True, done=_run(database, keep=not dry_run))
        except Conflict:
            if not dry_run:
                raise
            return Migrated(plan, tried=False, done=False)


def migrate_at_start(database: Database) -> MigrationPlan:
    """What a server does before it holds the database: migrate it, alone; answers what has been run.

    Servers that start at once wait for each other. Raises ``Conflict`` while servers of an older version run
    on a database that has to be migrated: they would go on with tables that they do not know.
    """
    with database.one_at_a_time("start"):
        with reading(database) as connection:
            plan = schema.plan_of(connection)
        if plan.steps:
            try:
                with only_server(database):
                    schema.upgrade(database)
            except Conflict as error:
                raise Conflict(
                    f"the database is at revision {plan.present} and has to be migrated to {plan.newest},"
                    " while other servers run on it",
                    hint="stop them, start this one, then start them again in this version",
                ) from error
    return plan


def _run(database: Database, *, keep: bool) -> bool:
    try:
        with rebuilding(database) as connection:
            schema.upgrade_to(connection)
            broken = broken_invariants(connection)
            if broken:
                raise InvariantBroken(
                    f"the ledger is not sound after the migration: {'; '.join(broken[:3])}",
                    hint="nothing was changed; take a backup and report this",
                )
            if not keep:
                raise _NotKept
    except _NotKept:
        return False
    return True
