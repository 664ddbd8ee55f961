"""``slurm.unix_users`` names teams by id or name; one that there is not stops the start, in words."""

from __future__ import annotations

import getpass
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from starverse.app.teams import ids_of_teams_and_accounts
from starverse.domain.errors import Invalid
from starverse.testing.platforms import fresh_database
from starverse.testing.worlds import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with fresh_database("sqlite", tmp_path) as database:
        yield World(database, tmp_path / "data")


def test_a_team_goes_by_its_id_or_its_name_and_strangers_are_all_named(world: World) -> None:
    lab = world.team("lab").team_id
    assert ids_of_teams_and_accounts(world.platform, ["lab", lab], "slurm.unix_users") == {
        "lab": lab,
        lab: lab,
    }
    with pytest.raises(Invalid, match=r"slurm.unix_users: 'lap'.*slurm.unix_users: 'x'"):
        ids_of_teams_and_accounts(world.platform, ["lap", "lab", "x"], "slurm.unix_users")


def test_an_account_goes_by_its_mail_address(world: World) -> None:
    person = world.team("lab").account_id
    words = ["Lab@example.org", "nobody@example.org"]
    assert ids_of_teams_and_accounts(world.platform, words[:1], "slurm.unix_users") == {words[0]: person}
    with pytest.raises(Invalid, match=r"slurm.unix_users: 'nobody@example.org'.*mail address"):
        ids_of_teams_and_accounts(world.platform, words, "slurm.unix_users")


@pytest.mark.parametrize(("team", "known"), [("operator", True), ("no-such-team", False)])
def test_a_server_says_at_its_start_that_there_is_no_such_team(
    tmp_path: Path, team: str, known: bool
) -> None:
    user = "daemon" if getpass.getuser() == "root" else getpass.getuser()
    (tmp_path / "starverse.toml").write_text(
        f'[server]\ndata = "{tmp_path / "data"}"\nport = 0\nchannel = "no-such-host.invalid:1"\n'
        f'[engine]\nkind = "slurm"\n[slurm]\ncommands = "{tmp_path}"\nunix_users = "{team}={user}"\n'
    )
    words = [
        str(Path(sys.executable).with_name("starverse")),
        "up",
        "--config",
        str(tmp_path / "starverse.toml"),
    ]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert ("slurm.unix_users" in done.stderr) is not known
    assert ("server.channel" in done.stderr) is known  # what is looked at next
