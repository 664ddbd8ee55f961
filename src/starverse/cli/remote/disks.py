"""``disk create/ls/show/attach/detach/resize/usage/cp/rm/restore``: a team's persistent storage."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Mapping
from typing import Any

import click

from starverse.cli.remote import copying, disk_places, exit_codes
from starverse.cli.remote.commands import LazyCommand, LazyGroup, command, consent_option, yes_option
from starverse.cli.remote.copying import STDOUT, Remote
from starverse.cli.remote.month_prices import tell_month_price
from starverse.cli.remote.quantities import Gib
from starverse.cli.remote.session import Session
from starverse.cli.remote.tables import columns, render_fields, render_table, visible
from starverse.cli.remote.wording import when
from starverse.client.packing import size_text
from starverse.client.shapes import Disk

KINDS = ("shared", "block")
MAKING_SECONDS_MAX = 600.0
GIB = 1024**3
_PLACE = re.compile(r"([^:/]+):(.*)", re.DOTALL)
_HERE = "starverse.cli.remote"

group = LazyGroup(
    "disk",
    help="Disks: a team's storage, which outlives instances and is plugged in while they run.",
    lazy={
        "snapshot": LazyCommand(f"{_HERE}.disk_snapshots", "Snapshots: create, ls, rm, schedule.", "group"),
        "sync": LazyCommand(
            f"{_HERE}.disk_syncs", "Copies to and from remotes: start, ls, show, cancel.", "group"
        ),
    },
)


@command(
    "Make a disk: shared (many write) or block (a file system of its own, one writer).",
    examples=("disk create home --size 100GiB", "disk create db --kind block --size 20GiB --yes"),
)
@click.argument("name", metavar="NAME")
@click.option("--kind", type=click.Choice(KINDS), default="shared", show_default=True)
@click.option("--size", "gib", type=Gib(), required=True, metavar="SIZE", help="Such as 100GiB.")
@click.option("--from-snapshot", metavar="DISK/SNAPSHOT", help="Begin as this snapshot, not empty.")
@click.option("--no-wait", is_flag=True, help="Do not stay until it is ready.")
@consent_option()
def create(session: Session, *, no_wait: bool, yes: bool, **asked: Any) -> None:
    name, kind, gib, from_snapshot = (asked[key] for key in ("name", "kind", "gib", "from_snapshot"))
    tell_month_price(session, kind=kind, gib=gib)
    session.insist(f"Make the {kind} disk {name} of {gib} GiB?", yes=yes)
    request: dict[str, Any] = {"name": name, "kind": kind, "gib": gib}
    if from_snapshot is not None:
        request["from_snapshot"] = _snapshot_id(session, from_snapshot)
    disks = session.client().disks
    made = disks.create(request)
    if not no_wait:
        made = disks.wait(made, lambda one: one["state"] != "making", seconds_max=MAKING_SECONDS_MAX)
    session.emit(dict(made), lambda: made["name"])
    why = f": {visible(made['message'] or '')}" if made.get("message") else ""
    session.note(f"{made['name']} is {made['state']}{why}")
    if made["state"] == "failed":
        session.exit_code = exit_codes.FAILURE
    else:
        session.note(f"plug it in: starverse disk attach {shlex.quote(name)} INSTANCE")


def _snapshot_id(session: Session, text: str) -> str:
    """The id of ``DISK/SNAPSHOT``; an id goes through."""
    disk, slash, name = text.partition("/")
    if not slash:
        return text
    found = [one for one in session.client().disks.snapshots(disk) if name in (one["name"], one["id"])]
    if not found:
        from starverse.client.errors import Refused

        where = f"starverse disk snapshot ls {shlex.quote(disk)}"
        raise Refused("not_found", f"disk {disk} has no snapshot {name}", hint=where)
    return found[0]["id"]


@command("List the team's disks.")
@click.option("--deleted", is_flag=True, help="Those too that can still be restored.")
def ls(session: Session, deleted: bool) -> None:
    found = session.client().disks.list(deleted=deleted)
    titles = columns("NAME", "KIND", ">SIZE", ">USED", "STATE", "AT", "SCHEDULE", "SINCE")
    session.emit({"items": found}, lambda: render_table(titles, [_row(one) for one in found]))


def _row(one: Disk) -> tuple[object, ...]:
    return (
        one["name"],
        one["kind"],
        f"{one['gib']} GiB",
        _used(one),
        one["state"],
        _holders(one),
        one.get("snapshot_schedule"),
        when(one.get("created_at")),
    )


def _holders(one: Disk) -> list[str]:
    """Who has it now or at each start, by name or by the job's number."""
    now = [str(place.get("instance") or place.get("job")) for place in one.get("attachments") or ()]
    return list(dict.fromkeys([*now, *(str(place["instance"]) for place in one.get("instances") or ())]))


