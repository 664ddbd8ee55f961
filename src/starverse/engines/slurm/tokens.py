"""Tokens for slurmrestd: JWT with HS256, made from the cluster's key and renewed before they run out."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from pathlib import Path

from starverse.engines.slurm.facts import SlurmUnavailable

LIFE_SECONDS = 900
RENEWED_BEFORE_SECONDS = 300


class Tokens:
    """``user`` goes into the claim ``sun``: Slurm does what is asked as this user."""

    def __init__(
        self, key: Path, user: str, *, life_seconds: int = LIFE_SECONDS, now: Callable[[], float] = time.time
    ) -> None:
        self._key, self.user = key, user
        self._life_seconds, self._now = life_seconds, now
        self._token, self._until = "", 0.0

    def current(self) -> str:
        """A token that is good for some time; raises ``SlurmUnavailable`` where the key cannot be read."""
        now = self._now()
        if now > self._until - min(RENEWED_BEFORE_SECONDS, self._life_seconds / 3):
            try:
                key = self._key.read_bytes()
            except OSError as error:
                raise SlurmUnavailable(f"the key {self._key} cannot be read: {error.strerror}") from error
            self._token = mint(key, self.user, int(now), self._life_seconds)
            self._until = now + self._life_seconds
        return self._token

    def renew(self) -> None:
        """Forget the token: it was not taken (another key, a clock that was set)."""
        self._until = 0.0


def mint(key: bytes, user: str, now: int, life_seconds: int) -> str:
    """A signed token (RFC 7519) with the claims that Slurm reads: ``iat``, ``exp``, ``sun``."""
    head = _encode(json.dumps({"alg": "HS256", "typ": "JWT"}).encode())
    body = _encode(json.dumps({"iat": now, "exp": now + life_seconds, "sun": user}).encode())
    signature = hmac.new(key, f"{head}.{body}".encode(), hashlib.sha256).digest()
    return f"{head}.{body}.{_encode(signature)}"


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
