"""``admin disk ls/clear``: disks that are stuck somewhere, and what operators say of them."""

from __future__ import annotations

from typing import Any

import click

from starverse.cli.remote.commands import Group, command, consent_option
from starverse.cli.remote.session import Session
from starverse.cli.remote.tables import columns, render_table
from starverse.cli.remote.wording import when


@click.group("disk", cls=Group, help="Disks that are stuck: ls, clear.")
def group() -> None:
    """Disks that are stuck."""


@command("List the disks that are stuck, and where to look.", examples=("admin disk ls",))
def ls(session: Session) -> None:
    found = session.client().admin.stuck_attachments()
    titles = columns("ATTACHMENT", "DISK", "TEAM", "KIND", "AT", "PATH", "NODE", "SINCE", "MESSAGE")
    session.emit({"items": found}, lambda: render_table(titles, [_row(one) for one in found]))


def _row(one: dict[str, Any]) -> tuple[object, ...]:
    return (
        one["id"],
        one["disk"],
        one["team"],
        one["kind"],
        one.get("instance") or one.get("job"),
        one["target"],
        one.get("nodes"),
        when(one.get("detach_by")),
        one.get("message"),
    )


@command(
    "Say that nothing has a stuck disk any more, after a look at its node; `admin disk ls` names it.",
    examples=("admin disk clear 019aca2e-5d0c-7b31-9f0e-6f1c2b7a8d55",),
)
@click.argument("attachment", metavar="ATTACHMENT")
@consent_option()
def clear(session: Session, attachment: str, yes: bool) -> None:
    question = (
        "A block disk that something still writes is damaged when it is attached again. Is it really out?"
    )
    session.insist(question, yes=yes)
    session.client().admin.clear_attachment(attachment)
    session.emit({"cleared": attachment}, lambda: "")
    session.note(f"{attachment} is cleared; the disk can be attached again")


group.add_command(ls)
group.add_command(clear)