def _used(one: Disk) -> str | None:
    used = one.get("used_bytes")
    return size_text(used) if used is not None else None


@command("Show a disk: size, use, who has it, snapshots.", examples=("disk show home",))
@click.argument("name", metavar="DISK")
def show(session: Session, name: str) -> None:
    found = session.client().disks.get(name)
    session.emit(dict(found), lambda: disk_text(found))


def disk_text(one: Disk) -> str:
    """A disk as ``disk show`` prints it."""
    kept = one.get("snapshots_kept")
    head = render_fields(
        [
            ("disk", one["name"]),
            ("kind", "block: one writer" if one["kind"] == "block" else "shared: many writers"),
            ("state", one["state"]),
            ("message", one.get("message")),
            ("size", f"{one['gib']} GiB"),
            ("used", _used(one)),
            ("files", one.get("used_files")),
            ("counted", when(one.get("used_at"))),
            ("limit", _limit(one)),
            (
                "price",
                f"CNY {one['price_month']} per month, less the free GiB" if one.get("price_month") else None,
            ),
            ("snapshots", one.get("snapshot_schedule")),
            ("kept", f"the newest {kept}" if kept else None),
            ("made", when(one.get("created_at"))),
            ("deleted", when(one.get("deleted_at"))),
            ("restorable until", when(one.get("restorable_until"))),
        ]
    )
    places = one.get("attachments") or []
    here = {place.get("instance") for place in places}
    resting = [place for place in one.get("instances") or () if place["instance"] not in here]
    rows = [_place_row(place) for place in [*places, *resting]]
    if not rows:
        return head
    return f"{head}\n\n{render_table(columns('AT', 'PATH', 'ACCESS', 'STATE', 'MESSAGE'), rows)}"


def _limit(one: Mapping[str, Any]) -> str | None:
    """What keeps it from holding more than its size."""
    if one.get("hard_quota") is None:
        return None
    return (
        "hard"
        if one.get("hard_quota")
        else "counted, not hard" + (", over it now" * bool(one.get("over_quota")))
    )


def _place_row(place: dict[str, Any]) -> tuple[object, ...]:
    """An attachment, or an instance that will have the disk at its next start."""
    return (
        place.get("instance") or place.get("job"),
        place.get("target"),
        "read-only" if place.get("read_only") else "writable",
        place.get("state") or "at its next start",
        _message(place),
    )


def _message(place: dict[str, Any]) -> str | None:
    """Why, and for a stuck one what operators call it."""
    if place.get("state") == "stuck":
        return f"{place.get('message') or 'stuck'} (attachment {place.get('id')})"
    return place.get("message")


@command(
    "Give a disk another size; what that costs is said first.", examples=("disk resize home --size 200GiB",)
)
@click.argument("name", metavar="DISK")
@click.option("--size", "gib", type=Gib(), required=True, metavar="SIZE", help="Such as 200GiB.")
@consent_option()
def resize(session: Session, name: str, gib: int, yes: bool) -> None:
    disks = session.client().disks
    found = disks.get(name)
    tell_month_price(session, kind=found["kind"], gib=gib, resized=found["id"])
    session.insist(f"Make {found['name']} {gib} GiB instead of {found['gib']} GiB?", yes=yes)
    changed = disks.change(found["id"], {"gib": gib})
    changed = disks.wait(changed, lambda one: not one.get("growing"), seconds_max=MAKING_SECONDS_MAX)
    session.emit(dict(changed), lambda: f"{changed['gib']}")
    session.note(f"{changed['name']} has {changed['gib']} GiB")


@command("Show what a disk holds and what it costs.", examples=("disk usage home",))
@click.argument("name", metavar="DISK")
def usage(session: Session, name: str) -> None:
    found = session.client().disks.usage(name)
    session.emit(found, lambda: usage_text(found))


def _files(found: dict[str, Any]) -> object:
    """Of a block disk nobody counts them."""
    files = found.get("used_files")
    return "not counted yet" if files is None and found["kind"] != "block" else files


