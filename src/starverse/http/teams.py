"""Teams and their members."""

from __future__ import annotations

from fastapi import Response

from starverse.app import teams
from starverse.http.routing import make_router
from starverse.http.schemas_accounts import MemberIn, TeamIn, TeamOut
from starverse.http.security import AccountCaller, OnceDep, PlatformDep, TeamCaller
from starverse.http.shapes import Items

router = make_router("teams", "/teams")


@router.post("", status_code=201)
def create_team(body: TeamIn, platform: PlatformDep, identity: AccountCaller, once: OnceDep) -> TeamOut:
    """A new shared team with an empty wallet, owned by the caller."""
    return TeamOut.made(teams.create_team(platform, identity, body.name, once))


@router.get("")
def list_teams(platform: PlatformDep, identity: TeamCaller) -> Items[TeamOut]:
    """The teams the token reaches, the personal one first."""
    return Items[TeamOut](items=[TeamOut.made(view) for view in teams.list_teams(platform, identity)])


@router.get("/{name}")
def get_team(name: str, platform: PlatformDep, identity: TeamCaller) -> TeamOut:
    """One team with its members."""
    return TeamOut.made(teams.get_team(platform, identity, name))


@router.post("/{name}/members", status_code=201)
def add_member(name: str, body: MemberIn, platform: PlatformDep, identity: AccountCaller) -> TeamOut:
    """Add someone who has an account, or change their role; owners only."""
    return TeamOut.made(teams.add_member(platform, identity, name, body.email, body.role))


@router.delete("/{name}/members/{email}", status_code=204)
def remove_member(name: str, email: str, platform: PlatformDep, identity: AccountCaller) -> Response:
    """Take someone out, with their tokens for the team; owners only, or oneself."""
    teams.remove_member(platform, identity, name, email)
    return Response(status_code=204)
