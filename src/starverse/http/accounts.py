"""Accounts, sessions, tokens."""

from __future__ import annotations

from fastapi import Response

from starverse.app import auth, wallet
from starverse.app.auth import TokenRequest
from starverse.app.views import Page
from starverse.http.routing import make_router
from starverse.http.schemas_accounts import (
    CredentialsIn,
    MeOut,
    NewTokenOut,
    RegisteredOut,
    SessionOut,
    TokenIn,
    TokenOut,
)
from starverse.http.security import AccountCaller, AnyCaller, AttemptsDep, OnceDep, PlaceDep, PlatformDep
from starverse.http.shapes import Items, items_of

router = make_router("accounts")


@router.post("/accounts", status_code=201)
def register(
    body: CredentialsIn, platform: PlatformDep, attempts: AttemptsDep, place: PlaceDep
) -> RegisteredOut:
    """Register: an account, its personal team, its wallet with the sign-up credit, and a session."""
    made = auth.register(platform, body.email, body.password, attempts=attempts, place=place)
    identity = auth.identify(platform, made.secret)
    return RegisteredOut.made(made, wallet.show_wallet(platform, identity))


@router.post("/sessions", status_code=201)
def login(body: CredentialsIn, platform: PlatformDep, attempts: AttemptsDep, place: PlaceDep) -> SessionOut:
    """Sign in; at most ten failed attempts in five minutes."""
    return SessionOut.made(auth.login(platform, body.email, body.password, attempts=attempts, place=place))


@router.delete("/sessions/current", status_code=204)
def logout(platform: PlatformDep, identity: AccountCaller) -> Response:
    """Sign out: the token of this request ends."""
    auth.logout(platform, identity)
    return Response(status_code=204)


@router.get("/me")
def me(platform: PlatformDep, identity: AnyCaller) -> MeOut:
    """Who the token speaks for, and for which team."""
    return MeOut.made(auth.me(platform, identity), identity.scope)


@router.post("/tokens", status_code=201)
def create_token(body: TokenIn, platform: PlatformDep, identity: AccountCaller, once: OnceDep) -> NewTokenOut:
    """A token for scripts, shown once; with ``team`` it reaches that team only."""
    request = TokenRequest(body.name, body.team, body.expires_in_days, once)
    made = auth.create_token(platform, identity, request)
    return NewTokenOut.of(made.token, token=made.secret)


@router.get("/tokens")
def list_tokens(platform: PlatformDep, identity: AccountCaller) -> Items[TokenOut]:
    """The account's own tokens, newest first; secrets are not kept."""
    return items_of(TokenOut, Page(auth.list_tokens(platform, identity)))


@router.delete("/tokens/{token_id}", status_code=204)
def revoke_token(token_id: str, platform: PlatformDep, identity: AccountCaller) -> Response:
    """End one of the account's own tokens."""
    auth.revoke_token(platform, identity, token_id)
    return Response(status_code=204)
