"""Shapes of accounts, tokens and teams."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from starverse.app.auth import Me, Registered, SignedIn
from starverse.app.teams import TeamView
from starverse.app.wallet import WalletView
from starverse.http.schemas_money import WalletOut
from starverse.http.shapes import In, InstantText, Out

Password = Annotated[str, Field(max_length=4096, examples=["correct horse battery"])]
Email = Annotated[str, Field(max_length=400, examples=["wang@example.org"])]


class CredentialsIn(In):
    """A mail address and a password."""

    email: Email
    password: Password


class AccountOut(Out):
    """A person who signs in."""

    id: str
    email: str
    operator: bool
    created_at: InstantText


class TeamRef(Out):
    """A team by id and name."""

    id: str
    name: str


class RegisteredOut(Out):
    """A new account with its personal team and wallet. The token is shown once."""

    account: AccountOut
    team: TeamRef
    token: str
    token_id: str
    wallet: WalletOut

    @classmethod
    def made(cls, registered: Registered, wallet: WalletView) -> RegisteredOut:
        return cls(
            account=AccountOut.of(registered.account),
            team=TeamRef.of(registered.team),
            token=registered.secret,
            token_id=registered.token.id,
            wallet=WalletOut.of(wallet),
        )


class SessionOut(Out):
    """A session; the token is shown once."""

    token: str
    token_id: str
    account: AccountOut

    @classmethod
    def made(cls, signed_in: SignedIn) -> SessionOut:
        return cls(
            token=signed_in.secret,
            token_id=signed_in.token.id,
            account=AccountOut.of(signed_in.account),
        )


class TeamOfMeOut(Out):
    """One of the caller's teams."""

    id: str
    name: str
    role: str
    personal: bool


class MeOut(Out):
    """Who the token speaks for."""

    account: AccountOut
    team: TeamRef
    teams: list[TeamOfMeOut]
    scope: str

    @classmethod
    def made(cls, me: Me, scope: str) -> MeOut:
        teams = [
            TeamOfMeOut(id=own.team.id, name=own.team.name, role=own.role, personal=own.team.personal)
            for own in me.teams
        ]
        return cls(account=AccountOut.of(me.account), team=TeamRef.of(me.team), teams=teams, scope=scope)


class TokenIn(In):
    """A token for scripts."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"name": "nightly", "team": "vision", "expires_in_days": 90}]}
    )

    name: Annotated[str, Field(max_length=200)]
    team: Annotated[str | None, Field(max_length=64)] = None
    expires_in_days: int | None = None


class TokenOut(Out):
    """A token without its secret."""

    id: str
    name: str
    scope: str
    team_id: str | None
    created_at: InstantText
    expires_at: InstantText | None


class NewTokenOut(TokenOut):
    """A new token; ``token`` is shown once."""

    token: str


class TeamIn(In):
    """A new shared team."""

    name: Annotated[str, Field(max_length=200, examples=["vision"])]


class MemberIn(In):
    """Someone to add, or whose role to change."""

    email: Email
    role: Literal["owner", "member"] = "member"


class MemberOut(Out):
    email: str
    role: str


class TeamOut(Out):
    """A team, the caller's role, and its members where one team was asked for."""

    id: str
    name: str
    personal: bool
    role: str
    created_at: InstantText
    members: list[MemberOut] = Field(default_factory=list)

    @classmethod
    def made(cls, view: TeamView) -> TeamOut:
        return cls.of(view.team, role=view.role, members=view.members)
