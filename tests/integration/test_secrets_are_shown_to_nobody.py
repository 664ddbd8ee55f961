"""Secrets: set once, given to the team's own workloads, and shown to nobody anywhere else."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import select, update

from starverse.app import auth, secrets
from starverse.app.maintenance.backup import Wanted, make_backup
from starverse.app.maintenance.restore import restore
from starverse.db import events, schema
from starverse.db.instance_tables import secrets as rows
from starverse.db.session import Database
from starverse.domain.errors import Unavailable
from starverse.domain.ids import AccountId, AllocationId, TeamId
from starverse.testing.http_sites import PREFIX, Person, Site
from starverse.testing.platforms import make_platform
from starverse.testing.worlds import World

VALUE = "hunter2-天王盖地虎-\n-end"
PLAIN = "hunter2"


def put(person: Person, name: str, value: object, status: int = 200) -> str:
    answer = person.client.put(f"{PREFIX}/secrets/{name}", json={"value": value})
    assert answer.status_code == status, answer.text
    return str(answer.text)


def opened(site: Site, person: Person, *names: str) -> tuple[tuple[str, str], ...]:
    with site.platform.database.read() as connection:
        return secrets.values_of(connection, site.platform, person.team_id, names)


def test_a_secret_is_set_replaced_listed_and_removed(site: Site) -> None:
    person = site.register()
    assert person.get("/secrets") == {"items": [], "next_cursor": None}
    made = json.loads(put(person, "HF_TOKEN", VALUE))
    assert made["name"] == "HF_TOKEN"
    assert set(made) == {"name", "created_at", "changed_at"}
    assert opened(site, person, "HF_TOKEN") == (("HF_TOKEN", VALUE),)

    site.clock.advance(hours=1)
    put(person, "HF_TOKEN", "another")
    put(person, "rclone.conf", "x")
    listed = person.get("/secrets")["items"]
    assert [one["name"] for one in listed] == ["HF_TOKEN", "rclone.conf"]
    assert listed[0]["created_at"] == made["created_at"] < listed[0]["changed_at"]
    assert opened(site, person, "rclone.conf", "HF_TOKEN") == (("rclone.conf", "x"), ("HF_TOKEN", "another"))

    assert person.client.delete(f"{PREFIX}/secrets/HF_TOKEN").status_code == 204
    assert person.client.delete(f"{PREFIX}/secrets/HF_TOKEN").status_code == 404
    assert [one["name"] for one in person.get("/secrets")["items"]] == ["rclone.conf"]


def test_another_team_neither_sees_nor_changes_it(site: Site) -> None:
    owner, stranger = site.register("owner@example.org"), site.register("stranger@example.org")
    put(owner, "KEY", VALUE)
    assert stranger.get("/secrets")["items"] == []
    assert stranger.client.delete(f"{PREFIX}/secrets/KEY").status_code == 404
    put(stranger, "KEY", "theirs")
    assert opened(site, owner, "KEY") == (("KEY", VALUE),)
    with pytest.raises(Unavailable, match="KEY2"):
        opened(site, owner, "KEY", "KEY2")


def test_what_runs_inside_a_workload_cannot_ask_for_secrets(site: Site) -> None:
    owner = site.register()
    with site.platform.database.write() as connection:
        token = auth.issue_workload_token(
            site.platform,
            connection,
            AccountId(owner.get("/me")["account"]["id"]),
            TeamId(owner.team_id),
            AllocationId(site.platform.ids.uuid7()),
        )
    inside = site.client(token)
    for method, path in (("GET", "/secrets"), ("PUT", "/secrets/A"), ("DELETE", "/secrets/A")):
        assert inside.request(method, PREFIX + path, json={"value": "x"}).status_code in (401, 403)


@pytest.mark.parametrize("name", ["1", "a b", "密", "a" * 65, "-x", "a%2Fb", "..", "a%00"])
def test_a_name_that_is_none_is_refused(site: Site, name: str) -> None:
    person = site.register()
    answer = person.client.put(f"{PREFIX}/secrets/{name}", json={"value": VALUE})
    assert answer.status_code in (404, 405, 422)
    assert PLAIN not in answer.text
    assert person.get("/secrets")["items"] == []


@pytest.mark.parametrize(
    "body",
    [
        {"value": ""},
        {"value": "hunter2" * 10_000},
        {"value": ["hunter2"]},
        {"value": {"hunter2": "hunter2"}},
        {"value": 1, "valeu": "hunter2"},
        {"valeu": "hunter2"},
        {"value": "hunter2\0"},
        "hunter2",
        ["hunter2"],
    ],
)
def test_a_refusal_repeats_nothing_of_what_was_sent(site: Site, body: object) -> None:
    person = site.register()
    answer = person.client.put(f"{PREFIX}/secrets/KEY", json=body)
    assert answer.status_code == 422
    assert PLAIN not in answer.text
    broken = person.client.put(f"{PREFIX}/secrets/KEY", content=b'{"value": "hunter2')
    assert broken.status_code == 422
    assert PLAIN not in broken.text


def test_a_team_has_at_most_so_many(site: Site) -> None:
    person = site.register()
    put(person, "FIRST", "x")
    with site.platform.database.write() as connection:
        sealed = connection.execute(select(rows.c.sealed)).scalar_one()
        now = site.clock.now()
        new = [
            {"id": f"{n:036}", "team_id": person.team_id, "name": f"S{n}", "sealed": sealed}
            | {"created_at": now, "changed_at": now}
            for n in range(secrets.SECRETS_MAX - 1)
        ]
        connection.execute(rows.insert(), new)
    put(person, "ONE_MORE", "x", status=429)
    put(person, "FIRST", "y")


def files_below(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def test_no_file_row_event_or_line_of_the_log_holds_a_value(
    site: Site, capfd: pytest.CaptureFixture[str]
) -> None:
    person = site.register()
    put(person, "KEY", VALUE)
    put(person, "bad name", VALUE, status=422)
    person.client.delete(f"{PREFIX}/secrets/KEY")
    put(person, "KEY", VALUE)
    with site.platform.database.read() as connection:
        told = events.newest(connection, 100)
    assert [one.event.reason or one.event.kind for one in told if one.event.subject_kind == "secret"] == [
        "set",
        "removed",
        "set",
    ]
    assert PLAIN not in repr(told)
    with site.platform.database.read() as connection:
        assert PLAIN not in repr(list(connection.execute(select(rows))))
    assert all(PLAIN.encode() not in path.read_bytes() for path in files_below(site.platform.settings.data))
    assert PLAIN not in "".join(capfd.readouterr())
    key = site.platform.settings.data / secrets.KEY_FILE
    assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_a_sealed_text_opens_in_its_own_row_only_and_with_its_own_key_only(site: Site) -> None:
    person = site.register()
    put(person, "A", VALUE)
    put(person, "B", "other")
    with site.platform.database.write() as connection:
        moved = connection.execute(select(rows.c.sealed).where(rows.c.name == "A")).scalar_one()
        connection.execute(update(rows).where(rows.c.name == "B").values(sealed=moved))
    with pytest.raises(secrets.SecretSealed, match="the secret B"):
        opened(site, person, "B")

    key = site.platform.settings.data / secrets.KEY_FILE
    kept = key.read_text()
    for wrong in ("", "nonsense", "A" * 43):
        key.write_text(wrong)
        with pytest.raises(secrets.SecretSealed) as refused:
            opened(site, person, "A")
        assert PLAIN not in str(refused.value) + str(refused.value.hint) + str(refused.value.context)
        assert refused.value.__cause__ is None
    key.unlink()
    with pytest.raises(secrets.SecretSealed):
        opened(site, person, "A")
    assert not key.exists(), "a key is made when something is sealed, not when something is opened"
    key.write_text(kept)
    assert opened(site, person, "A") == (("A", VALUE),)


def test_a_job_has_the_secrets_that_it_names_and_nothing_shows_them(site: Site) -> None:
    world = site.world
    who = world.team("ann")
    secrets.set_secret(world.platform, who, "KEY", VALUE)
    secrets.set_secret(world.platform, who, "OTHER", "not asked for")
    job = world.submit(who, "--secret=KEY", "--secret", "KEY", name="uses")
    world.run(5)
    specs = [launcher.spec for launcher in world.engine.launchers.values()]
    spec = next(spec for spec in specs if spec.job_id == job.id)
    assert spec.secrets == (("KEY", VALUE),)
    assert PLAIN not in repr(spec)
    assert PLAIN not in repr(world.job(who, job.number))
    with world.database.read() as connection:
        assert PLAIN not in repr(events.newest(connection, 100))


def test_a_job_that_names_a_secret_that_there_is_not_is_refused(site: Site) -> None:
    person, other = site.register(), site.register("other@example.org")
    put(other, "THEIRS", VALUE)
    script = "#!/bin/bash\n#SBATCH --gres=gpu:rtx4090:1\n#SBATCH --secret=THEIRS\ntrue\n"
    answer = person.client.post(f"{PREFIX}/jobs", json={"script": script})
    assert answer.status_code == 422
    assert [fault["field"] for fault in answer.json()["faults"]] == ["--secret"]
    put(person, "THEIRS", "mine")
    assert person.post("/jobs", {"script": script})["job"]["number"]


def test_a_backup_brings_the_key_along(tmp_path: Path) -> None:
    data, again = tmp_path / "data", tmp_path / "again"
    url = f"sqlite:///{tmp_path / 'one.db'}"
    now = datetime(2026, 11, 30, 12, tzinfo=UTC)
    with closing(Database(url)) as database:
        schema.upgrade(database)
        world = World(database, data)
        who = world.team("ann")
        secrets.set_secret(world.platform, who, "KEY", VALUE)
        whole = make_backup(database, data, tmp_path / "whole", Wanted(), now)
        bare = make_backup(database, data, tmp_path / "bare", Wanted(secrets=False), now)
        engine = world.engine
    assert all(PLAIN.encode() not in path.read_bytes() for path in files_below(whole.place))

    other = f"sqlite:///{tmp_path / 'two.db'}"
    restore(whole.place, again, other, now, replace=False)
    with closing(Database(other)) as database:
        platform = make_platform(database, again, engine)
        with database.read() as connection:
            assert secrets.values_of(connection, platform, who.team_id, ["KEY"]) == (("KEY", VALUE),)
    assert stat.S_IMODE((again / secrets.KEY_FILE).stat().st_mode) == 0o600

    third = f"sqlite:///{tmp_path / 'three.db'}"
    restore(bare.place, tmp_path / "third", third, now, replace=False)
    with closing(Database(third)) as database:
        platform = make_platform(database, tmp_path / "third", engine)
        with database.read() as connection, pytest.raises(secrets.SecretSealed):
            secrets.values_of(connection, platform, who.team_id, ["KEY"])
