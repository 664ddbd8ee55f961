"""Who may call what: every endpoint declares one of these dependencies, or is in ``PUBLIC_ROUTES``.

=================  ==============================================================================
``AnyCaller``      any valid token, also of a shim inside a workload
``TeamCaller``     people and their scripts (scope ``account`` or ``team``): money, members' views
``AccountCaller``  scope ``account`` only: tokens, teams
``OperatorCaller`` the operator, with a token of scope ``account``
=================  ==============================================================================

What asks nobody is ``async``: FastAPI sends every other dependency through a thread of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Annotated
from urllib.parse import unquote

from fastapi import Depends, Header, Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from starverse.app import auth
from starverse.app.idempotency import Once
from starverse.app.identity import Identity
from starverse.app.platform import Platform
from starverse.app.rate_limits import Attempts
from starverse.domain.errors import FieldFault, Forbidden, Invalid

PUBLIC_ROUTES = frozenset(
    {
        ("POST", "/api/v1/accounts"),
        ("POST", "/api/v1/sessions"),
        ("POST", "/api/v1/gateways/{provider}/notifications"),
        ("GET", "/healthz"),
        ("GET", "/readyz"),
        ("GET", "/metrics"),
    }
)
"""Routes without a token: registration, sign-in, payment notifications (signed), health and metrics."""

_bearer = HTTPBearer(auto_error=False, description="A token of `starverse login` or `starverse token create`")


async def get_platform(request: Request) -> Platform:
    platform: Platform = request.app.state.platform
    return platform


async def get_attempts(request: Request) -> Attempts:
    attempts: Attempts = request.app.state.attempts
    return attempts


async def place_of(request: Request) -> str:
    """Where a request came from, for rate limits."""
    return request.client.host if request.client else "local socket"


PlatformDep = Annotated[Platform, Depends(get_platform)]
AttemptsDep = Annotated[Attempts, Depends(get_attempts)]
PlaceDep = Annotated[str, Depends(place_of)]


def identified(
    platform: PlatformDep,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],
    x_starverse_team: Annotated[
        str | None,
        Header(
            max_length=600,
            description="Team to act for, percent-encoded",
        ),
    ] = None,
) -> Identity:
    """The identity behind the token."""
    team = None if x_starverse_team is None else unquote(x_starverse_team)
    return auth.identify(platform, credentials.credentials if credentials else None, team)


Identified = Annotated[Identity, Depends(identified)]


async def any_caller(identity: Identified) -> Identity:
    return identity


async def team_caller(identity: Identified) -> Identity:
    if identity.scope == "workload":
        raise Forbidden("A token of a running workload may not do this.", hint="Use your own token.")
    return identity


async def account_caller(identity: Identified) -> Identity:
    if identity.scope != "account":
        raise Forbidden("This needs a token of your account, not of one team or workload.")
    return identity


async def operator_caller(identity: Identified) -> Identity:
    if not identity.operator:
        raise Forbidden("Only the operator may do this.", hint="Ask the operator of this installation.")
    return identity


AnyCaller = Annotated[Identity, Depends(any_caller)]
TeamCaller = Annotated[Identity, Depends(team_caller)]
AccountCaller = Annotated[Identity, Depends(account_caller)]
OperatorCaller = Annotated[Identity, Depends(operator_caller)]

AUTHORISING = (any_caller, team_caller, account_caller, operator_caller)


def authorisations_of(dependant: Dependant | None) -> list[str]:
    """The names of the authorising dependencies of a route's ``dependant``; a route needs exactly one."""
    declared = set() if dependant is None else set(_calls(dependant))
    return [call.__name__ for call in AUTHORISING if call in declared]


def _calls(dependant: Dependant) -> Iterator[object]:
    for inner in dependant.dependencies:
        yield inner.call
        yield from _calls(inner)


async def once(
    request: Request,
    identity: Identified,
    idempotency_key: Annotated[
        str | None,
        Header(
            min_length=1,
            max_length=255,
            description="Makes a repeat of this very request safe: it answers with what the first one made",
        ),
    ] = None,
) -> Once | None:
    """The idempotency key with a digest of method, path, team and body."""
    if idempotency_key is None:
        return None
    if not idempotency_key.isascii() or not idempotency_key.isprintable():
        fault = FieldFault("Idempotency-Key", ascii(idempotency_key)[:80], "printable ASCII characters")
        raise Invalid(faults=[fault])
    digest = hashlib.sha256()
    for part in (request.method, request.url.path, request.url.query, identity.team_id):
        digest.update(part.encode("utf-8", "surrogateescape") + b"\0")
    digest.update(await request.body())
    return Once(idempotency_key, digest.hexdigest())


OnceDep = Annotated[Once | None, Depends(once)]


async def known_query(request: Request) -> None:
    """Refuses query parameters that the endpoint does not know, and bytes that no text holds."""
    faults = []
    route = request.scope.get("route")
    known = _query_names(route) if isinstance(route, APIRoute) else frozenset[str]()
    for name, value in request.query_params.multi_items():
        if name not in known:
            expected = f"one of {', '.join(sorted(known))}" if known else "no query parameters"
            faults.append(FieldFault(name[:80], value[:80], expected))
        elif "\0" in value:
            faults.append(FieldFault(name, ascii(value)[:80], "text without NUL"))
    for name, value in request.path_params.items():
        if "\0" in str(value):
            faults.append(FieldFault(name, ascii(value)[:80], "text without NUL"))
    if faults:
        raise Invalid(faults=faults)


def _query_names(route: APIRoute) -> frozenset[str]:
    names: set[str] = set()
    pending = [route.dependant]
    while pending:
        dependant = pending.pop()
        names |= {param.alias for param in dependant.query_params}
        pending += dependant.dependencies
    return frozenset(names)
