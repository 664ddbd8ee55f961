"""Settings: file < environment < flags, each with its origin; everything wrong is named at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from starverse.config import load
from starverse.domain.errors import Invalid


def write(folder: Path, text: str) -> Path:
    file = folder / "starverse.toml"
    file.write_text(text, "utf-8")
    return file


def test_flags_win_over_the_environment_which_wins_over_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, "[server]\nport = 1\nhost = '127.0.0.2'\n[policy]\ngrace_seconds = 7\n")
    environment = {"STARVERSE_SERVER__PORT": "2", "STARVERSE_SERVER__HOST": "127.0.0.3"}
    loaded = load(file, environment, {"server.port": 3, "server.data": None})

    assert (loaded.config.server.port, loaded.config.server.host) == (3, "127.0.0.3")
    assert loaded.config.policy.grace_seconds == 7
    assert loaded.origins["server.port"] == "command line"
    assert loaded.origins["server.host"] == "STARVERSE_SERVER__HOST"
    assert loaded.origins["policy.grace_seconds"] == str(file)
    assert loaded.origins["engine.driver"] == "default"


def test_variables_that_are_not_settings_are_left_alone() -> None:
    others = {"STARVERSE_TOKEN": "secret", "STARVERSE_API": "http://x", "OTHER__PORT": "1"}
    assert load(None, others) == load(None, {})


@pytest.mark.parametrize(
    ("text", "variable", "named"),
    [
        ("[server]\nprot = 1\n", {}, ["server.prot"]),
        ("[sever]\nport = 1\n", {}, ["sever.port"]),
        ("port = 1\n", {}, ["port"]),
        ("[server]\nport = 70000\n", {}, ["server.port"]),
        (
            "[engine]\ndriver = 'docker'\n",
            {"STARVERSE_POLICY__GRACE_SECONDS": "soon"},
            ["driver", "grace_seconds"],
        ),
        ("[server\n", {}, ["starverse.toml"]),
    ],
    ids=["unknown key", "unknown section", "no section", "out of range", "two faults", "not TOML"],
)
def test_everything_wrong_is_named_with_its_origin(
    tmp_path: Path, text: str, variable: dict[str, str], named: list[str]
) -> None:
    with pytest.raises(Invalid) as wrong:
        load(write(tmp_path, text), variable)
    fields = " ".join(fault.field for fault in wrong.value.faults)
    assert all(name in fields for name in named), fields


def test_a_file_that_was_named_and_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="a file that exists"):
        load(tmp_path / "missing.toml", {})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[server]\nport = 'web'\n", "a whole number"),
        ("[server]\nport = 70000\n", "at most 65535"),
        ("[policy]\ngrace_seconds = 0\n", "at least 1"),
        ("[policy]\nregistration_open = 'perhaps'\n", "true or false"),
        ("[engine]\ndriver = 'docker'\n", "one of bwrap, process"),
        ("[server]\nlog_level = 3\n", "text"),
        ("[server]\nchannel = 'head'\n", "HOST:PORT, by which other nodes reach this one"),
        ("[server]\nchannel = 'head:99999'\n", "HOST:PORT, by which other nodes reach this one"),
    ],
)
def test_what_would_be_right_is_said_in_our_words(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(Invalid) as wrong:
        load(write(tmp_path, text), {})
    assert [fault.expected for fault in wrong.value.faults] == [expected]