def usage_text(found: dict[str, Any]) -> str:
    """What ``disk usage`` prints."""
    used, free, gib = found.get("used_bytes"), found.get("free_gib") or 0, found["gib"]
    until = when(found.get("charged_until"))
    return render_fields(
        [
            ("disk", f"{found['name']} ({found['kind']})"),
            ("size", f"{gib} GiB" + (f", {free} of them free of charge" if free else "")),
            (
                "used",
                f"{size_text(used)} ({100 * used // (gib * GIB)} %)"
                if used is not None
                else "not counted yet",
            ),
            ("files", _files(found)),
            ("counted", when(found.get("used_at"))),
            ("limit", _limit(found)),
            ("price", f"CNY {found['price_month']} per month"),
            ("this month", f"CNY {found['charged_this_month']}" + (f", up to {until}" if until else "")),
        ]
    )


@command(
    "List what is on a disk, or in a folder of it; --rm removes it there.",
    examples=("disk files home", "disk files home:runs", "disk files home:runs/7 --rm --yes"),
)
@click.argument("place", metavar="DISK[:path]")
@click.option("--rm", "remove", is_flag=True, help="Remove this file or folder, with all in it.")
@consent_option()
def files(session: Session, place: str, remove: bool, yes: bool) -> None:
    there = read_place(place if ":" in place else f"{place}:")
    if isinstance(there, str):
        raise click.UsageError(f"{place} names no disk: DISK:path, such as home:runs")
    disks = session.client().disks
    if remove:
        if not there.path:
            raise click.UsageError("say which file or folder: DISK:path; a whole disk goes by `disk rm`")
        session.insist(f"Remove {there.path} from {there.ref} for good?", yes=yes)
        disks.remove_file(there.ref, there.path)
        session.emit({"deleted": there.path, "disk": there.ref}, lambda: "")
        session.note(f"{there.path} is gone from {there.ref}")
        return
    found = disks.files(there.ref, there.path)
    rows = [
        (one["path"], one["kind"], size_text(one["bytes"]), when(one.get("modified_at"))) for one in found
    ]
    session.emit({"items": found}, lambda: render_table(columns("PATH", "KIND", ">SIZE", "CHANGED"), rows))


@command(
    "Copy between this machine and a disk, folders too: DISK:path on one side; `-` is stdout.",
    examples=("disk cp data home:", "disk cp home:runs/7 .", "disk cp home:notes.txt -"),
)
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@yes_option()
def cp(session: Session, source: str, target: str, yes: bool) -> None:
    disks = session.client().disks
    here, there = read_place(source), read_place(target)
    if isinstance(here, Remote) and there == STDOUT:
        copying.print_file(session, disks, here)
    elif isinstance(here, Remote) and isinstance(there, str):
        copying.fetch(session, disks, here, session.folder / there, yes=yes)
    elif isinstance(here, str) and isinstance(there, Remote):
        as_folder = target.endswith(("/", ":", "/.", ":."))
        copying.send(session, disks, session.folder / here, there, as_folder=as_folder)
    else:
        raise click.UsageError("one of FROM and TO is DISK:path, such as home:runs/7")


def read_place(text: str) -> Remote | str:
    """``DISK:path`` or a local path; a local name with a colon is written ``./a:b``."""
    found = _PLACE.fullmatch(text)
    if found is None:
        return text
    path = posixpath.normpath(found[2].lstrip("/") or ".")
    if path == ".." or path.startswith("../"):
        raise click.UsageError(f"{text} leaves the disk")
    return Remote(found[1], "" if path == "." else path, "disk")


@command(
    "Delete a disk; it can be restored for seven days, then its bytes are gone.", examples=("disk rm home",)
)
@click.argument("name", metavar="DISK")
@consent_option()
def rm(session: Session, name: str, yes: bool) -> None:
    found = session.client().disks.get(name)
    held = f" with {used} on it" if (used := _used(found)) else ""
    session.insist(f"Delete the disk {found['name']} of {found['gib']} GiB{held} and its snapshots?", yes=yes)
    session.client().disks.remove(found["id"])
    session.emit({"deleted": found["name"], "id": found["id"]}, lambda: "")
    if found["state"] == "failed":
        session.note(f"{found['name']} is gone: it was never made, and there was nothing on it")
    else:
        session.note(f"{found['name']} is deleted; for seven days: starverse disk restore {found['id']}")


@command("Bring a deleted disk back.", examples=("disk restore home", "disk restore home --name home-2"))
@click.argument("name", metavar="DISK")
@click.option("--name", "new_name", metavar="NAME", help="Where its old name is taken.")
def restore(session: Session, name: str, new_name: str | None) -> None:
    found = session.client().disks.restore(name, new_name)
    session.emit(dict(found), lambda: found["name"])
    session.note(f"{found['name']} is back")


for each in (create, ls, show, disk_places.attach, disk_places.detach, resize, usage, files, cp, rm, restore):
    group.add_command(each)
