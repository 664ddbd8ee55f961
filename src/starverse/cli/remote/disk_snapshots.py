"""``disk snapshot create/ls/rm/schedule``."""

from __future__ import annotations

import shlex

import click

from starverse.cli.remote import exit_codes
from starverse.cli.remote.commands import Group, command, consent_option
from starverse.cli.remote.session import Session
from starverse.cli.remote.tables import columns, render_table, visible
from starverse.cli.remote.wording import when
from starverse.client.packing import size_text
from starverse.client.shapes import Snapshot


@click.group("snapshot", cls=Group, help="Snapshots of a disk: create, ls, rm, schedule.")
def group() -> None:
    """Snapshots of a disk."""


@command("Take a snapshot of a disk now.", examples=("disk snapshot create home --name before-cleaning",))
@click.argument("disk", metavar="DISK")
@click.option("--name", metavar="NAME", help="Default: made from the time.")
@click.option("--no-wait", is_flag=True, help="Do not stay until it is made.")
def create(session: Session, disk: str, name: str | None, no_wait: bool) -> None:
    disks = session.client().disks
    made = disks.take_snapshot(disk, name)
    if not no_wait:
        made = disks.wait_snapshot(disk, made)
    session.emit(dict(made), lambda: made["name"])
    if made["state"] == "failed":
        session.note(f"{made['name']} failed: {visible(made.get('message') or 'no reason was given')}")
        session.exit_code = exit_codes.FAILURE
        return
    kind = " --kind block" if disks.get(disk)["kind"] == "block" else ""
    source = shlex.quote(f"{disk}/{made['name']}")
    session.note(
        f"{made['name']} is {made['state']}; a disk from it: "
        f"starverse disk create NAME{kind} --size {made['gib']}GiB --from-snapshot {source}"
    )


@command("List the snapshots of a disk.")
@click.argument("disk", metavar="DISK")
def ls(session: Session, disk: str) -> None:
    found = list(session.client().disks.snapshots(disk))
    titles = columns("NAME", "STATE", ">DISK", ">SIZE", "MADE", "BY SCHEDULE", "MESSAGE")
    session.emit({"items": found}, lambda: render_table(titles, [_row(one) for one in found]))


def _row(one: Snapshot) -> tuple[object, ...]:
    size = one.get("bytes")
    return (
        one["name"],
        one["state"],
        f"{one['gib']} GiB",
        size_text(size) if size is not None else None,
        when(one.get("made_at") or one.get("asked_at")),
        one.get("scheduled"),
        one.get("message"),
    )


@command(
    "Remove a snapshot; its bytes are gone for good.", examples=("disk snapshot rm home before-cleaning",)
)
@click.argument("disk", metavar="DISK")
@click.argument("snapshot", metavar="SNAPSHOT")
@consent_option()
def rm(session: Session, disk: str, snapshot: str, yes: bool) -> None:
    disks = session.client().disks
    found = [one for one in disks.snapshots(disk) if snapshot in (one["name"], one["id"])]
    if not found:
        from starverse.client.errors import Refused

        raise Refused(
            "not_found",
            f"disk {disk} has no snapshot {snapshot}",
            hint=f"see `starverse disk snapshot ls {shlex.quote(disk)}`",
        )
    session.insist(f"Remove the snapshot {found[0]['name']} of {disk}?", yes=yes)
    disks.remove_snapshot(disk, found[0]["id"])
    session.emit({"deleted": found[0]["name"]}, lambda: "")
    session.note(f"snapshot {found[0]['name']} is gone")


@command(
    "Take snapshots by themselves, by a cron line in the installation's zone; `off` ends it.",
    examples=("disk snapshot schedule home '0 3 * * *' --keep 7", "disk snapshot schedule home off"),
)
@click.argument("disk", metavar="DISK")
@click.argument("schedule", metavar="CRON|off")
@click.option("--keep", type=click.IntRange(1), metavar="N", help="How many of them are kept.")
def schedule(session: Session, disk: str, schedule: str, keep: int | None) -> None:
    changes = {"snapshot_schedule": "" if schedule == "off" else schedule}
    changed = session.client().disks.change(disk, changes | ({"snapshots_kept": keep} if keep else {}))
    session.emit(dict(changed), lambda: changed.get("snapshot_schedule") or "off")
    kept = changed.get("snapshots_kept")
    if changed.get("snapshot_schedule"):
        session.note(f"snapshots of {changed['name']}" + (f"; the newest {kept} are kept" if kept else ""))
    else:
        session.note(f"no more snapshots of {changed['name']} by themselves")


for each in (create, ls, rm, schedule):
    group.add_command(each)
