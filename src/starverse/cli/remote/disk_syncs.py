"""``disk sync start/ls/show/cancel/schedule``: copies between a disk and a remote, by rclone."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

import click

from starverse.cli.remote import exit_codes
from starverse.cli.remote.commands import Group, command
from starverse.cli.remote.quantities import BytesPerSecond
from starverse.cli.remote.session import Session
from starverse.cli.remote.tables import columns, render_fields, render_table, visible
from starverse.cli.remote.telling import tell_break, tell_new
from starverse.cli.remote.wording import length, rate_of_bytes, when
from starverse.client.packing import size_text
from starverse.client.shapes import Sync

DIRECTIONS = ("pull", "push")


@click.group("sync", cls=Group, help="Copies between a disk and a remote: start, ls, show, cancel, schedule.")
def group() -> None:
    """Copies between a disk and a remote."""


def sync_options() -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """What a copy and a scheduled copy have in common."""
    options = (
        click.argument("disk", metavar="DISK"),
        click.argument("direction", metavar="pull|push", type=click.Choice(DIRECTIONS)),
        click.argument("remote", metavar="REMOTE"),
        click.option("--folder", default="", metavar="PATH", help="Of the disk; default: all of it."),
        click.option("--secret", metavar="NAME", help="The secret that holds the remote's rclone settings."),
        click.option("--bandwidth", type=BytesPerSecond(), metavar="RATE", help="At most: 20MB a second."),
        click.option(
            "--verify/--no-verify", default=False, show_default=True, help="Compare every byte afterwards."
        ),
    )

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def _request(asked: dict[str, Any]) -> dict[str, Any]:
    renamed = {"bandwidth": "bytes_per_second_max"}
    return {renamed.get(key, key): value for key, value in asked.items() if value is not None}


@command(
    "Copy from a remote to the disk (pull), or from the disk to a remote (push).",
    examples=(
        "disk sync start home pull s3:bucket/data --folder data --secret s3 --follow",
        "disk sync start home push s3:bucket/runs --folder runs --secret s3 --bandwidth 20MB",
    ),
)
@sync_options()
@click.option("--follow", "-f", is_flag=True, help="Show the progress until it ends.")
def start(session: Session, disk: str, follow: bool, **asked: Any) -> None:
    made = session.client().disks.start_sync(disk, _request(asked))
    if follow:
        _follow(session, disk, made)
        return
    session.emit(dict(made), lambda: made["id"])
    session.note(f"{made['state']}; look: starverse disk sync show {shlex.quote(disk)} {made['id']} --follow")


@command(
    "Copy again and again, by a cron line in the installation's zone.",
    examples=("disk sync schedule home push s3:bucket/runs '30 2 * * *' --secret s3",),
)
@sync_options()
@click.argument("cron", metavar="CRON")
def schedule(session: Session, disk: str, cron: str, **asked: Any) -> None:
    made = session.client().disks.start_sync(disk, _request(asked) | {"schedule": cron})
    session.emit(dict(made), lambda: made["id"])
    session.note(f"scheduled; end it: starverse disk sync cancel {shlex.quote(disk)} {made['id']}")


@command("List the copies of a disk, newest first.")
@click.argument("disk", metavar="DISK")
def ls(session: Session, disk: str) -> None:
    found = list(session.client().disks.syncs(disk))
    titles = columns("ID", "WAY", "REMOTE", "FOLDER", "STATE", ">DONE", ">OF", "ASKED", "SCHEDULE", "MESSAGE")
    session.emit({"items": found}, lambda: render_table(titles, [_row(one) for one in found]))


def _row(one: Sync) -> tuple[object, ...]:
    total = one.get("bytes_total")
    return (
        one["id"],
        one["direction"],
        one["remote"],
        one.get("folder") or "/",
        one["state"],
        size_text(one.get("bytes_done") or 0),
        size_text(total) if total is not None else None,
        when(one.get("asked_at")),
        one.get("schedule"),
        one.get("message"),
    )


@command("Show a copy; --follow to its end, with its progress.", examples=("disk sync show home ID -f",))
@click.argument("disk", metavar="DISK")
@click.argument("sync_id", metavar="ID")
@click.option("--follow", "-f", is_flag=True)
def show(session: Session, disk: str, sync_id: str, follow: bool) -> None:
    found = session.client().disks.sync(disk, sync_id)
    if follow:
        _follow(session, disk, found)
    else:
        session.emit(dict(found), lambda: sync_text(found))


def sync_text(one: Sync) -> str:
    """A copy as ``disk sync show`` prints it."""
    total_bytes, total_files = one.get("bytes_total"), one.get("files_total")
    of_bytes = f" of {size_text(total_bytes)}" if total_bytes is not None else ""
    of_files = f" of {total_files}" if total_files is not None else ""
    verified = when(one.get("verified_at")) or ("after the copy" if one.get("verify") else "no")
    return render_fields(
        [
            ("copy", one["id"]),
            ("what", f"{one['direction']} {one['remote']}"),
            ("folder", one.get("folder") or "/"),
            ("state", one["state"]),
            ("message", one.get("message")),
            ("done", f"{size_text(one.get('bytes_done') or 0)}{of_bytes}"),
            ("files", f"{one.get('files_done') or 0}{of_files}"),
            ("verified", verified),
            ("asked", when(one.get("asked_at"))),
            ("started", when(one.get("started_at"))),
            ("ended", when(one.get("ended_at"))),
            ("schedule", one.get("schedule")),
        ]
    )


def _follow(session: Session, disk: str, first: Sync) -> None:
    """Progress on stderr, one line for each change; the exit code says how it ended."""
    tell = tell_new(session, _progress)
    try:
        found = session.client().disks.wait_sync(disk, first, on_wait=tell, on_break=tell_break(session))
    except KeyboardInterrupt:
        session.note(f"\nit goes on; end it: starverse disk sync cancel {shlex.quote(disk)} {first['id']}")
        session.exit_code = exit_codes.INTERRUPTED
        return
    session.emit(dict(found), lambda: sync_text(found))
    if found["state"] != "succeeded":
        session.note(f"{found['state']}: {visible(found.get('message') or 'no reason was given')}")
        session.exit_code = exit_codes.FAILURE


def _progress(one: Sync) -> str:
    if one["state"] == "queued" and one.get("attempts") and (message := one.get("message")):
        return f"waiting: {visible(message)}"
    done, total = one.get("bytes_done") or 0, one.get("bytes_total")
    part = f" ({100 * done // total} %)" if total else ""
    of_bytes = f" of {size_text(total)}" if total is not None else ""
    rate, left = rate_of_bytes(one.get("bytes_per_second")), length(one.get("seconds_left"))
    more = [f"{one.get('files_done') or 0} files", rate, f"{left} left" if left else None]
    return f"{one['state']}: {size_text(done)}{of_bytes}{part}, {', '.join(filter(None, more))}"


@command("End a copy, or a schedule; what was copied stays. The next one goes on from there.")
@click.argument("disk", metavar="DISK")
@click.argument("sync_id", metavar="ID")
def cancel(session: Session, disk: str, sync_id: str) -> None:
    answer = session.client().disks.cancel_sync(disk, sync_id)
    session.emit({**answer, "id": sync_id}, lambda: "")
    session.note(f"{sync_id} is cancelled; what was copied stays")


for each in (start, ls, show, cancel, schedule):
    group.add_command(each)
