"""``starverse admin backup/restore/migrate/move``: on a data folder and its database, without the server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from starverse.cli.remote import exit_codes
from starverse.cli.remote.commands import command, yes_option
from starverse.cli.remote.session import Session
from starverse.cli.remote.tables import columns, render_fields, render_table

if TYPE_CHECKING:
    from starverse.app.maintenance.manifest import Manifest

TREES = (
    "folders",
    "workspaces",
    "checkpoints",
    "logs",
    "datasets",
    "instances",
    "disks",
    "snapshots",
    "images",
)
"""As :mod:`starverse.app.maintenance.trees` has them; here so that ``--help`` imports nothing."""
ALL = "all"


@dataclass(frozen=True, slots=True)
class Installation:
    """Where the platform's data folder and its database are."""

    data: Path
    url: str


def installation_options() -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """``--data``, ``--db`` and ``--config``, as `starverse up` has them."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in (
            click.option("--config", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE"),
            click.option("--db", metavar="URL", help="Database URL. [SQLite in the data folder]"),
            click.option(
                "--data",
                type=click.Path(file_okay=False, path_type=Path),
                metavar="DIR",
                help="Data folder. [of this machine]",
            ),
        ):
            function = option(function)
        return function

    return decorate


@command("Back the platform up into a new folder; it may run meanwhile.")
@click.argument("dest", type=click.Path(path_type=Path))
@click.option(
    "--with",
    "with_",
    multiple=True,
    type=click.Choice((*TREES, ALL)),
    help="Folders of the data folder that go with it. [folders]",
)
@click.option("--without-secrets", is_flag=True, help="Leave the operator's token and the like out.")
@installation_options()
def backup(
    session: Session,
    dest: Path,
    with_: tuple[str, ...],
    without_secrets: bool,
    data: Path | None,
    db: str | None,
    config: Path | None,
) -> None:
    """``DEST`` must not be there yet."""
    from starverse.app.maintenance.backup import Wanted, make_backup
    from starverse.db.maintenance.filling import opened

    place = _installation(data, db, config)
    trees = TREES if ALL in with_ else ("folders", *with_)
    _require_database(place)
    with opened(place.url) as database:
        wanted = Wanted(trees, secrets=not without_secrets)
        made = make_backup(database, place.data, dest.absolute(), wanted, datetime.now(UTC))
    session.emit({"place": str(made.place), **_told(made.manifest)}, lambda: str(made.place))
    _note_content(session, made.manifest)
    session.note("restored on trial into a scratch database: every row is there")
    _judge_ledger(session, made.manifest.ledger)


@command("Restore a backup into the data folder and its database; no server may run.")
@click.argument("source", metavar="SRC", type=click.Path(path_type=Path))
@click.option("--replace", is_flag=True, help="What is there may go; it is kept aside.")
@click.option("--dry-run", is_flag=True, help="Look the backup over, restore it on trial, change nothing.")
@yes_option()
@installation_options()
def restore(
    session: Session,
    source: Path,
    replace: bool,
    dry_run: bool,
    yes: bool,
    data: Path | None,
    db: str | None,
    config: Path | None,
) -> None:
    """From ``SRC``, which `starverse admin backup` made."""
    from tempfile import TemporaryDirectory

    from starverse.app.maintenance.content import open_backup, rehearse
    from starverse.app.maintenance.restore import restore as run

    if dry_run:
        found = open_backup(source)
        with TemporaryDirectory() as folder:
            broken = rehearse(found, Path(folder))
        session.emit({"place": str(source), "restored": False, **_told(found.manifest)}, lambda: "")
        _note_content(session, found.manifest)
        session.note("restored on trial into a scratch database: every row is there; nothing was changed")
        _judge_ledger(session, broken)
        return
    place = _installation(data, db, config)
    if replace:
        session.confirm(f"Replace what is in {place.data} and its database?", yes=yes)
    done = run(source, place.data, place.url, datetime.now(UTC), replace=replace)
    kept = None if done.kept is None else str(done.kept)
    answer = {"place": str(source), "restored": True, "kept": kept, **_told(done.backup.manifest)}
    session.emit({**answer, "revision": done.revision}, lambda: "")
    _note_content(session, done.backup.manifest)
    session.note(f"restored into {place.data} as it was at {done.backup.manifest.made_at}")
    if kept:
        session.note(f"what was there before is in {kept}; remove it once you are sure")
    _judge_ledger(session, done.ledger)


@command("Bring the database to this version's schema; no server may run.")
@click.option("--dry-run", is_flag=True, help="Show what would run, try it on the real rows, keep nothing.")
@installation_options()
def migrate(session: Session, dry_run: bool, data: Path | None, db: str | None, config: Path | None) -> None:
    """Also done by `starverse up`."""
    from starverse.app.maintenance.migrating import migrate as run

    place = _installation(data, db, config)
    _require_database(place)
    found = run(place.data, place.url, dry_run=dry_run)
    steps = [{"revision": step.revision, "title": step.title} for step in found.plan.steps]
    answer = {
        "present": found.plan.present,
        "newest": found.plan.newest,
        "steps": steps,
        "tried": found.tried,
        "done": found.done,
    }
    rows = [(step["revision"], step["title"]) for step in steps]
    session.emit(answer, lambda: render_table(columns("REVISION", "WHAT"), rows) if rows else "")
    if not steps:
        session.note(f"the database is at revision {found.plan.newest}: nothing to do")
    elif found.done:
        session.note(f"migrated to {found.plan.newest}; the ledger check holds")
    elif found.tried:
        session.note("tried on the real rows, the ledger check holds; nothing was changed")
    else:
        session.note("not tried: a server is running; stop it to try or to migrate")


@command("Move the database to another one, SQLite or PostgreSQL; no server may run.")
@click.option("--to", "target", required=True, metavar="URL", help="postgresql+psycopg://..., or sqlite.")
@click.option("--replace", is_flag=True, help="What is in the target may go; it is kept aside.")
@yes_option()
@installation_options()
def move(
    session: Session,
    target: str,
    replace: bool,
    yes: bool,
    data: Path | None,
    db: str | None,
    config: Path | None,
) -> None:
    """The data folder stays where it is."""
    from starverse.app.maintenance.moving import move as run
    from starverse.db.maintenance.filling import shown_url

    place = _installation(data, db, config)
    _require_database(place)
    url = f"sqlite:///{place.data / 'starverse.db'}" if target == "sqlite" else target
    shown = shown_url(url, "--to")
    if replace:
        session.confirm(f"Replace what is in {shown}?", yes=yes)
    done = run(place.data, place.url, url, datetime.now(UTC), replace=replace)
    rows = [(name, table.rows, table.sha256[:16]) for name, table in sorted(done.tables.items())]
    session.emit(
        {
            "to": shown,
            "was_there": done.was_there,
            "kept": None if done.kept is None else str(done.kept),
            "tables": {name: {"rows": t.rows, "sha256": t.sha256} for name, t in done.tables.items()},
        },
        lambda: render_table(columns("TABLE", ">ROWS", "SHA-256"), rows),
    )
    session.note("each table has the same rows and the same SHA-256 in both; the ledger check holds")
    if done.kept is not None:
        session.note(f"what was in the target before is in {done.kept}")
    session.note(f'from now on: server.db = "{shown}" (or `starverse up --db`); the old one refuses servers')


def _installation(data: Path | None, db: str | None, config: Path | None) -> Installation:
    from starverse.config import load
    from starverse.db.maintenance.filling import shown_url

    server = load(config, flags={"server.data": data, "server.db": db}).config.server
    folder = server.data.absolute()
    url = server.db or f"sqlite:///{folder / 'starverse.db'}"
    shown_url(url, "server.db")
    return Installation(folder, url)


def _require_database(place: Installation) -> None:
    """SQLite would make the file that it is asked for."""
    from starverse.db.maintenance.dialects import file_of
    from starverse.domain.errors import NotFound

    file = file_of(place.url)
    if not place.data.is_dir() or (file is not None and not file.is_file()):
        raise NotFound(
            f"there is no starverse database at {file or place.data}", hint="name it with --data or --db"
        )


def _told(manifest: Manifest) -> dict[str, Any]:
    return {
        "made_at": manifest.made_at,
        "starverse": manifest.starverse,
        "revision": manifest.revision,
        "database": manifest.database,
        "rows": manifest.rows,
        "bytes": manifest.bytes,
        "contains": list(manifest.contains),
        "leaves_out": list(manifest.leaves_out),
        "unread": list(manifest.unread),
        "ledger": list(manifest.ledger),
    }


def _note_content(session: Session, manifest: Manifest) -> None:
    session.note(
        render_fields(
            [
                ("made", f"{manifest.made_at} by starverse {manifest.starverse}"),
                ("database", f"{manifest.database}, revision {manifest.revision}, {manifest.rows} rows"),
                ("in it", list(manifest.contains)),
                ("not in it", list(manifest.leaves_out)),
                ("could not be read", list(manifest.unread)),
            ]
        )
    )
    if "secrets" in manifest.contains:
        session.note("it holds secrets: keep it as safe as the data folder")


def _judge_ledger(session: Session, broken: tuple[str, ...]) -> None:
    if not broken:
        session.note("the ledger check holds")
        return
    session.note("an invariant of the ledger is broken: stop and look")
    for line in broken[:10]:
        session.note(f"  {line}")
    session.exit_code = exit_codes.FAILURE
