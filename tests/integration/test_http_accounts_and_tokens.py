"""Registration, sign-in, tokens, teams and the wallet through the API."""

from __future__ import annotations

import pytest

from starverse.app import auth
from starverse.app.rate_limits import AttemptLimits
from starverse.http.app import make_app
from starverse.http.middleware import BODY_BYTES_MAX
from starverse.testing.http_sites import PASSWORD, PREFIX, Site


def test_a_new_account_has_its_team_its_wallet_and_the_signup_credit(site: Site) -> None:
    answer = site.client().post(
        f"{PREFIX}/accounts", json={"email": "  Wang.Li@Example.org ", "password": PASSWORD}
    )
    assert answer.status_code == 201
    made = answer.json()
    assert made["account"]["email"] == "wang.li@example.org"
    assert made["account"]["operator"] is False
    assert made["team"]["name"] == "wang-li"
    assert made["wallet"]["free"] == "10.00"
    assert made["wallet"]["credits"][0]["left_micro"] == 10_000_000
    assert made["wallet"]["cash_micro"] == 0
    assert made["wallet"]["runway_seconds"] is None


def test_two_people_with_the_same_local_part_get_different_teams(site: Site) -> None:
    assert site.register("wang@a.example").team == "wang"
    assert site.register("wang@b.example").team == "wang-2"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"email": "no-at-sign", "password": PASSWORD}, "email"),
        ({"email": "a@b@c", "password": PASSWORD}, "email"),
        ({"email": "王@example.org", "password": PASSWORD}, "email"),
        ({"email": "a@example.org", "password": "short"}, "password"),
        ({"email": "longer@example.org", "password": "longer@example.org"}, "password"),
        ({"email": "a@example.org"}, "password"),
        ({"email": "a@example.org", "password": PASSWORD, "admin": True}, "admin"),
    ],
)
def test_each_faulty_field_is_named(site: Site, body: dict[str, object], field: str) -> None:
    answer = site.client().post(f"{PREFIX}/accounts", json=body)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["code"] == "invalid"
    assert [fault["field"] for fault in problem["faults"]] == [field]
    assert PASSWORD not in answer.text


def test_an_address_registers_once(site: Site) -> None:
    site.register("wang@example.org")
    again = site.client().post(f"{PREFIX}/accounts", json={"email": "WANG@example.org", "password": PASSWORD})
    assert again.status_code == 409


def test_signing_in_and_out(site: Site) -> None:
    person = site.register()
    session = site.client().post(
        f"{PREFIX}/sessions", json={"email": person.email.upper(), "password": PASSWORD}
    )
    assert session.status_code == 201
    client = site.client(session.json()["token"])
    assert client.get(f"{PREFIX}/me").json()["account"]["email"] == person.email
    assert client.delete(f"{PREFIX}/sessions/current").status_code == 204
    ended = client.get(f"{PREFIX}/me")
    assert ended.status_code == 401
    assert ended.headers["www-authenticate"] == "Bearer"
    assert person.client.get(f"{PREFIX}/me").status_code == 200


def test_an_unknown_address_and_a_wrong_password_read_the_same(site: Site) -> None:
    site.register("wang@example.org")
    answers = [
        site.client().post(f"{PREFIX}/sessions", json={"email": email, "password": "not the password"})
        for email in ("wang@example.org", "nobody@example.org")
    ]
    known, unknown = ({**answer.json(), "request_id": ""} for answer in answers)
    assert known == unknown
    assert answers[0].status_code == answers[1].status_code == 401


def test_guessing_is_stopped_with_the_time_to_wait(site: Site) -> None:
    site.register("wang@example.org")
    app = make_app(site.platform, attempt_limits=AttemptLimits(failed_logins_per_mail_and_place=3))
    client = type(site.client())(app)
    bodies = [{"email": "wang@example.org", "password": "guess number one"}] * 3
    assert [client.post(f"{PREFIX}/sessions", json=body).status_code for body in bodies] == [401] * 3
    stopped = client.post(f"{PREFIX}/sessions", json={"email": "wang@example.org", "password": PASSWORD})
    assert stopped.status_code == 429
    assert int(stopped.headers["retry-after"]) == stopped.json()["retry_after_seconds"] > 0


