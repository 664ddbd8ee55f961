"""Public keys of the account, and where the SSH gateway is."""

from __future__ import annotations

from fastapi import Response

from starverse.app import ssh_keys
from starverse.app.ssh_keys import NewSshKey
from starverse.app.views import Page
from starverse.http.routing import make_router
from starverse.http.schemas_ssh import GateOut, SshKeyIn, SshKeyOut
from starverse.http.security import AccountCaller, OnceDep, PlatformDep, TeamCaller
from starverse.http.shapes import Items, items_of

router = make_router("ssh")


@router.post("/ssh-keys", status_code=201)
def add_ssh_key(body: SshKeyIn, platform: PlatformDep, identity: AccountCaller, once: OnceDep) -> SshKeyOut:
    """Add a public key to the account: it opens every instance of the account's teams."""
    return SshKeyOut.of(ssh_keys.add_key(platform, identity, NewSshKey(body.name, body.public_key, once)))


@router.get("/ssh-keys")
def list_ssh_keys(platform: PlatformDep, identity: AccountCaller) -> Items[SshKeyOut]:
    """The account's own keys, oldest first."""
    return items_of(SshKeyOut, Page(ssh_keys.list_keys(platform, identity)))


@router.delete("/ssh-keys/{key_id}", status_code=204)
def remove_ssh_key(key_id: str, platform: PlatformDep, identity: AccountCaller) -> Response:
    """Remove a key, named by id or name; sessions that it opened end within seconds."""
    ssh_keys.remove_key(platform, identity, key_id)
    return Response(status_code=204)


@router.get("/ssh")
def show_ssh_gateway(platform: PlatformDep, identity: TeamCaller) -> GateOut:
    """Where the SSH gateway is, and how to trust it: one authority signs the host keys of all servers."""
    del identity
    return GateOut.of(ssh_keys.show_gate(platform))
