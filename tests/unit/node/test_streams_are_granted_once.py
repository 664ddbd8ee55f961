"""Wishes for connections: who waits for one gets it, nobody else; none outlives whoever had it."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from starverse.engines.base import EngineUnavailable
from starverse.node.streams import StreamDesk, StreamWish, read_relayed, relay_text, with_addresses

WISH = StreamWish("abc", "ssh", "/data/with space/channel.sock,10.0.0.1:8002")


def test_a_wish_is_a_line_and_other_lines_are_none() -> None:
    assert StreamWish.from_line(WISH.to_line()) == WISH
    assert StreamWish.from_line(b'{"funded_until": null, "stop": false}') is None
    for damaged in (
        b'{"stream": 1}',
        b'{"stream": {"id": 7, "kind": "ssh"}}',
        b'{"stream": {"id": "x"',
        b'{"stream"}',
    ):
        with pytest.raises(ValueError):
            StreamWish.from_line(damaged)


def test_a_wish_travels_between_servers_as_one_word() -> None:
    word = relay_text("a-1", WISH)
    assert word.split() == [word]
    assert read_relayed(word) == ("a-1", WISH)
    for other in ("observe", "stream/", "stream/a-1", "stream/a-1/nonsense", ""):
        assert read_relayed(other) is None


def ask(
    desk: StreamDesk, told: list[StreamWish], seconds: float = 20
) -> tuple[threading.Thread, list[object]]:
    answers: list[object] = []

    def wait() -> None:
        try:
            answers.append(desk.ask("a-1", "ssh", lambda _id, wish: told.append(wish), seconds))
        except EngineUnavailable as error:
            answers.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    while not told and thread.is_alive():
        time.sleep(0.001)
    return thread, answers


def test_who_asked_gets_the_connection_and_no_second_one_is_taken() -> None:
    desk, told = StreamDesk(), []  # type: tuple[StreamDesk, list[StreamWish]]
    thread, answers = ask(desk, told)
    (wish,) = told
    assert desk.asked() == {"a-1"}
    assert desk.is_wanted("a-1", wish.id)
    assert not desk.is_wanted("a-2", wish.id), "of another allocation"
    assert not desk.is_wanted("a-1", "guessed")
    left, right = socket.socketpair()
    with left, right:
        assert desk.deliver(wish.id, left)
        thread.join()
        assert answers == [left]
        assert not desk.deliver(wish.id, right)
    assert desk.asked() == set()


def test_each_connection_of_a_launcher_is_told_once() -> None:
    desk, told = StreamDesk(), []  # type: tuple[StreamDesk, list[StreamWish]]
    thread, answers = ask(desk, told, seconds=1)
    first, second = object(), object()
    assert desk.untold("a-1", first) == told
    desk.note_told(told[0], first)
    assert desk.untold("a-1", first) == []
    assert desk.untold("a-1", second) == told, "another connection has not heard of it"
    assert desk.untold("a-2", first) == []
    thread.join()
    assert isinstance(answers[0], EngineUnavailable)
    assert desk.asked() == set(), "nothing is kept of it"


def test_the_wish_of_another_server_is_told_and_never_granted_here() -> None:
    desk = StreamDesk()
    desk.pass_on("a-1", WISH)
    desk.pass_on("a-1", WISH)
    assert desk.untold("a-1", object()) == [WISH]
    assert not desk.is_wanted("a-1", WISH.id)
    assert with_addresses(WISH, "") == StreamWish("abc", "ssh")
