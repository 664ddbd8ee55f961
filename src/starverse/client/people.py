"""Accounts, sign-in, tokens and teams."""

from __future__ import annotations

from typing import Any, cast
from urllib.parse import quote

from starverse.client.shapes import Me, Team, Token
from starverse.client.transport import Call, Transport, new_key


class People:
    """Who may do what."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def register(self, email: str, password: str) -> dict[str, Any]:
        """``{account, team, token, wallet}``."""
        return self._transport.send(Call("POST", "/accounts", body={"email": email, "password": password}))

    def login(self, email: str, password: str) -> dict[str, Any]:
        """``{account, token, token_id}``."""
        return self._transport.send(Call("POST", "/sessions", body={"email": email, "password": password}))

    def logout(self) -> None:
        """Revoke the token in use."""
        self._transport.send(Call("DELETE", "/sessions/current"))

    def me(self) -> Me:
        return cast(Me, self._transport.send(Call("GET", "/me")))

    def create_token(
        self, name: str, *, team: str | None = None, expires_in_days: int | None = None
    ) -> Token:
        """The secret is in the answer and nowhere else."""
        body: dict[str, Any] = {"name": name}
        if team is not None:
            body["team"] = team
        if expires_in_days is not None:
            body["expires_in_days"] = expires_in_days
        return cast(Token, self._transport.send(Call("POST", "/tokens", body=body, key=new_key())))

    def tokens(self) -> list[Token]:
        return [cast(Token, item) for item in self._transport.pages(Call("GET", "/tokens"))]

    def delete_token(self, token_id: str) -> None:
        self._transport.send(Call("DELETE", f"/tokens/{quote(token_id, safe='')}"))

    def create_team(self, name: str) -> Team:
        return cast(Team, self._transport.send(Call("POST", "/teams", body={"name": name}, key=new_key())))

    def teams(self) -> list[Team]:
        return [cast(Team, item) for item in self._transport.pages(Call("GET", "/teams"))]

    def team(self, name: str) -> Team:
        return cast(Team, self._transport.send(Call("GET", f"/teams/{quote(name, safe='')}")))

    def add_member(self, team: str, email: str, role: str) -> dict[str, Any]:
        path = f"/teams/{quote(team, safe='')}/members"
        return self._transport.send(Call("POST", path, body={"email": email, "role": role}, key=new_key()))

    def remove_member(self, team: str, email: str) -> None:
        path = f"/teams/{quote(team, safe='')}/members/{quote(email, safe='')}"
        self._transport.send(Call("DELETE", path))
