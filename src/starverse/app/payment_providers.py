"""Payment providers: one protocol, and the mock that signs as real ones do.

A provider tells us of a payment by a signed notification. The signature is an HMAC-SHA256 over the time
and the whole body; a notification is taken within five minutes of its time, and a repeat of one changes
nothing, because an order is paid once.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

from starverse.app.platform import Platform
from starverse.app.secret_files import read_or_make_secret
from starverse.domain.errors import FieldFault, Invalid, Unauthenticated
from starverse.domain.money import Money
from starverse.domain.timespan import format_instant

SIGNATURE_HEADER = "X-Starverse-Signature"
TOLERANCE = timedelta(minutes=5)
_SIGNATURE = re.compile(r"t=(\d{1,12}),v1=([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class SignedNotification:
    """A notification as it travels: its body and the value of its signature header."""

    body: bytes
    signature: str


@dataclass(frozen=True, slots=True)
class PaymentStart:
    """What starting a payment came to: a page to pay on, or (the mock) a payment made at once."""

    pay_url: str | None
    notice: SignedNotification | None = None


@dataclass(frozen=True, slots=True)
class PaymentNotification:
    """A verified notification: this order was paid."""

    order: str
    amount: Money


class PaymentProvider(Protocol):
    """A payment provider."""

    @property
    def name(self) -> str: ...

    def start(self, order: str, amount: Money, now: datetime) -> PaymentStart:
        """Begin a payment; a repeat for the same order is the same payment."""
        ...

    def read(self, notice: SignedNotification, now: datetime) -> PaymentNotification:
        """Verify a notification; raises :class:`Unauthenticated` unless the provider itself sent it now."""
        ...

    def refund(self, order: str, refund_id: str, amount: Money) -> None:
        """Pay back to the source; a repeat of a refund id pays once."""
        ...


class MockProvider:
    """Pays every order at once, out of nothing; for trials and tests. Its notifications are really signed."""

    name = "mock"

    def __init__(self, secret_file: Path) -> None:
        self._secret_file = secret_file

    def start(self, order: str, amount: Money, now: datetime) -> PaymentStart:
        body = json.dumps(
            {
                "event": "payment.paid",
                "order": order,
                "amount_micro": amount.micro,
                "at": format_instant(now),
            },
            sort_keys=True,
        ).encode()
        return PaymentStart(None, SignedNotification(body, self.sign(body, now)))

    def sign(self, body: bytes, now: datetime) -> str:
        """The value of the signature header for a body sent now."""
        seconds = str(int(now.timestamp()))
        return f"t={seconds},v1={self._mac(seconds, body)}"

    def read(self, notice: SignedNotification, now: datetime) -> PaymentNotification:
        found = _SIGNATURE.fullmatch(notice.signature)
        if found is None or not hmac.compare_digest(found[2], self._mac(found[1], notice.body)):
            raise Unauthenticated("The notification's signature does not match its body.")
        if abs(now.timestamp() - int(found[1])) > TOLERANCE.total_seconds():
            raise Unauthenticated("The notification is too old (or from the future); send it anew.")
        try:
            raw = json.loads(notice.body)
            return PaymentNotification(str(raw["order"]), Money(raw["amount_micro"]))
        except (ValueError, KeyError, TypeError) as error:
            fault = FieldFault("body", notice.body[:80].decode("utf-8", "replace"), "a payment notification")
            raise Invalid(faults=[fault]) from error

    def refund(self, order: str, refund_id: str, amount: Money) -> None:
        """Money out of nothing goes back there."""

    def _mac(self, seconds: str, body: bytes) -> str:
        secret = read_or_make_secret(self._secret_file).encode()
        return hmac.new(secret, seconds.encode() + b"." + body, hashlib.sha256).hexdigest()


def providers_of(platform: Platform) -> dict[str, PaymentProvider]:
    """The providers that this installation takes, by name."""
    found: dict[str, PaymentProvider] = {}
    if platform.settings.mock_gateway:
        found["mock"] = MockProvider(platform.settings.data / "gateway-mock.secret")
    return found


def provider_named(platform: Platform, name: str) -> PaymentProvider:
    """Raises :class:`Invalid` for a provider that this installation does not take."""
    known = providers_of(platform)
    if name not in known:
        expected = f"one of {', '.join(known)}" if known else "none: this installation takes no payments"
        raise Invalid(faults=[FieldFault("provider", name[:40], expected)])
    return known[name]
