"""Secrets of a team: set, listed by name, removed. No answer ever holds a value."""

from __future__ import annotations

from starverse.app import secrets
from starverse.app.views import Page
from starverse.http.routing import make_router
from starverse.http.security import PlatformDep, TeamCaller
from starverse.http.shapes import In, InstantText, Items, Out, items_of

router = make_router("secrets", "/secrets")


class SecretIn(In):
    """``value`` is text of at most 64 KiB."""

    value: str


class SecretOut(Out):
    """A secret without its value, which never comes back."""

    name: str
    created_at: InstantText
    changed_at: InstantText


@router.get("")
def list_secrets(platform: PlatformDep, identity: TeamCaller) -> Items[SecretOut]:
    """The names of the team's secrets."""
    return items_of(SecretOut, Page(secrets.list_secrets(platform, identity)))


@router.put("/{secret_name}")
def set_secret(secret_name: str, body: SecretIn, platform: PlatformDep, identity: TeamCaller) -> SecretOut:
    """Set a secret, or replace its value; what runs already keeps the old one."""
    return SecretOut.of(secrets.set_secret(platform, identity, secret_name, body.value))


@router.delete("/{secret_name}", status_code=204)
def remove_secret(secret_name: str, platform: PlatformDep, identity: TeamCaller) -> None:
    """Forget a secret; what runs already keeps it."""
    secrets.remove_secret(platform, identity, secret_name)
