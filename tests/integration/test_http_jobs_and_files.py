"""Jobs, their folders, files and logs through the API."""

from __future__ import annotations

import io
import json
import tarfile
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from starverse.engines.fake import FakeRun
from starverse.testing.http_sites import PREFIX, Person, Site, packed

SCRIPT = "#!/bin/bash\n#SBATCH --gres=gpu:rtx4090:1\n#SBATCH --job-name=train\necho hello\n"


def send(person: Person, files: dict[str, bytes]) -> str:
    folder_id, body = packed(files)
    answer = person.client.put(f"{PREFIX}/folders/{folder_id}", content=body)
    assert answer.status_code in (200, 201), answer.text
    return folder_id


def submit(person: Person, script: str = SCRIPT, **fields: Any) -> str:
    return str(person.post("/jobs", {"script": script, **fields})["job"]["number"])


def write_log(site: Site, person: Person, number: str, attempt: int, content: bytes) -> None:
    job_id = person.get(f"/jobs/{number}")["id"]
    folder = site.platform.paths.logs(job_id)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{attempt}.out").open("ab") as log:
        log.write(content)


def events_of(person: Person, number: str, **headers: str) -> list[dict[str, Any]]:
    """The events of a stream up to its end."""
    found: list[dict[str, Any]] = []
    event: dict[str, Any] = {}
    with person.client.stream("GET", f"{PREFIX}/jobs/{number}/logs:follow", headers=headers) as stream:
        assert stream.status_code == 200
        assert stream.headers["content-type"].startswith("text/event-stream")
        for line in stream.iter_lines():
            name, _, value = line.partition(": ")
            if not line and event:
                found.append(event)
                event = {}
            elif name in ("id", "event"):
                event[name] = value
            elif name == "data":
                event["data"] = json.loads(value)
    return found


def test_a_folder_is_sent_once_and_becomes_the_jobs_folder(site: Site) -> None:
    person = site.register()
    files = {"train.py": b"print(1)\n", "data/a.txt": b"alpha"}
    folder_id, body = packed(files)
    path = f"{PREFIX}/folders/{folder_id}"
    assert person.client.head(path).status_code == 404
    first = person.client.put(path, content=body)
    assert (first.status_code, first.json()["existed"]) == (201, False)
    assert person.client.head(path).status_code == 200
    again = person.client.put(path, content=body)
    assert (again.status_code, again.json()["existed"]) == (200, True)
    number = submit(person, folder_id=folder_id)
    listed = person.get(f"/jobs/{number}/files")["items"]
    assert [(item["path"], item["kind"]) for item in listed] == [("data", "folder"), ("train.py", "file")]
    assert person.client.get(f"{PREFIX}/jobs/{number}/files/data/a.txt").content == b"alpha"


def test_a_folder_that_is_not_what_it_says_is_refused_and_nothing_is_kept(site: Site) -> None:
    person = site.register()
    folder_id, body = packed({"a": b"a"})
    other = f"sha256:{'0' * 64}"
    wrong = person.client.put(f"{PREFIX}/folders/{other}", content=body)
    assert wrong.status_code == 422
    assert folder_id in wrong.json()["faults"][0]["expected"]
    evil_id, evil = packed({"../evil": b"x"})
    assert person.client.put(f"{PREFIX}/folders/{evil_id}", content=evil).status_code == 422
    assert person.client.put(f"{PREFIX}/folders/not-an-id", content=body).status_code == 422
    kept = [path for path in site.platform.paths.folders.rglob("*") if path.is_file()]
    assert kept == []
    unknown = person.client.post(f"{PREFIX}/jobs", json={"script": SCRIPT, "folder_id": other})
    assert unknown.status_code == 422


def test_a_folder_over_the_cap_is_refused_while_it_comes(site: Site) -> None:
    person = site.register()
    cap = site.platform.settings.folder_bytes_max
    sent = 0

    def endless() -> Any:
        nonlocal sent
        while sent < 3 * cap:
            sent += 1024**2
            yield b"x" * 1024**2

    answer = person.client.put(f"{PREFIX}/folders/sha256:{'1' * 64}", content=endless())
    assert answer.status_code == 413
    assert answer.json()["code"] == "too_large"


def test_another_teams_folder_is_not_there(site: Site) -> None:
    one, two = site.register("one@example.org"), site.register("two@example.org")
    folder_id = send(one, {"a": b"a"})
    assert two.client.head(f"{PREFIX}/folders/{folder_id}").status_code == 404
    refused = two.client.post(f"{PREFIX}/jobs", json={"script": SCRIPT, "folder_id": folder_id})
    assert refused.status_code == 422


