"""``secret set/ls/rm``: values that instances find as files, never on a command line."""

from __future__ import annotations

from pathlib import Path

import click

from starverse.cli.remote.commands import Group, command, consent_option
from starverse.cli.remote.session import Session
from starverse.cli.remote.tables import columns, render_table
from starverse.cli.remote.wording import when


@click.group("secret", cls=Group, help="Secrets of the team: set, ls, rm; their values are never shown.")
def group() -> None:
    """Secrets of the team."""


@command(
    "Set a secret: its value is typed unseen, read from stdin, or from a file; never given as an argument.",
    name="set",
    examples=(
        "secret set hf-token",
        "secret set hf-token --file token.txt",
        "secret set hf-token < token.txt",
    ),
)
@click.argument("name", metavar="NAME")
@click.option("--file", type=click.Path(path_type=Path), metavar="FILE", help="Its content, as it is.")
def set_(session: Session, name: str, file: Path | None) -> None:
    value = _value(session, file)
    if not value:
        raise click.UsageError("the value is empty")
    made = session.client().secrets.set(name, value)
    session.emit(dict(made), lambda: "")
    session.note(f"secret {name} is set; instances and jobs get it with --secret {name}")


def _value(session: Session, file: Path | None) -> str:
    """A file's content as it is; what is typed or piped without the line's end."""
    if file is not None:
        try:
            return (session.folder / file).read_bytes().decode("utf-8")
        except UnicodeDecodeError as error:
            raise click.UsageError(f"{file} is not UTF-8 text; encode it, such as with base64") from error
    if session.asks():
        return session.secret("Value: ", "")
    return session.stdin.read().removesuffix("\n").removesuffix("\r")


@command("List the names of secrets; values are never shown.")
def ls(session: Session) -> None:
    found = session.client().secrets.list()
    rows = [(one["name"], when(one.get("created_at")), when(one.get("changed_at"))) for one in found]
    session.emit({"items": found}, lambda: render_table(columns("NAME", "SINCE", "CHANGED"), rows))


@command("Remove a secret.", examples=("secret rm hf-token",))
@click.argument("name", metavar="NAME")
@consent_option()
def rm(session: Session, name: str, yes: bool) -> None:
    session.insist(f"Remove the secret {name}? Its value is gone for good.", yes=yes)
    session.client().secrets.remove(name)
    session.emit({"deleted": name}, lambda: "")
    session.note(f"secret {name} is gone")


for each in (set_, ls, rm):
    group.add_command(each)
