"""The keys that people sign in to instances with, and how the gateway is reached."""

from __future__ import annotations

from typing import cast
from urllib.parse import quote

from starverse.client.shapes import Gateway, SshKey
from starverse.client.transport import Call, Transport, new_key


class SshKeys:
    """Public keys of the account; private ones never leave the machine they are on."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> list[SshKey]:
        return [cast(SshKey, item) for item in self._transport.pages(Call("GET", "/ssh-keys"))]

    def add(self, name: str, public_key: str) -> SshKey:
        """``public_key`` is one line as in ``id_ed25519.pub``."""
        body = {"name": name, "public_key": public_key}
        return cast(SshKey, self._transport.send(Call("POST", "/ssh-keys", body=body, key=new_key())))

    def remove(self, key_id: str) -> None:
        self._transport.send(Call("DELETE", f"/ssh-keys/{quote(key_id, safe='')}"))

    def gateway(self) -> Gateway:
        """Host, port and the authority that its host key is signed by."""
        return cast(Gateway, self._transport.send(Call("GET", "/ssh")))
