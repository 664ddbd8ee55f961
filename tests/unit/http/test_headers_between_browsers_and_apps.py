"""Which headers pass between a browser and an app inside, and how they are changed."""

from __future__ import annotations

import pytest

from starverse.http.app_proxy.headers import Headers, Place, cookie_of, inbound, outbound, policy_of

PREFIX = "/apps/0197f3a0-0000-7000-8000-000000000000/6006/"
PLACE = Place("https://gpu.example", PREFIX, 6006, "10.0.0.7", whole_path=False, authorization="")


def named(headers: Headers, name: str) -> list[str]:
    return [value.decode() for label, value in headers if label == name.encode()]


def test_our_tokens_and_cookies_stay_outside() -> None:
    given = [
        (b"Authorization", b"Bearer sv_secret"),
        (b"Cookie", b"sv_app=ours; theirs=1; starverse_session=ours; __Host-x=ours"),
        (b"X-Starverse-Team", b"wang"),
        (b"Referer", b"https://gpu.example/apps/x?starverse-link=ticket"),
    ]
    passed = inbound(given, PLACE)
    assert named(passed, "cookie") == ["theirs=1"]
    assert not any(
        b"secret" in value or b"ours" in value or b"ticket" in value or b"wang" in value
        for _, value in passed
    )


def test_an_app_is_told_what_it_asks_for_and_where_it_is_shown() -> None:
    place = Place("https://gpu.example", PREFIX, 8888, "10.0.0.7", whole_path=True, authorization="token t")
    given = [
        (b"Host", b"gpu.example"),
        (b"Origin", b"https://gpu.example"),
        (b"X-Forwarded-For", b"1.2.3.4"),
        (b"Forwarded", b"for=1.2.3.4"),
    ]
    passed = inbound(given, place)
    assert named(passed, "host") == ["127.0.0.1:8888"]
    assert named(passed, "origin") == ["http://127.0.0.1:8888"]
    assert named(passed, "authorization") == ["token t"]
    assert named(passed, "x-forwarded-for") == ["10.0.0.7"], "what the browser claims is not passed on"
    assert named(passed, "x-forwarded-host") == ["gpu.example"]
    assert named(passed, "x-forwarded-proto") == ["https"]
    assert named(passed, "x-forwarded-prefix") == [PREFIX.rstrip("/")]
    assert not named(passed, "forwarded")
    assert place.path_inside(f"{PREFIX}lab") == f"{PREFIX}lab"
    assert PLACE.path_inside(f"{PREFIX}a%2Fb") == "/a%2Fb"


def test_what_is_for_one_hop_goes_no_further() -> None:
    given = [
        (b"Connection", b"keep-alive, X-Mine"),
        (b"Keep-Alive", b"timeout=5"),
        (b"X-Mine", b"1"),
        (b"TE", b"trailers"),
        (b"Upgrade", b"h2c"),
        (b"Transfer-Encoding", b"chunked"),
        (b"Proxy-Authorization", b"x"),
        (b"Accept", b"*/*"),
    ]
    ours = {name for name, _ in inbound([], PLACE)}
    assert [pair for pair in inbound(given, PLACE) if pair[0] not in ours] == [(b"accept", b"*/*")]
    always = {name for name, _ in outbound([], PLACE)}
    assert [pair for pair in outbound(given, PLACE) if pair[0] not in always] == [(b"accept", b"*/*")]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("a=1", [f"a=1; Path={PREFIX}"]),
        ("a=1; Path=/; Domain=gpu.example; HttpOnly", [f"a=1; HttpOnly; Path={PREFIX}"]),
        (f"a=1; path={PREFIX}deep; Secure", [f"a=1; Secure; Path={PREFIX}deep"]),
        ("a=1; Path=/apps/other/1/", [f"a=1; Path={PREFIX}"]),
        ("sv_app=stolen; Path=/", []),
        ("Starverse_session=stolen", []),
        ("__Host-session=stolen; Path=/", []),
    ],
)
def test_an_app_s_cookies_stay_below_its_prefix(given: str, kept: list[str]) -> None:
    assert named(outbound([(b"Set-Cookie", given.encode())], PLACE), "set-cookie") == kept


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("/lab?x=1#y", f"{PREFIX}lab?x=1#y"),
        (f"{PREFIX}lab", f"{PREFIX}lab"),
        ("http://127.0.0.1:6006/lab", f"{PREFIX}lab"),
        ("http://localhost:6006", PREFIX),
        ("https://gpu.example/api/v1/me", f"{PREFIX}api/v1/me"),
        ("//gpu.example/api/v1/me", f"{PREFIX}api/v1/me"),
        ("/\\gpu.example/api", f"{PREFIX}api"),
        ("/api/v1/me", f"{PREFIX}api/v1/me"),
        ("relative/x", "relative/x"),
        ("https://elsewhere.example/x", "https://elsewhere.example/x"),
        (f"{PREFIX}../../../api/v1/me", f"{PREFIX}api/v1/me"),
        ("../../../api/v1/me", f"{PREFIX}api/v1/me"),
        ("%2e%2E/%2e%2e/%2e./api/v1/me", f"{PREFIX}api/v1/me"),
        ("https:/api/v1/me", f"{PREFIX}api/v1/me"),
        ("https:api/v1/me", f"{PREFIX}api/v1/me"),
        ("https://x@GPU.example:443/api/v1/me", f"{PREFIX}api/v1/me"),
        ("\\/gpu.example/api/v1/me", f"{PREFIX}api/v1/me"),
        ("/\t/gpu.example/api/v1/me", f"{PREFIX}api/v1/me"),
        ("http://2130706433:6006/x", f"{PREFIX}x"),
        ("https://[::1]:6006/x", f"{PREFIX}x"),
        ("https://[/x", PREFIX),
    ],
)
def test_redirects_on_this_origin_stay_below_the_prefix(given: str, shown: str) -> None:
    assert named(outbound([(b"Location", given.encode())], PLACE), "location") == [shown]


def test_pages_of_apps_reach_nothing_else_on_this_origin() -> None:
    rules = dict(rule.split(" ", 1) for rule in policy_of(PLACE).split("; "))
    assert rules["connect-src"] == f"https://gpu.example{PREFIX} wss://gpu.example{PREFIX} data: blob:"
    for name in ("frame-src", "form-action", "base-uri", "worker-src"):
        assert rules[name].startswith(f"https://gpu.example{PREFIX}")
    assert "allow-popups" not in rules["sandbox"]
    assert "allow-top-navigation" not in rules["sandbox"]
    own = b"default-src 'self'"
    passed = outbound([(b"Content-Security-Policy", own), (b"Service-Worker-Allowed", b"/")], PLACE)
    assert named(passed, "content-security-policy") == [own.decode(), policy_of(PLACE)], "both hold"
    assert not named(passed, "service-worker-allowed")


def test_our_cookie_is_found_among_others() -> None:
    assert cookie_of([(b"cookie", b"a=1; sv_app=gAAA=; b=2")]) == "gAAA="
    assert cookie_of([(b"cookie", b"xsv_app=1")]) == ""
