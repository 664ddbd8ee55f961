"""Following a log across cut streams, restarts and refusals."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from starverse.client.api import Client
from starverse.client.errors import ClientError
from starverse.client.follow import parse_events
from starverse.client.jobs import LOG_PIECE_BYTES
from starverse.client.settings import Settings
from starverse.client.waiting import GIVE_UP_SECONDS
from starverse.testing.fake_api import BREAK, FakeApi, Reply, sse

FOLLOW = "/jobs/7/logs:follow"
STREAM = {"Content-Type": "text/event-stream"}


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with FakeApi() as fake:
        yield fake


def text_of(api: FakeApi, waited: list[float] | None = None) -> str:
    with Client(Settings(api.url), pause=([] if waited is None else waited).append) as client:
        return "".join(
            event.data.get("text", "") for event in client.jobs.follow_log("7") if event.kind == "log"
        )


def test_events_are_read_whatever_way_the_bytes_are_cut() -> None:
    raw = sse(("log", "1:0", {"text": "步骤 1\u2028ok\n"}), ("end", "1:9", {"state": "succeeded"}))
    raw = b": keep-alive\n\n" + raw.replace(b"\n", b"\r\n")
    for size in (1, 2, 7, len(raw)):
        pieces = [raw[at : at + size] for at in range(0, len(raw), size)]
        events = list(parse_events(pieces))
        assert [(event.kind, event.id) for event in events] == [("log", "1:0"), ("end", "1:9")], size
        assert events[0].data == {"text": "步骤 1\u2028ok\n"}, size


def test_an_event_that_the_end_of_the_stream_cuts_off_is_not_shown() -> None:
    assert list(parse_events([b'id: 1:0\ndata: {"text": "half'])) == []


def test_a_stream_that_ends_without_the_jobs_end_is_taken_up_where_it_stopped(api: FakeApi) -> None:
    api.on(
        "GET",
        FOLLOW,
        Reply(200, sse(("log", "1:0", {"text": "a\n"})), STREAM),
        Reply(200, sse(("log", "1:2", {"text": "b\n"}), ("end", "1:4", {"state": "succeeded"})), STREAM),
    )
    assert text_of(api) == "a\nb\n"
    assert [seen.headers.get("last-event-id") for seen in api.seen] == [None, "1:0"]


def test_following_survives_a_broken_connection_and_a_restarting_server(api: FakeApi) -> None:
    api.on(
        "GET",
        FOLLOW,
        Reply(200, sse(("log", "1:0", {"text": "a\n"})), STREAM, cut=True),
        BREAK,
        Reply(503, {"code": "unavailable", "detail": "starting"}),
        Reply(200, sse(("log", "2:0", {"text": "b\n"}), ("end", "2:2", {"state": "failed"})), STREAM),
    )
    assert text_of(api) == "a\nb\n"
    assert api.seen[-1].headers["last-event-id"] == "1:0"


def test_a_refusal_ends_it(api: FakeApi) -> None:
    api.on("GET", FOLLOW, Reply(404, {"code": "not_found", "detail": "no such job"}))
    with pytest.raises(ClientError, match="no such job"):
        text_of(api)
    assert len(api.seen) == 1


def test_a_server_that_stays_away_is_given_up_with_its_error(api: FakeApi) -> None:
    api.on("GET", FOLLOW, Reply(503, {"code": "unavailable", "detail": "still starting"}))
    waited: list[float] = []
    with pytest.raises(ClientError, match="still starting"):
        text_of(api, waited)
    assert GIVE_UP_SECONDS <= sum(waited) < GIVE_UP_SECONDS + 10


def page(attempt: int, offset: int, text: str) -> dict[str, object]:
    following = offset + len(text)
    return {"attempt": attempt, "attempts": 2, "offset": offset, "next_offset": following, "text": text}


def test_the_log_of_all_runs_is_read_piece_by_piece(api: FakeApi) -> None:
    full, nearly = "a" * LOG_PIECE_BYTES, "b" * (LOG_PIECE_BYTES - 3)
    newest = page(2, 0, "de")
    read = len(full) + len(nearly)
    api.on(
        "GET", "/jobs/7/logs", newest, page(1, 0, full), page(1, len(full), nearly), page(1, read, ""), newest
    )
    with Client(Settings(api.url)) as client:
        assert "".join(client.jobs.log_text("7")) == full + nearly + "de"
    asked = [(seen.query.get("attempt"), seen.query["offset"]) for seen in api.seen[1:]]
    assert asked == [(["1"], ["0"]), (["1"], [str(len(full))]), (["1"], [str(read)]), (["2"], ["0"])]
    assert {seen.query["limit"][0] for seen in api.seen} == {str(LOG_PIECE_BYTES)}


def test_a_log_that_grows_while_it_is_read_is_not_followed(api: FakeApi) -> None:
    api.on("GET", "/jobs/7/logs", page(1, 0, "ab"), page(1, 0, "abc"), page(1, 3, "d"))
    with Client(Settings(api.url)) as client:
        assert "".join(client.jobs.log_text("7")) == "abc"
    assert len(api.seen) == 2


def test_a_log_whose_oldest_part_is_gone_is_read_to_its_end(api: FakeApi) -> None:
    text = "x" * LOG_PIECE_BYTES
    holed = page(1, 0, "") | {"gap": {"start": 0, "end": 5000}, "text": text, "next_offset": 5000 + len(text)}
    api.on("GET", "/jobs/7/logs", holed, holed, page(1, 5000 + len(text), "end"))
    with Client(Settings(api.url)) as client:
        assert "".join(client.jobs.log_text("7")) == text + "end"


def test_a_job_that_never_ran_has_an_empty_log(api: FakeApi) -> None:
    api.on("GET", "/jobs/7/logs", page(0, 0, ""))
    with Client(Settings(api.url)) as client:
        assert list(client.jobs.log_text("7")) == []


def test_following_can_begin_with_a_run(api: FakeApi) -> None:
    api.on("GET", FOLLOW, Reply(200, sse(("end", "2:0", {"state": "succeeded"})), STREAM))
    with Client(Settings(api.url)) as client:
        list(client.jobs.follow_log("7", attempt=2))
    assert api.seen[0].query["attempt"] == ["2"]


def test_waiting_asks_until_the_job_has_ended_and_survives_a_restart(api: FakeApi) -> None:
    running = {"number": "7", "state": "running"}
    ended = {"number": "7", "state": "succeeded", "exit_code": 0}
    api.on("GET", "/jobs/7", running, BREAK, BREAK, BREAK, BREAK, running, ended)
    waited: list[float] = []
    with Client(Settings(api.url), pause=waited.append) as client:
        assert client.jobs.wait("7")["state"] == "succeeded"
    assert len(api.seen) == 7
