"""Passwords: argon2id hashes, checked in the same time whether the mail address is known or not."""

from __future__ import annotations

from functools import cached_property

from argon2 import Parameters, PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from argon2.profiles import RFC_9106_LOW_MEMORY

from starverse.domain.errors import FieldFault

CHARACTERS_MIN = 10
CHARACTERS_MAX = 1024

NO_PASSWORD = "none"
"""Stored in place of a hash: no password is right until one is set."""


def password_fault(password: str, email: str) -> FieldFault | None:
    """What is wrong with a new password; its text is never repeated."""
    if not CHARACTERS_MIN <= len(password) <= CHARACTERS_MAX:
        return FieldFault(
            "password",
            f"{len(password)} characters",
            f"{CHARACTERS_MIN} to {CHARACTERS_MAX} characters",
        )
    if password.strip().lower() == email:
        return FieldFault("password", "the mail address", "something other than the mail address")
    return None


class Passwords:
    """Makes and checks what the database keeps of passwords; ``cost`` is the work of one."""

    def __init__(self, cost: Parameters = RFC_9106_LOW_MEMORY) -> None:
        self._hasher = PasswordHasher.from_parameters(cost)

    def hash_of(self, password: str) -> str:
        """An argon2id hash with its salt and cost inside. It takes tens of milliseconds: never in a
        transaction."""
        return self._hasher.hash(password)

    def is_right(self, stored_hash: str | None, password: str) -> bool:
        """Whether the password is right. An unknown account (``None``) and one without a password cost the
        same work, and none is right for them."""
        known = None if stored_hash == NO_PASSWORD else stored_hash
        try:
            self._hasher.verify(self._hash_of_nothing if known is None else known, password)
        except (VerificationError, InvalidHashError):
            return False
        return known is not None

    def needs_new_hash(self, stored_hash: str) -> bool:
        """Whether the hash was made with other costs than today's."""
        return self._hasher.check_needs_rehash(stored_hash)

    @cached_property
    def _hash_of_nothing(self) -> str:
        return self._hasher.hash("no account has this password")
