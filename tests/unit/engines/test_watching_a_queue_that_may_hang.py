"""The watch of the queue: news, back-off, waiting for a fresh look; tokens are renewed in time."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from starverse.engines.slurm.back_off import SECONDS_MAX, pause_seconds
from starverse.engines.slurm.facts import SlurmJob, SlurmUnavailable
from starverse.engines.slurm.tokens import Tokens, mint
from starverse.engines.slurm.watch import QueueWatch


class Queue:
    """A Slurm whose answers are told; counts how often it was asked."""

    def __init__(self) -> None:
        self.jobs: tuple[SlurmJob, ...] = ()
        self.broken = False
        self.asked = 0
        self.hang = threading.Event()
        self.hang.set()

    def load(self) -> tuple[SlurmJob, ...]:
        self.asked += 1
        self.hang.wait(10)
        if self.broken:
            raise SlurmUnavailable("it is away")
        return self.jobs


def job(name: str, state: str = "RUNNING") -> SlurmJob:
    return SlurmJob("1", name, frozenset({state}))


@pytest.fixture
def queue() -> Queue:
    return Queue()


@pytest.fixture
def news() -> list[int]:
    return []


@pytest.fixture
def watch(queue: Queue, news: list[int]) -> Iterator[QueueWatch]:
    watch = QueueWatch(queue.load, lambda: news.append(1), poll_seconds=0.1)
    watch.start()
    yield watch
    queue.hang.set()
    watch.close()


def test_a_fresh_look_is_one_that_began_after_the_question(queue: Queue, watch: QueueWatch) -> None:
    queue.jobs = (job("a-1"),)
    asked_at = time.monotonic()
    snapshot = watch.look_after(asked_at, 5)
    assert snapshot.begun >= asked_at
    assert set(snapshot.jobs) == {"a-1"}


def test_news_come_when_the_queue_changes_and_not_else(
    queue: Queue, watch: QueueWatch, news: list[int]
) -> None:
    watch.look_after(time.monotonic(), 5)
    before = len(news)
    watch.look_after(time.monotonic(), 5)
    assert len(news) == before
    queue.jobs = (job("a-1"),)
    watch.look_after(time.monotonic(), 5)
    queue.jobs = (job("a-1", "COMPLETING"),)
    watch.look_after(time.monotonic(), 5)
    watch.look_after(time.monotonic(), 5)
    assert len(news) == before + 2


def test_a_slurm_that_is_away_is_asked_less_often_and_says_why(queue: Queue, watch: QueueWatch) -> None:
    watch.look_after(time.monotonic(), 5)
    queue.broken = True
    with pytest.raises(SlurmUnavailable, match="it is away"):
        watch.look_after(time.monotonic(), 5)
    asked = queue.asked
    began = time.monotonic()
    while time.monotonic() < began + 1.0:
        watch.nudge()
        with pytest.raises(SlurmUnavailable):
            watch.look_after(time.monotonic(), 0.05)
    assert queue.asked - asked <= 3
    assert watch.trouble == "it is away"
    queue.broken = False
    while watch.trouble:
        assert time.monotonic() < began + 20
    assert watch.newest(60) is not None


def test_a_night_without_slurm_ends_with_the_next_answer() -> None:
    pauses = [pause_seconds(0.1, failures) for failures in (1, 5, 1_023, 1_024, 10**6)]
    assert pauses == [0.2, 3.2, SECONDS_MAX, SECONDS_MAX, SECONDS_MAX]


def test_an_answer_that_nobody_expected_ends_no_watch(queue: Queue, watch: QueueWatch) -> None:
    watch.look_after(time.monotonic(), 5)
    queue.jobs = (None,)  # type: ignore[assignment]
    with pytest.raises(SlurmUnavailable):
        watch.look_after(time.monotonic(), 5)
    queue.jobs = (job("a-1"),)
    began = time.monotonic()
    while watch.trouble:
        assert time.monotonic() < began + 20
    assert watch.newest(60) is not None


def test_a_slurm_that_hangs_holds_up_nobody(queue: Queue, watch: QueueWatch) -> None:
    watch.look_after(time.monotonic(), 5)
    queue.hang.clear()
    began = time.monotonic()
    with pytest.raises(SlurmUnavailable, match="no news of Slurm"):
        watch.look_after(time.monotonic(), 0.2)
    assert watch.newest(60) is not None
    assert time.monotonic() - began < 2


def test_old_news_are_no_news(queue: Queue, watch: QueueWatch) -> None:
    watch.look_after(time.monotonic(), 5)
    queue.hang.clear()
    began = time.monotonic()
    while watch.newest(0.2) is not None:
        assert time.monotonic() < began + 5
    assert watch.newest(60) is not None


def test_a_token_names_its_user_and_is_signed_with_the_key() -> None:
    head, body, signature = mint(b"secret", "ann", 1000, 60).split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    assert claims == {"iat": 1000, "exp": 1060, "sun": "ann"}
    expected = hmac.new(b"secret", f"{head}.{body}".encode(), hashlib.sha256).digest()
    assert base64.urlsafe_b64decode(signature + "==") == expected


def test_a_token_is_renewed_before_it_runs_out(tmp_path: Path) -> None:
    key = tmp_path / "jwt.key"
    key.write_bytes(b"secret")
    now = [1000.0]
    tokens = Tokens(key, "ann", life_seconds=900, now=lambda: now[0])
    first = tokens.current()
    now[0] += 300
    assert tokens.current() == first
    now[0] += 400
    second = tokens.current()
    assert second != first
    key.write_bytes(b"another")
    assert tokens.current() == second
    tokens.renew()
    assert tokens.current() != second
    key.unlink()
    tokens.renew()
    with pytest.raises(SlurmUnavailable, match="cannot be read"):
        tokens.current()
