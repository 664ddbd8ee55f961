"""What servers have in a data folder that they share: a folder each, and names that lead to a living one."""

from __future__ import annotations

from pathlib import Path

import pytest

from starverse.app.run_folder import RunFolder
from starverse.domain.errors import Conflict
from starverse.testing.in_time import wait_for


def test_one_server_has_the_usual_names_and_leaves_nothing(tmp_path: Path) -> None:
    with RunFolder(tmp_path, "server-aaaaaaaaaaaa", alone=True) as run:
        run.api_socket.write_text("listens")
        run.announce("http://one")
        assert (tmp_path / "api-url").read_text() == "http://one\n"
        assert (tmp_path / "api.sock").read_text() == "listens"
    assert not [name for name in ("api-url", "api.sock", "channel.sock") if (tmp_path / name).is_symlink()]
    assert not run.path.exists()


@pytest.mark.parametrize(("first", "second"), [(True, True), (True, False), (False, True)])
def test_a_folder_that_one_has_alone_is_no_others(tmp_path: Path, first: bool, second: bool) -> None:
    said = "another starverse server is running"
    late = RunFolder(tmp_path, "server-bbbbbbbbbbbb", alone=second)
    with RunFolder(tmp_path, "server-aaaaaaaaaaaa", alone=first), pytest.raises(Conflict, match=said):
        late.enter()


def test_when_the_first_one_ends_the_names_lead_to_the_next(tmp_path: Path) -> None:
    first, second = (RunFolder(tmp_path, f"server-{name * 12}", alone=False) for name in "ab")
    first.enter()
    second.enter()
    first.announce("http://first")
    second.announce("http://second")
    assert (tmp_path / "api-url").read_text() == "http://first\n"
    first.leave()
    wait_for(lambda: (tmp_path / "api-url").is_file(), "the next first one", 10)
    assert (tmp_path / "api-url").read_text() == "http://second\n"
    second.leave()


def test_the_folder_of_a_dead_server_goes_and_that_of_a_living_one_stays(tmp_path: Path) -> None:
    dead = tmp_path / "servers" / "cccccccccccc"
    dead.mkdir(parents=True)
    (dead / "lock").write_text("")
    (dead / "api.sock").write_text("")
    with RunFolder(tmp_path, "server-aaaaaaaaaaaa", alone=False) as living:
        assert not dead.exists()
        with RunFolder(tmp_path, "server-bbbbbbbbbbbb", alone=False):
            assert living.path.exists()
