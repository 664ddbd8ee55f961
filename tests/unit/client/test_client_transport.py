"""The client over a real connection: repeats, keys, problem documents, pages, Unix sockets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from starverse.client.api import Client
from starverse.client.errors import ClientError, NotReachable, Refused
from starverse.client.settings import Settings
from starverse.client.transport import REPEAT_PAUSES_SECONDS, UNANSWERED_PAUSES_SECONDS
from starverse.testing.fake_api import BREAK, FakeApi, Reply


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with FakeApi() as fake:
        yield fake


def client_of(api: FakeApi, waited: list[float] | None = None, **settings: str) -> Client:
    record = [] if waited is None else waited
    return Client(Settings(api.url, settings.get("token"), settings.get("team")), pause=record.append)


def test_a_request_carries_the_token_the_team_and_what_we_are(api: FakeApi) -> None:
    api.on("GET", "/wallet", {"team": "lab"})
    with client_of(api, token="secret", team="lab") as client:
        assert client.money.wallet()["team"] == "lab"
    headers = api.seen[0].headers
    assert headers["authorization"] == "Bearer secret"
    assert headers["x-starverse-team"] == "lab"
    assert headers["user-agent"].startswith("starverse/")


def test_a_team_with_a_chinese_name_goes_percent_encoded(api: FakeApi) -> None:
    api.on("GET", "/wallet", {"team": "实验室"})
    with client_of(api, team="实验室") as client:
        client.money.wallet()
    assert api.seen[0].headers["x-starverse-team"] == "%E5%AE%9E%E9%AA%8C%E5%AE%A4"


def test_a_create_whose_answer_is_lost_is_repeated_with_the_same_key(api: FakeApi) -> None:
    api.on("POST", "/topups", BREAK, BREAK, Reply(201, {"id": "t1"}))
    waited: list[float] = []
    with client_of(api, waited) as client:
        assert client.money.top_up("50")["id"] == "t1"
    keys = [seen.headers["idempotency-key"] for seen in api.requests("POST", "/topups")]
    assert len(keys) == 3
    assert len(set(keys)) == 1
    assert waited == list(REPEAT_PAUSES_SECONDS[:2])


def test_an_action_without_a_key_whose_answer_is_lost_is_not_repeated(api: FakeApi) -> None:
    api.on("POST", "/jobs/7:cancel", BREAK)
    with client_of(api) as client, pytest.raises(NotReachable):
        client.jobs.cancel("7")
    assert len(api.seen) == 1


def test_an_error_answer_is_not_repeated(api: FakeApi) -> None:
    api.on("GET", "/wallet", Reply(503, {"code": "unavailable", "detail": "starting"}))
    with client_of(api) as client, pytest.raises(ClientError, match="starting"):
        client.money.wallet()
    assert len(api.seen) == 1


def test_repeats_end_when_nobody_listens(tmp_path: Path) -> None:
    waited: list[float] = []
    with (
        Client(Settings(f"unix:{tmp_path}/none.sock"), pause=waited.append) as client,
        pytest.raises(NotReachable) as caught,
    ):
        client.money.wallet()
    assert waited == list(REPEAT_PAUSES_SECONDS)
    assert caught.value.code == "unavailable"
    assert "starverse up" in (caught.value.hint or "")


def test_a_create_that_was_sent_waits_longer_for_its_answer(api: FakeApi) -> None:
    """The server may have it: it is killed, started again, and then says so to the same key."""
    api.on("POST", "/teams", *[BREAK] * 6, Reply(201, {"name": "lab"}))
    waited: list[float] = []
    with client_of(api, waited) as client:
        client.people.create_team("lab")
    keys = {
        seen.headers.get("Idempotency-Key") or seen.headers["idempotency-key"]
        for seen in api.requests("POST", "/teams")
    }
    assert len(keys) == 1
    assert waited == list(UNANSWERED_PAUSES_SECONDS[:6])


def test_an_answer_without_words_to_somebody_unknown_says_how_to_sign_in(api: FakeApi) -> None:
    api.on("GET", "/wallet", Reply(401))
    with client_of(api) as client, pytest.raises(ClientError, match="starverse login") as caught:
        client.money.wallet()
    assert caught.value.code == "unauthenticated"


def test_a_problem_document_becomes_an_error_with_every_field(api: FakeApi) -> None:
    problem = {
        "code": "invalid",
        "detail": "two things are wrong",
        "hint": "mend both",
        "request_id": "r-1",
        "faults": [{"field": "--time", "value": "x", "expected": "minutes"}],
        "retry_after_seconds": 7,
    }
    api.on("GET", "/jobs/7", Reply(422, problem))
    with client_of(api) as client, pytest.raises(ClientError) as caught:
        client.jobs.get("7")
    error = caught.value
    assert (error.code, error.detail, error.hint) == ("invalid", "two things are wrong", "mend both")
    assert (error.status, error.request_id, error.retry_after_seconds) == (422, "r-1", 7)
    assert str(error.faults[0]) == "--time: 'x'; expected minutes"


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (401, "unauthenticated"),
        (402, "not_enough_money"),
        (404, "not_found"),
        (409, "conflict"),
        (413, "too_large"),
        (429, "limit_exceeded"),
        (507, "no_capacity"),
        (500, "internal"),
    ],
)
def test_an_answer_that_is_no_problem_document_still_has_a_code(api: FakeApi, status: int, code: str) -> None:
    reply = Reply(status, b"<html>proxy</html>", {"Retry-After": "3", "X-Request-Id": "r-2"})
    api.on("GET", "/me", reply)
    with client_of(api) as client, pytest.raises(ClientError) as caught:
        client.people.me()
    assert (caught.value.code, caught.value.retry_after_seconds) == (code, 3)
    assert caught.value.request_id == "r-2"


def test_something_else_at_the_address_is_told_apart(api: FakeApi) -> None:
    api.on("GET", "/me", Reply(200, b"hello"))
    with client_of(api) as client, pytest.raises(ClientError, match="does not speak the starverse API"):
        client.people.me()


def test_lists_are_read_page_after_page(api: FakeApi) -> None:
    api.on(
        "GET",
        "/teams",
        {"items": [{"name": "a"}], "next_cursor": "c1"},
        {"items": [{"name": "b"}], "next_cursor": None},
    )
    with client_of(api) as client:
        assert [team["name"] for team in client.people.teams()] == ["a", "b"]
    assert [seen.query.get("cursor") for seen in api.seen] == [None, ["c1"]]


def test_names_are_quoted_in_paths(api: FakeApi) -> None:
    api.on("GET", "/teams/a%2Fb%20%E7%BB%84", {"name": "a/b 组"})
    with client_of(api) as client:
        assert client.people.team("a/b 组")["name"] == "a/b 组"


def test_the_api_of_a_sandbox_is_a_unix_socket(tmp_path: Path) -> None:
    with FakeApi(tmp_path / "api.sock") as api, client_of(api, token="inner") as client:
        api.on("GET", "/me", {"scope": "workload"})
        assert client.people.me()["scope"] == "workload"
        assert api.seen[0].headers["authorization"] == "Bearer inner"


def test_text_that_is_not_utf8_is_refused_before_it_is_sent(api: FakeApi) -> None:
    with client_of(api) as client, pytest.raises(Refused, match=r"\\xff"):
        client.people.create_team("bad\udcff")
    assert api.seen == []


def test_a_token_with_a_line_break_inside_is_refused() -> None:
    with pytest.raises(Refused, match="not plain text"):
        Client(Settings("http://127.0.0.1:1", "two\nlines"))


def test_a_price_book_is_sent_as_yaml(api: FakeApi) -> None:
    api.on("POST", "/admin/price-books", Reply(201, {"id": "b"}))
    with client_of(api) as client:
        client.admin.set_price_book("标题: x\n")
    seen = api.seen[0]
    assert seen.headers["content-type"].startswith("text/yaml")
    assert seen.body.decode() == "标题: x\n"
