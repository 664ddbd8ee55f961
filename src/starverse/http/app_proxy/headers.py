"""Which headers pass between a browser and an app inside an instance, and which do not.

The app's pages share the origin of the API, and what runs in an instance is not to be trusted with anything
of it: our cookies and tokens stay here, the app's cookies and redirects stay below its prefix, and its pages
may fetch, frame and submit nowhere else on this origin.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

COOKIE = "sv_app"
OUR_COOKIES = ("sv_", "starverse", "__host-", "__secure-")
HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_OURS_TO_SAY = frozenset({"authorization", "cookie", "host", "origin", "referer", "expect"})
_FORWARDED = ("forwarded", "x-forwarded-", "x-real-ip", "x-starverse-")
_NOT_FROM_APPS = frozenset({"service-worker-allowed", "strict-transport-security", "clear-site-data"})

_DOT = re.compile(r"%2e", re.IGNORECASE)
_HOST = re.compile(r"(?:[a-z0-9_-]+\.)*[a-z][a-z0-9-]*")
"""A name of a host, which nobody reads as a number."""

Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Place:
    """Where an app is shown and where it listens. ``origin`` is that of the browser's page."""

    origin: str
    prefix: str
    port: int
    client: str
    whole_path: bool
    authorization: str

    @property
    def inside_host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def path_inside(self, raw_path: str) -> str:
        """What the app is asked for: an app that knows its prefix is told the whole path."""
        return raw_path if self.whole_path else "/" + raw_path.removeprefix(self.prefix)


def inbound(headers: Iterable[tuple[bytes, bytes]], place: Place) -> Headers:
    """A browser's headers as the app gets them."""
    given = [(name.decode("latin-1").lower(), value) for name, value in headers]
    dropped = _named_in_connection(given)
    passed: Headers = [(b"host", place.inside_host.encode())]
    for name, value in given:
        if name in HOP_BY_HOP | dropped | _OURS_TO_SAY or name.startswith(_FORWARDED):
            continue
        passed.append((name.encode("latin-1"), value))
    cookies = _their_cookies(value for name, value in given if name == "cookie")
    if cookies:
        passed.append((b"cookie", cookies))
    if any(name == "origin" for name, _ in given):
        passed.append((b"origin", f"http://{place.inside_host}".encode()))
    if place.authorization:
        passed.append((b"authorization", place.authorization.encode()))
    parts = urlsplit(place.origin)
    return [
        *passed,
        (b"x-forwarded-for", place.client.encode()),
        (b"x-forwarded-host", parts.netloc.encode()),
        (b"x-forwarded-proto", parts.scheme.encode()),
        (b"x-forwarded-prefix", place.prefix.rstrip("/").encode()),
    ]


def outbound(headers: Iterable[tuple[bytes, bytes]], place: Place) -> Headers:
    """An app's headers as the browser gets them."""
    given = [(name.decode("latin-1").lower(), value) for name, value in headers]
    dropped = _named_in_connection(given)
    passed: Headers = []
    for name, value in given:
        if name in HOP_BY_HOP | dropped | _NOT_FROM_APPS:
            continue
        if name == "set-cookie":
            passed += [(b"set-cookie", cookie) for cookie in _kept_below(value, place.prefix)]
        elif name in ("location", "content-location"):
            passed.append((name.encode(), _location(value.decode("latin-1"), place).encode("latin-1")))
        else:
            passed.append((name.encode("latin-1"), value))
    passed.append((b"content-security-policy", policy_of(place).encode()))
    if not any(name == b"x-frame-options" for name, _ in passed):
        passed.append((b"x-frame-options", b"SAMEORIGIN"))
    return passed


def policy_of(place: Place) -> str:
    """What pages of an app may reach on this origin: what lies below their own prefix, no windows, no top
    navigation by frames. It adds to a policy of the app's own."""
    below = f"{place.origin}{place.prefix}"
    sockets = below.replace("http", "ws", 1)
    rules = (
        "sandbox allow-scripts allow-same-origin allow-forms allow-modals allow-downloads",
        f"connect-src {below} {sockets} data: blob:",
        f"frame-src {below} data: blob:",
        f"worker-src {below} blob:",
        f"form-action {below}",
        f"base-uri {below}",
        f"frame-ancestors {below}",
    )
    return "; ".join(rules)


def cookie_of(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Our cookie's value, ``""`` for none."""
    for name, value in headers:
        if name.lower() == b"cookie":
            for cookie in value.decode("latin-1").split(";"):
                label, _, content = cookie.strip().partition("=")
                if label == COOKIE:
                    return content
    return ""


def _named_in_connection(given: Iterable[tuple[str, bytes]]) -> frozenset[str]:
    return frozenset(
        word.strip().lower()
        for name, value in given
        if name == "connection"
        for word in value.decode("latin-1").split(",")
    )


def _their_cookies(values: Iterable[bytes]) -> bytes:
    kept = [
        cookie.strip()
        for value in values
        for cookie in value.split(b";")
        if cookie.strip() and not cookie.strip().lower().decode("latin-1").startswith(OUR_COOKIES)
    ]
    return b"; ".join(kept)


def _kept_below(value: bytes, prefix: str) -> list[bytes]:
    """An app's cookie without a domain and with its path below the prefix; none with a name of ours."""
    first, *attributes = value.decode("latin-1").split(";")
    if first.strip().lower().startswith(OUR_COOKIES):
        return []
    path = prefix
    kept = []
    for attribute in attributes:
        label, _, content = attribute.strip().partition("=")
        if label.lower() == "path" and content.startswith(prefix):
            path = content
        elif label.lower() not in ("path", "domain"):
            kept.append(attribute.strip())
    return ["; ".join([first.strip(), *kept, f"Path={path}"]).encode("latin-1")]


def _location(value: str, place: Place) -> str:
    """A redirect on this origin stays below the prefix: elsewhere it would reach past the page's policy.

    Read as browsers do, who take ``\\`` for ``/``, pass over tabs, and know more ways to write a host than
    one; what is not surely another host counts as a path here.
    """
    text = value.strip().replace("\t", "").replace("\\", "/")
    try:
        parts = urlsplit(text)
        elsewhere = parts.scheme not in ("", "http", "https") or _is_other_host(parts, place)
    except ValueError:
        return place.prefix
    if elsewhere:
        return value
    segments = _DOT.sub(".", parts.path).split("/")
    if not parts.scheme and not parts.netloc and not text.startswith("/") and ".." not in segments:
        return text
    path = _without_dots(segments)
    if not path.startswith(place.prefix):
        path = place.prefix + path.lstrip("/")
    rest = f"?{parts.query}" if parts.query else ""
    return path + rest + (f"#{parts.fragment}" if parts.fragment else "")


def _is_other_host(parts: SplitResult, place: Place) -> bool:
    host = parts.hostname or ""
    own = urlsplit(place.origin)
    if _HOST.fullmatch(host) is None:
        return False
    if host not in (own.hostname, "localhost", "127.0.0.1"):
        return True
    port = parts.port or (443 if (parts.scheme or own.scheme) == "https" else 80)
    return port not in (place.port, own.port or (443 if own.scheme == "https" else 80))


def _without_dots(segments: list[str]) -> str:
    kept: list[str] = []
    for segment in segments:
        if segment == "..":
            del kept[-1:]
        elif segment != ".":
            kept.append(segment)
    return "/" + "/".join(kept).lstrip("/")