def test_files_are_read_in_ranges_written_and_packed(site: Site) -> None:
    person = site.register()
    number = submit(person, folder_id=send(person, {"a.txt": b"0123456789", "sub/b.txt": b"bb"}))
    path = f"{PREFIX}/jobs/{number}/files"
    whole = person.client.get(f"{path}/a.txt")
    assert (whole.content, whole.headers["content-length"]) == (b"0123456789", "10")
    for asked, content, said in (
        ("bytes=2-4", b"234", "bytes 2-4/10"),
        ("bytes=7-", b"789", "bytes 7-9/10"),
        ("bytes=-2", b"89", "bytes 8-9/10"),
        ("bytes=5-99", b"56789", "bytes 5-9/10"),
    ):
        part = person.client.get(f"{path}/a.txt", headers={"Range": asked})
        assert (part.status_code, part.content, part.headers["content-range"]) == (206, content, said)
    beyond = person.client.get(f"{path}/a.txt", headers={"Range": "bytes=10-"})
    assert (beyond.status_code, beyond.headers["content-range"]) == (416, "bytes */10")
    folder = person.client.get(f"{path}/sub")
    assert folder.headers["content-type"] == "application/x-tar"
    with tarfile.open(fileobj=io.BytesIO(folder.content)) as archive:
        assert archive.getnames() == ["b.txt"]
    assert person.client.put(f"{path}/new/c.txt", content=b"fresh").status_code == 204
    assert person.client.get(f"{path}/new/c.txt").content == b"fresh"
    assert person.client.get(f"{path}/missing").status_code == 404
    assert person.client.put(f"{path}/sub", content=b"x").status_code == 409
    assert person.client.get(f"{path}/%2e%2e/%2e%2e/starverse.db").status_code in (404, 422)


def test_a_submission_is_repeated_safely(site: Site) -> None:
    person = site.register()
    key = {"Idempotency-Key": "submit-1"}
    body = {"script": SCRIPT}
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: person.post("/jobs", body, headers=key)["job"]["id"], range(4)))
    assert len(set(made)) == 1
    assert len(person.get("/jobs")["items"]) == 1
    other = person.client.post(f"{PREFIX}/jobs", json={"script": SCRIPT + "\n"}, headers=key)
    assert other.status_code == 409


def test_a_lint_changes_nothing_and_shows_the_price(site: Site) -> None:
    person = site.register()
    answer = person.client.post(
        f"{PREFIX}/jobs", json={"script": SCRIPT, "argv": ["--tariff", "spot"], "lint": True}
    )
    assert answer.status_code == 200
    lint = answer.json()
    assert lint["price"]["hour_micro"] == 498_000
    assert {"name", "value", "origin"} == set(lint["effective"][0])
    assert lint["refused"] == []
    assert person.get("/jobs")["items"] == []


def test_a_faulty_submission_names_each_option(site: Site) -> None:
    person = site.register()
    script = "#!/bin/bash\n#SBATCH --time=never\n#SBATCH --gres=gpu:rtx4090:1\n"
    answer = person.client.post(f"{PREFIX}/jobs", json={"script": script, "argv": ["--nonsense=1"]})
    assert answer.status_code == 422
    fields = {fault["field"] for fault in answer.json()["faults"]}
    assert {"--time", "--nonsense"} <= {field.split(" ")[0] for field in fields}


