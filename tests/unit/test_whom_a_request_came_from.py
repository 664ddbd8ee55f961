"""The address that rate limits count is the peer's own, unless a proxy that the operator trusts names it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from starverse.main import http_settings

CASES = {
    "nobody is trusted, not even this machine": ("", "127.0.0.1", "127.0.0.1"),
    "the proxy is trusted": ("10.0.0.7", "10.0.0.7", "203.0.113.9"),
    "another machine says it is a proxy": ("10.0.0.7", "10.0.0.8", "10.0.0.8"),
}


@pytest.mark.parametrize("trusted, peer, counted", CASES.values(), ids=CASES.keys())
def test_forwarded_for_is_believed_from_trusted_proxies_only(trusted: str, peer: str, counted: str) -> None:
    seen: list[str] = []

    async def app(scope: dict[str, Any], _receive: object, _send: object) -> None:
        seen.append(scope["client"][0])

    settings = http_settings(app, trusted)
    settings.load()
    scope = {
        "type": "http",
        "client": (peer, 40_000),
        "scheme": "http",
        "headers": [(b"x-forwarded-for", b"203.0.113.9")],
    }
    asyncio.run(settings.loaded_app(scope, None, None))
    assert seen == [counted]
