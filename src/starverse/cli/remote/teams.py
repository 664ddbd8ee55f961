"""``team create/ls/show/add/remove``: who shares a wallet."""

from __future__ import annotations

import click

from starverse.cli.remote.commands import Group, command, yes_option
from starverse.cli.remote.session import Session
from starverse.cli.remote.tables import columns, render_table

ROLES = ("member", "owner")


@click.group("team", cls=Group, help="Teams: who shares a wallet, jobs and bills.")
def group() -> None:
    """Teams: who shares a wallet, jobs and bills."""


@command("Make a team that you own.")
@click.argument("name")
def create(session: Session, name: str) -> None:
    team = session.client().people.create_team(name)
    session.emit(dict(team), lambda: team["name"])
    session.note(f"act for it with --team {name}, or STARVERSE_TEAM={name}")


@command("List your teams.")
def ls(session: Session) -> None:
    teams = session.client().people.teams()
    session.emit(
        {"items": teams},
        lambda: render_table(
            columns("NAME", "ROLE", "PERSONAL"),
            [(t["name"], t.get("role"), t.get("personal")) for t in teams],
        ),
    )


@command("Show a team and its members.")
@click.argument("name")
def show(session: Session, name: str) -> None:
    team = session.client().people.team(name)
    members = team.get("members") or []
    session.emit(
        dict(team),
        lambda: (
            f"{team['name']}\n\n"
            + render_table(columns("MEMBER", "ROLE"), [(m.get("email"), m.get("role")) for m in members])
        ),
    )


@command("Add an account to a team.")
@click.argument("name", metavar="TEAM")
@click.argument("email")
@click.option("--role", type=click.Choice(ROLES), default="member", show_default=True)
def add(session: Session, name: str, email: str, role: str) -> None:
    answer = session.client().people.add_member(name, email, role)
    session.emit(answer, lambda: "")
    session.note(f"{email} is {role} of {name}")


@command("Take an account out of a team.")
@click.argument("name", metavar="TEAM")
@click.argument("email")
@yes_option()
def remove(session: Session, name: str, email: str, yes: bool) -> None:
    session.confirm(f"Take {email} out of {name}?", yes=yes)
    session.client().people.remove_member(name, email)
    session.emit({"removed": email, "team": name}, lambda: "")
    session.note(f"{email} is out of {name}")


for each in (create, ls, show, add, remove):
    group.add_command(each)
