"""``starverse admin backup/restore/migrate/move`` as operators and their scripts see them."""

from __future__ import annotations

import io
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from starverse.app.maintenance.content import fill_as_it_was, open_backup
from starverse.cli.remote.entry import run
from starverse.cli.remote.session import Session
from starverse.db.maintenance.dialects import rebuilding
from starverse.db.session import Database

RELEASE = Path(__file__).resolve().parents[1] / "data/releases/0.1.0"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The data folder as version 0.1.0 left it."""
    place = tmp_path / "data"
    place.mkdir()
    with (
        closing(Database(f"sqlite:///{place / 'starverse.db'}")) as database,
        rebuilding(database) as connection,
    ):
        fill_as_it_was(connection, open_backup(RELEASE))
    return place


def admin(*words: object) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    session = Session(environ={}, stdin=io.StringIO(), stdout=io.StringIO(), stderr=io.StringIO())
    code = run(["admin", *map(str, words)], session)
    assert isinstance(session.stdout, io.StringIO)
    assert isinstance(session.stderr, io.StringIO)
    return code, session.stdout.getvalue(), session.stderr.getvalue()


def ask(*words: object, code: int = 0) -> dict[str, Any]:
    """The JSON that a command prints."""
    ended, out, err = admin(*words, "--json")
    assert ended == code, err
    return dict(json.loads(out or err))


def test_from_an_old_version_to_another_database(data: Path, tmp_path: Path) -> None:
    target = f"sqlite:///{tmp_path / 'target.db'}"
    code, _, said = admin("move", "--data", data, "--to", target)
    assert code == 5
    assert "migrate it first" in said
    made = ask("backup", tmp_path / "before", "--data", data)
    assert (made["version"], made["revision"], made["rows"]) == (
        1,
        "0001",
        open_backup(RELEASE).manifest.rows,
    )
    tried = ask("migrate", "--dry-run", "--data", data)
    assert (tried["present"], tried["tried"], tried["done"]) == ("0001", True, False)
    code, shown, said = admin("migrate", "--data", data)
    assert code == 0
    assert [line.split()[0] for line in shown.splitlines()[1:]] == [s["revision"] for s in tried["steps"]]
    assert f"migrated to {tried['newest']}; the ledger check holds" in said
    moved = ask("move", "--data", data, "--to", target)
    assert (moved["to"], moved["was_there"]) == (target, False)
    assert moved["tables"]["jobs"]["rows"] > 0
    code, _, said = admin("backup", tmp_path / "after", "--data", data)
    assert code == 1
    assert "was moved to another one" in said
    assert "set server.db" in said
    assert ask("backup", tmp_path / "after", "--data", data, "--db", target)["ledger"] == []


def test_a_restore_says_what_is_in_it_and_what_it_kept(data: Path, tmp_path: Path) -> None:
    code, place, said = admin("backup", tmp_path / "backup", "--data", data, "--without-secrets")
    assert (code, place) == (0, f"{tmp_path / 'backup'}\n")
    assert "not in it  secrets, workspaces, checkpoints, logs, datasets, instances, disks, " in said
    looked = ask("restore", tmp_path / "backup", "--dry-run")
    assert (looked["restored"], looked["ledger"]) == (False, [])
    refused = ask("restore", tmp_path / "backup", "--data", data, code=5)
    assert refused["error"]["code"] == "target_not_empty"
    done = ask("restore", tmp_path / "backup", "--data", data, "--replace")
    assert done["restored"] is True
    assert (Path(done["kept"]) / "starverse.db").is_file()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("backup", "{tmp}/b", "--data", "{tmp}/nowhere"), 3, "there is no starverse database"),
        (("backup", "{tmp}/no/where", "--data", "{data}"), 2, "a new folder in one that exists"),
        (("backup", "{data}", "--data", "{data}"), 5, "never written over"),
        (("restore", "{tmp}", "--data", "{tmp}/new"), 1, "is not a backup"),
        (("move", "--data", "{data}", "--to", "mysql://me:secret@host/db"), 2, "mysql://me:***@host/db"),
        (("move", "--data", "{data}", "--to", "nonsense"), 2, "postgresql+psycopg://HOST/DATABASE"),
        (("move", "--data", "{data}", "--to", "sqlite"), 5, "there already"),
    ],
)
def test_what_cannot_be_done_is_said(
    words: tuple[str, ...], code: int, said: str, data: Path, tmp_path: Path
) -> None:
    ended, _, err = admin(*(word.format(tmp=tmp_path, data=data) for word in words))
    assert ended == code, err
    assert said in err
    assert "secret@" not in err
