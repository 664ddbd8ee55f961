"""``admin disk clear``: what operators say of a disk that is stuck somewhere."""

from __future__ import annotations

import click

from starverse.cli.remote.commands import Group, command, consent_option
from starverse.cli.remote.session import Session


@click.group("disk", cls=Group, help="Disks that are stuck: clear.")
def group() -> None:
    """Disks that are stuck."""


@command(
    "Say that nothing has a stuck disk any more, after a look at its node; `disk show` names it.",
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


group.add_command(clear)
