"""``submit``: price first, folder once, raw options through, the job's own exit code."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from starverse.cli.remote.entry import run
from starverse.cli.remote.session import Session
from starverse.testing import api_examples as examples
from starverse.testing.command_lines import CommandLine, Ran
from starverse.testing.fake_api import FakeApi, Reply, sse

SCRIPT = "#!/bin/bash\n#SBATCH --gres=gpu:2\necho 训练\n"


class Site:
    """A fake that accepts a submission of a folder that it does not have yet."""

    def __init__(self, api: FakeApi, folder: Path) -> None:
        self.api = api
        self.line = CommandLine(api.url, folder)
        (folder / "train 一.sh").write_text(SCRIPT, encoding="utf-8")

    def accept(self, job: dict[str, Any], count: int = 1) -> None:
        submitted = {"job": job, "jobs_count": count, "notices": ["told"], "price": examples.price()}
        self.api.on("POST", "/jobs", examples.lint(), Reply(201, submitted))

    def submit(self, *words: str, **options: Any) -> Ran:
        return self.line.run("submit", "train 一.sh", *words, **options)

    def body(self, index: int) -> Any:
        return self.api.requests("POST", "/jobs")[index].json


class AnyFolder(FakeApi):
    """Answers every folder id: unknown at first, then stored."""

    def answer(self, seen: Any) -> Reply:
        if seen.path.startswith("/folders/"):
            self.seen.append(seen)
            return Reply(404 if seen.method == "HEAD" else 201, {"id": seen.path.rpartition("/")[2]})
        return super().answer(seen)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with AnyFolder() as api:
        yield Site(api, tmp_path)


def test_the_words_go_through_as_typed_and_the_number_comes_back(site: Site, tmp_path: Path) -> None:
    site.accept(examples.job("12"))
    ran = site.submit("--tariff", "spot", "-Jname", "--gres=gpu:rtx4090:2", "--", "--epochs", "3 x")
    assert (ran.code, ran.out) == (0, "12\n")
    asked, sent = site.body(0), site.body(1)
    assert (asked["lint"], sent["lint"]) == (True, False)
    assert sent["argv"] == ["--tariff", "spot", "-Jname", "--gres=gpu:rtx4090:2"]
    assert sent["arguments"] == ["--epochs", "3 x"]
    assert (sent["script"], sent["script_name"]) == (SCRIPT, "train 一.sh")
    assert sent["submit_dir"] == str(tmp_path)


def test_the_folder_travels_and_its_id_is_in_the_request(site: Site, tmp_path: Path) -> None:
    site.accept(examples.job("12"))
    (tmp_path / "数据").mkdir()
    (tmp_path / "数据" / "a b.csv").write_text("1")
    site.submit()
    put = next(seen for seen in site.api.seen if seen.method == "PUT")
    with tarfile.open(fileobj=io.BytesIO(put.body), mode="r:gz") as archive:
        assert "数据/a b.csv" in archive.getnames()
    assert site.body(1)["folder_id"] == put.path.rpartition("/")[2]


def test_the_price_is_shown_before_anything_is_sent(site: Site) -> None:
    site.accept(examples.job("12"))
    ran = site.submit()
    lines = ran.err.splitlines()
    assert lines[:3] == [
        "ignored: line 4: --mail-type=END: no mail is sent",
        "price: CNY 0.996 per hour (spot), at most CNY 23.904 up to the time limit",
        "cheaper: at night on spot: CNY 0.50 per hour",
    ]
    assert "notice: told" in lines
    assert [seen.method for seen in site.api.seen] == ["POST", "HEAD", "PUT", "POST"]


def test_at_a_terminal_a_no_changes_nothing(site: Site) -> None:
    site.accept(examples.job("12"))
    ran = site.submit(stdin="n\n", terminal=True)
    assert ran.code == 1
    assert ran.err.endswith("Submit? [y/N] nothing was changed\n")
    assert len(site.api.seen) == 1


@pytest.mark.parametrize(("words", "stdin"), [((), "y\n"), (("--yes",), ""), (("-y",), "")])
def test_at_a_terminal_a_yes_submits(site: Site, words: tuple[str, ...], stdin: str) -> None:
    site.accept(examples.job("12"))
    ran = site.submit(*words, stdin=stdin, terminal=True)
    assert (ran.code, ran.out) == (0, "12\n")
    assert site.body(1)["argv"] == []


def test_a_refused_script_is_told_with_every_fault_by_the_submit_itself(site: Site) -> None:
    refused = {**examples.lint(), "refused": [{"line": 2, "text": "--gres", "reason": "no"}], "price": None}
    fault = {"field": "--gres", "value": "gpu:2", "expected": "a model"}
    problem = {"code": "invalid", "detail": "--gres: which?", "faults": [fault]}
    site.api.on("POST", "/jobs", refused, Reply(422, problem))
    ran = site.submit(terminal=True)
    assert ran.code == 2
    assert "--gres: which?" in ran.err


def test_waiting_shows_the_log_and_returns_the_jobs_own_code(site: Site) -> None:
    site.accept(examples.job("12"))
    events = sse(
        ("log", "1:0", {"text": "step 1\n"}),
        ("notice", "1:7", {"reason": "reclaim", "deadline": "2026-03-10T12:00:00Z"}),
        ("end", "1:7", {"state": "failed", "exit_code": 3}),
    )
    site.api.on("GET", "/jobs/12/logs:follow", Reply(200, events, {"Content-Type": "text/event-stream"}))
    ended = examples.job("12", state="failed", reason="exit_code", exit_code=3, message="exit code 3")
    site.api.on("GET", "/jobs/12", ended)
    ran = site.submit("--wait")
    assert (ran.code, ran.out) == (3, "step 1\n")
    assert "[notice: reclaim]" in ran.err
    assert ran.err.endswith("job 12 failed: exit code 3\n")


def test_an_interrupt_while_waiting_leaves_the_job_running_and_says_so(site: Site, tmp_path: Path) -> None:
    class StopsReading(io.StringIO):
        def write(self, text: str, /) -> int:
            raise KeyboardInterrupt

    site.accept(examples.job("12"))
    events = sse(("log", "1:0", {"text": "step 1\n"}))
    site.api.on("GET", "/jobs/12/logs:follow", Reply(200, events, {"Content-Type": "text/event-stream"}))
    err = io.StringIO()
    session = Session(
        environ={"STARVERSE_API": site.api.url, "STARVERSE_TOKEN": "t"},
        stdin=io.StringIO(),
        stdout=StopsReading(),
        stderr=err,
        folder=tmp_path,
    )
    assert run(["submit", "train 一.sh", "--wait"], session) == 130
    assert "job 12 goes on" in err.getvalue()
    assert "starverse job cancel 12" in err.getvalue()
    assert not any(seen.path.endswith(":cancel") for seen in site.api.seen)


def test_waiting_for_an_array_returns_the_highest_code_of_its_tasks(site: Site) -> None:
    site.accept(examples.job("15_2", array_number=15, array_index=2), count=2)
    site.api.on("GET", "/jobs/15", {**examples.job("15"), "tasks": {"succeeded": 1, "failed": 1}})
    tasks = [
        examples.job("15_2", array_number=15, array_index=2, state="succeeded", exit_code=0),
        examples.job("15_3", array_number=15, array_index=3, state="failed", exit_signal=9),
        examples.job("9", state="failed", exit_code=200),
    ]
    site.api.on("GET", "/jobs", {"items": tasks, "next_cursor": None})
    for task in tasks:
        site.api.on("GET", f"/jobs/{task['id']}", task)
    ran = site.submit("--wait", "--array=2-3")
    assert ran.code == 137
    assert "submitted array 15 of 2 jobs; watch its first: starverse job logs -f 15_2" in ran.err


def test_a_script_from_stdin_and_a_wrapped_command(site: Site) -> None:
    site.accept(examples.job("12"))
    assert site.line.run("submit", "-", stdin=SCRIPT).code == 0
    assert (site.body(1)["script"], site.body(1)["script_name"]) == (SCRIPT, "stdin")
    site.accept(examples.job("13"))
    assert site.line.run("submit", "--wrap", "echo 'a b'").code == 0
    assert site.body(3)["script"].endswith("\necho 'a b'\n")


BAD_SCRIPTS = {
    "missing": (None, 3, "cannot be read: No such file or directory"),
    "not utf-8": ("#!/bin/sh\n# 训练\n".encode("gb18030"), 2, "not UTF-8 text: byte 14 in line 2"),
    "too large": (b"#" * (4 * 1024**2 + 1), 8, "has 4194305 bytes"),
}


@pytest.mark.parametrize(("raw", "code", "said"), BAD_SCRIPTS.values(), ids=BAD_SCRIPTS.keys())
def test_a_script_that_cannot_be_sent_is_told_before_anything_is(
    site: Site, tmp_path: Path, raw: bytes | None, code: int, said: str
) -> None:
    if raw is not None:
        (tmp_path / "bad.sh").write_bytes(raw)
    ran = site.line.run("submit", "bad.sh")
    assert ran.code == code
    assert said in ran.err
    assert site.api.seen == []


def test_a_folder_that_is_too_large_is_refused_before_it_is_sent(site: Site, tmp_path: Path) -> None:
    site.accept(examples.job("12"))
    with (tmp_path / "huge.bin").open("wb") as file:
        file.truncate(101 * 1024**2)
    ran = site.submit()
    assert ran.code == 8
    assert "Biggest: huge.bin 101.0 MiB" in ran.err
    assert [seen.method for seen in site.api.seen] == ["POST", "GET"], "its price, and what the server takes"
    assert site.api.seen[-1].path.endswith("/limits")