def test_a_team_token_reaches_its_team_only(site: Site) -> None:
    person = site.register()
    person.post("/teams", {"name": "vision"})
    made = person.post("/tokens", {"name": "nightly", "team": "vision", "expires_in_days": 1})
    client = site.client(made["token"])
    assert client.get(f"{PREFIX}/wallet").json()["team"] == "vision"
    other = client.get(f"{PREFIX}/wallet", headers={"X-Starverse-Team": person.team})
    assert other.status_code == 404
    assert client.post(f"{PREFIX}/tokens", json={"name": "more"}).status_code == 403
    site.clock.advance(days=2)
    assert client.get(f"{PREFIX}/wallet").status_code == 401


def test_a_token_is_listed_without_its_secret_and_ends_when_deleted(site: Site) -> None:
    person = site.register()
    made = person.post("/tokens", {"name": "nightly"})
    listed = person.get("/tokens")["items"]
    assert made["token"] not in str(listed)
    assert {token["name"] for token in listed} == {"nightly", "session"}
    assert person.client.delete(f"{PREFIX}/tokens/{made['id']}").status_code == 204
    assert site.client(made["token"]).get(f"{PREFIX}/me").status_code == 401
    assert person.client.delete(f"{PREFIX}/tokens/{made['id']}").status_code == 404


def test_the_team_header_chooses_among_own_teams_only(site: Site) -> None:
    one, two = site.register("one@example.org"), site.register("two@example.org")
    one.post("/teams", {"name": "vision"})
    header = {"X-Starverse-Team": "vision"}
    assert one.get("/wallet", headers=header)["team"] == "vision"
    assert two.client.get(f"{PREFIX}/wallet", headers=header).status_code == 404
    one.post("/teams/vision/members", {"email": "two@example.org"})
    assert two.get("/wallet", headers=header)["team"] == "vision"
    assert two.client.delete(f"{PREFIX}/teams/vision/members/two@example.org").status_code == 204
    assert two.client.get(f"{PREFIX}/wallet", headers=header).status_code == 404


def test_a_team_keeps_an_owner(site: Site) -> None:
    person = site.register()
    person.post("/teams", {"name": "vision"})
    kept = person.client.delete(f"{PREFIX}/teams/vision/members/{person.email}")
    assert kept.status_code == 409
    assert person.get("/teams/vision")["members"] == [{"email": person.email, "role": "owner"}]


def test_a_repeated_key_makes_one_team_and_another_request_with_it_is_refused(site: Site) -> None:
    person = site.register()
    key = {"Idempotency-Key": "k1"}
    first = person.post("/teams", {"name": "vision"}, headers=key)
    assert person.post("/teams", {"name": "vision"}, headers=key) == first
    assert person.client.post(f"{PREFIX}/teams", json={"name": "audio"}, headers=key).status_code == 409
    assert [team["name"] for team in person.get("/teams")["items"]] == [person.team, "vision"]


def test_the_operator_is_made_once_and_a_lost_token_is_replaced(site: Site) -> None:
    first = auth.ensure_operator(site.platform)
    assert auth.ensure_operator(site.platform) == first
    path = site.platform.settings.data / auth.OPERATOR_TOKEN_FILE
    assert path.stat().st_mode & 0o777 == 0o600
    path.unlink()
    second = auth.ensure_operator(site.platform)
    assert second != first
    assert auth.identify(site.platform, second).operator


def test_health_ids_and_headers(site: Site) -> None:
    client = site.client()
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").json() == {"status": "ok", "reasons": []}
    answer = client.get("/healthz", headers={"X-Request-Id": "mine-1"})
    assert answer.headers["x-request-id"] == "mine-1"
    assert answer.headers["x-content-type-options"] == "nosniff"
    missing = client.get(f"{PREFIX}/nothing-here")
    assert missing.status_code == 404
    assert missing.json()["request_id"] == missing.headers["x-request-id"]
    assert "starverse_http_requests_total" in client.get("/metrics").text


def test_a_body_over_the_limit_is_refused(site: Site) -> None:
    big = {"email": "a@example.org", "password": "x" * BODY_BYTES_MAX}
    answer = site.client().post(f"{PREFIX}/accounts", json=big)
    assert answer.status_code == 413
    assert answer.json()["code"] == "too_large"
