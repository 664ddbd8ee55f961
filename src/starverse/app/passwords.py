"""Passwords: argon2id hashes, checked in the same time whether the mail address is known or not."""

from __future__ import annotations

from functools import cache

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerifyMismatchError

from starverse.domain.errors import FieldFault

CHARACTERS_MIN = 10
CHARACTERS_MAX = 1024

_hasher = PasswordHasher()


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


def hash_password(password: str) -> str:
    """An argon2id hash with its salt and cost inside. Takes tens of milliseconds: never in a transaction."""
    return _hasher.hash(password)


def verify_password(stored_hash: str | None, password: str) -> bool:
    """Whether the password is right; an unknown account (``None``) costs the same work and is never right."""
    try:
        _hasher.verify(stored_hash if stored_hash is not None else _hash_of_nothing(), password)
    except (VerifyMismatchError, InvalidHashError):
        return False
    return stored_hash is not None


def needs_new_hash(stored_hash: str) -> bool:
    """Whether the hash was made with other costs than today's."""
    return _hasher.check_needs_rehash(stored_hash)


@cache
def _hash_of_nothing() -> str:
    return _hasher.hash("no account has this password")
