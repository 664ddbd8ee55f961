"""``register``, ``login``, ``logout``, ``whoami``: who is asking."""

from __future__ import annotations

import click

from starverse.cli.remote.commands import command
from starverse.cli.remote.session import Session
from starverse.cli.remote.tables import render_fields
from starverse.cli.remote.wording import yuan

PASSWORD_VARIABLE = "STARVERSE_PASSWORD"


@command(
    "Open an account; the sign-up credit is in its wallet at once. The password is asked for, or read from "
    "STARVERSE_PASSWORD or stdin."
)
@click.argument("email")
def register(session: Session, email: str) -> None:
    _reach(session)
    password = session.secret(
        "Password (10 characters or more): ", PASSWORD_VARIABLE, again="Password again: "
    )
    answer = session.client().people.register(email, password)
    _remember(session, email, answer["token"])
    wallet = answer.get("wallet") or {}
    team = answer.get("team") or {}
    public = {name: value for name, value in answer.items() if name != "token"}
    session.emit(
        public,
        lambda: render_fields(
            [
                ("account", answer["account"]["email"]),
                ("team", team.get("name")),
                ("wallet", f"CNY {wallet.get('free') or yuan(wallet.get('free_micro', 0))} to spend"),
            ]
        ),
    )
    session.note("signed in; next: `starverse offers`, then `starverse submit train.sh`")


def _reach(session: Session) -> None:
    """Nobody is asked for a password that no server would get: whatever it answers, it is there."""
    from starverse.client.errors import ClientError

    if session.asks() and not session.environ.get(PASSWORD_VARIABLE):
        try:
            session.client().people.me()
        except ClientError as error:
            if error.status is None:
                raise


@command("Sign in; the password is asked for, or read from STARVERSE_PASSWORD or stdin.")
@click.argument("email")
def login(session: Session, email: str) -> None:
    _reach(session)
    password = session.secret("Password: ", PASSWORD_VARIABLE)
    answer = session.client().people.login(email, password)
    _remember(session, email, answer["token"])
    public = {name: value for name, value in answer.items() if name != "token"}
    session.emit(public, lambda: render_fields([("account", answer["account"]["email"])]))


@command("Sign out: the token is revoked and forgotten.")
def logout(session: Session) -> None:
    from starverse.client.errors import ClientError
    from starverse.client.settings import Credentials

    client = session.client()
    try:
        client.people.logout()
    except ClientError as error:
        if error.code != "unauthenticated":
            raise
    Credentials.of_user(session.environ).forget(client.settings.api)
    session.emit({"signed_out": True}, lambda: "")
    session.note("signed out")


@command("Show who is signed in, for which team, and where.")
def whoami(session: Session) -> None:
    client = session.client()
    me = client.people.me()
    session.emit(
        {**me, "api": client.settings.api},
        lambda: render_fields(
            [
                ("account", me["account"]["email"]),
                ("team", (me.get("team") or {}).get("name")),
                ("teams", [team["name"] for team in me.get("teams", [])]),
                ("scope", me.get("scope")),
                ("operator", me["account"].get("operator")),
                ("api", client.settings.api),
            ]
        ),
    )


def _remember(session: Session, email: str, token: str) -> None:
    from starverse.client.settings import Credentials, SignIn

    credentials = Credentials.of_user(session.environ)
    credentials.remember(session.client().settings.api, SignIn(token, email))
    if session.environ.get("STARVERSE_TOKEN") or session.environ.get("STARVERSE_TOKEN_FILE"):
        session.note("note: STARVERSE_TOKEN or STARVERSE_TOKEN_FILE is set and goes before this sign-in")
