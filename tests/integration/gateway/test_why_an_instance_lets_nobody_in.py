"""An sshd inside that ends at once, or knows nobody, is told apart, with what helps."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from starverse.app.gateway_keys import keep_gateway_keys
from starverse.app.inside import Unreachable
from starverse.gateway.inside import Inside
from starverse.testing.plain_sshd import PlainSshd


def refusal(folder: Path, open_stream: Callable[[str, str], socket.socket]) -> str:
    inside = Inside(keep_gateway_keys(folder), open_stream)
    try:
        with pytest.raises(Unreachable) as raised:
            asyncio.run(inside.connect("any"))
    finally:
        inside.close()
    return raised.value.detail


def ended(_allocation_id: str, _kind: str) -> socket.socket:
    ours, theirs = socket.socketpair()
    theirs.close()
    return ours


def test_one_that_ends_at_once_and_one_that_knows_nobody(tmp_path: Path) -> None:
    other = keep_gateway_keys(tmp_path / "other").client_public
    said = refusal(tmp_path / "gateway", ended)
    assert "ends before it has let anybody in" in said and "Stop and start it" in said
    with PlainSshd(other) as sshd:
        said = refusal(tmp_path / "gateway", sshd.open_stream)
    assert "knows no user that may come in" in said and "launch another" in said