def test_jobs_are_listed_by_state_array_and_time(site: Site) -> None:
    person = site.register()
    person.post("/topups", {"amount": "100.00"})
    single = submit(person)
    array = submit(person, argv=["--array=0-2", "--time=10"]).split("_")[0]
    tasks = person.get(f"/jobs?array={array}")["items"]
    assert [task["number"] for task in tasks] == [f"{array}_{index}" for index in range(3)]
    assert person.get(f"/jobs/{array}")["tasks"] == {"queued": 3}
    person.post(f"/jobs/{single}:cancel", status=202)
    assert [job["number"] for job in person.get("/jobs?state=cancelled")["items"]] == [single]
    assert len(person.get("/jobs?state=open")["items"]) == 3
    pages, cursor = [], ""
    while True:
        page = person.get(f"/jobs?limit=2{cursor}")
        pages += [job["number"] for job in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert sorted(pages) == sorted([single, *(f"{array}_{index}" for index in range(3))])
    site.clock.advance(days=1)
    now = "2026-03-11T02:00:00Z"
    assert [job["number"] for job in person.get(f"/jobs?until={now}&since={now}")["items"]] == [
        f"{array}_{index}" for index in range(3)
    ]
    again = person.client.post(f"{PREFIX}/jobs/{single}:cancel")
    assert again.status_code == 409


def test_a_log_is_read_in_parts_over_two_attempts(site: Site) -> None:
    person = site.register()
    number = submit(person)
    waiting = person.get(f"/jobs/{number}/logs")
    assert (waiting["attempt"], waiting["text"], waiting["ended"]) == (0, "", False)
    site.world.plan("train", FakeRun(run_seconds=3600))
    site.world.round()
    site.world.run(5)
    write_log(site, person, number, 1, "第一\nsecond\n".encode())
    part = person.get(f"/jobs/{number}/logs?limit=7")
    assert (part["text"], part["next_offset"], part["ended"]) == ("第一\n", 7, False)
    rest = person.get(f"/jobs/{number}/logs?offset=7")
    assert rest["text"] == "second\n"
    assert person.get(f"/jobs/{number}/logs?offset=-4")["text"] == "ond\n"
    for wrong in ("limit=0", "stream=both", "attempt=0", "offset=x"):
        assert person.client.get(f"{PREFIX}/jobs/{number}/logs?{wrong}").status_code == 422
    assert person.client.get(f"{PREFIX}/jobs/{number}/logs?attempt=2").status_code == 404


def test_following_tells_everything_once_and_goes_on_where_it_was(site: Site) -> None:
    person = site.register()
    number = submit(person)
    site.world.plan("train", FakeRun(run_seconds=30))
    site.world.round()
    write_log(site, person, number, 1, b"one\ntwo\n")
    site.world.run(60)
    assert person.get(f"/jobs/{number}")["state"] == "succeeded"
    events = events_of(person, number)
    assert [event["event"] for event in events] == ["log", "end"]
    assert events[0]["data"]["text"] == "one\ntwo\n"
    assert events[0]["id"] == "1:8"
    assert events[1]["data"]["state"] == "succeeded"
    assert events[1]["data"]["exit_code"] == 0
    resumed = events_of(person, number, **{"Last-Event-ID": "1:4"})
    assert resumed[0]["data"]["text"] == "two\n"
    assert [event["event"] for event in events_of(person, number, **{"Last-Event-ID": "1:8"})] == ["end"]
    bad = person.client.get(f"{PREFIX}/jobs/{number}/logs:follow", headers={"Last-Event-ID": "nonsense"})
    assert bad.status_code == 422


def test_many_followers_get_the_same_and_hold_no_thread(site: Site) -> None:
    person = site.register()
    number = submit(person)
    site.world.round()
    write_log(site, person, number, 1, b"line\n" * 1000)
    site.world.run(90)
    with ThreadPoolExecutor(20) as pool:
        streams = list(pool.map(lambda _: events_of(person, number), range(20)))
    texts = {"".join(e["data"]["text"] for e in events if e["event"] == "log") for events in streams}
    assert texts == {"line\n" * 1000}


@pytest.mark.parametrize("ref", ["999999", "0", "1_1", "abc", "1_", "-1", "12345678901234567890", "%2F"])
def test_a_job_that_is_not_there_is_not_found(site: Site, ref: str) -> None:
    person = site.register()
    assert person.client.get(f"{PREFIX}/jobs/{ref}").status_code == 404


def test_why_and_record_are_given(site: Site) -> None:
    person = site.register()
    number = submit(person)
    why = person.get(f"/jobs/{number}/why")
    assert why["state"] == "queued"
    body = {"script": SCRIPT, "lint": True, "when": True}
    asked = person.client.post(f"{PREFIX}/jobs", json=body).json()
    assert asked["start_estimate"]["earliest_at"] <= asked["start_estimate"]["latest_at"]
    assert person.client.post(f"{PREFIX}/jobs", json=body | {"when": False}).json()["start_estimate"] is None
    record = person.get(f"/jobs/{number}/record")
    assert record["script"]["text"] == SCRIPT
    signal = person.client.post(f"{PREFIX}/jobs/{number}:cancel", json={"signal": "USR1"})
    assert signal.status_code == 409, "it waits: there is nothing to send it to"
    wrong = person.client.post(f"{PREFIX}/jobs/{number}:cancel", json={"signal": "NOPE"})
    assert wrong.status_code == 422
