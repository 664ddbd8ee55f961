"""``disk attach/detach``: into an instance that runs, and out again, followed to where the disk really is."""

from __future__ import annotations

from typing import Any

import click

from starverse.cli.remote import exit_codes
from starverse.cli.remote.commands import command
from starverse.cli.remote.session import Session
from starverse.cli.remote.tables import visible
from starverse.client.shapes import Disk, Instance

SECONDS_MAX = 30.0
"""How long a disk is watched on its way; what is not there then is told as it is."""
_ON_ITS_WAY = {"attach": frozenset({"attaching"}), "detach": frozenset({"detaching", "attached"})}


@command(
    "Plug a disk into an instance: at once where it runs, and at each of its starts.",
    examples=("disk attach home lab", "disk attach db lab --path /data/db --read-only"),
)
@click.argument("name", metavar="DISK")
@click.argument("instance", metavar="INSTANCE")
@click.option("--path", metavar="PATH", help="Default: /data/DISK.")
@click.option("--read-only", is_flag=True)
def attach(session: Session, name: str, instance: str, path: str | None, read_only: bool) -> None:
    one = session.client().instances.get(instance)
    request: dict[str, Any] = {"instance": one["id"], "read_only": read_only}
    asked = session.client().disks.attach(name, request | ({"path": path} if path else {}))
    _follow(session, asked, one, "attach")


@command(
    "Take a disk out of an instance; what still uses it there is told.", examples=("disk detach home lab",)
)
@click.argument("name", metavar="DISK")
@click.argument("instance", metavar="INSTANCE")
def detach(session: Session, name: str, instance: str) -> None:
    one = session.client().instances.get(instance)
    asked = session.client().disks.detach(name, one["id"])
    _follow(session, asked, one, "detach")


def _follow(session: Session, asked: Disk, instance: Instance, act: str) -> None:
    """Watch it to its end; a refusal and a stuck disk are conflicts, one that takes longer is out of time."""

    def there(disk: Disk) -> bool:
        place = newest_place(disk, instance["id"])
        return place is None or place["state"] not in _ON_ITS_WAY[act]

    disk = session.client().disks.wait(asked, there, seconds_max=SECONDS_MAX)
    place = newest_place(disk, instance["id"])
    session.emit({"disk": disk["name"], "instance": instance["name"], "attachment": place}, lambda: "")
    session.note(place_text(disk["name"], instance["name"], place, act))
    if place is not None and place["state"] in ("refused", "stuck"):
        session.exit_code = exit_codes.CONFLICT
    elif not there(disk):
        session.exit_code = exit_codes.TIMED_OUT


def newest_place(disk: Disk, instance_id: str) -> dict[str, Any] | None:
    """The disk's newest attachment at an instance; ``None``: none that is known."""
    found = [place for place in disk.get("attachments") or () if place.get("instance_id") == instance_id]
    return max(found, key=lambda place: str(place.get("asked_at")), default=None)


def place_text(disk: str, instance: str, place: dict[str, Any] | None, act: str) -> str:
    """Where the disk is now, for people."""
    if place is None or (act == "attach" and place["state"] == "detached"):
        later = "has it at its next start" if act == "attach" else "has it no more"
        return f"{instance} {later}: {disk}"
    at = f" at {place['target']}" if place["state"] in ("attached", "attaching") else ""
    why = f": {visible(place['message'])}" if place.get("message") else ""
    where = "from" if place["state"] == "detached" else "in"
    return f"{disk} is {place['state']} {where} {instance}{at}{why}"
