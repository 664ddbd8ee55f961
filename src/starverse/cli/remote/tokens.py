"""``token create/ls/rm``: tokens for scripts."""

from __future__ import annotations

import click

from starverse.cli.remote.commands import Group, command, yes_option
from starverse.cli.remote.session import Session
from starverse.cli.remote.tables import columns, render_table
from starverse.cli.remote.wording import when


@click.group("token", cls=Group, help="Tokens for scripts and other machines.")
def group() -> None:
    """Tokens for scripts and other machines."""


@command("Make a token; it is shown once.")
@click.argument("name")
@click.option("--expires-in-days", type=click.IntRange(1), metavar="DAYS", help="Default: never.")
def create(session: Session, name: str, expires_in_days: int | None) -> None:
    made = session.client().people.create_token(name, team=session.team, expires_in_days=expires_in_days)
    session.emit(dict(made), lambda: str(made.get("token", "")))
    session.note("this token is shown once; hand it over as STARVERSE_TOKEN")


@command("List tokens.")
def ls(session: Session) -> None:
    tokens = session.client().people.tokens()
    session.emit(
        {"items": tokens},
        lambda: render_table(
            columns("ID", "NAME", "SCOPE", "EXPIRES"),
            [(t["id"], t["name"], t["scope"], when(t.get("expires_at"))) for t in tokens],
        ),
    )


@command("Revoke a token.")
@click.argument("token_id", metavar="ID")
@yes_option()
def rm(session: Session, token_id: str, yes: bool) -> None:
    session.confirm(f"Revoke token {token_id}?", yes=yes)
    session.client().people.delete_token(token_id)
    session.emit({"deleted": token_id}, lambda: "")
    session.note("revoked")


for each in (create, ls, rm):
    group.add_command(each)
