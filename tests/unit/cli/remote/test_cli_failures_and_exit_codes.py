"""Every failure: what is printed where, and the exit code."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from starverse.cli.remote.entry import run
from starverse.cli.remote.exit_codes import exit_code_of, exit_code_of_job
from starverse.cli.remote.session import Session
from starverse.domain import errors
from starverse.testing.command_lines import CommandLine
from starverse.testing.fake_api import FakeApi, Reply


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with FakeApi() as fake:
        yield fake


@pytest.fixture
def line(api: FakeApi, tmp_path: Path) -> CommandLine:
    return CommandLine(api.url, tmp_path)


CODES = {
    "invalid": 2,
    "not_found": 3,
    "unauthenticated": 4,
    "forbidden": 4,
    "conflict": 5,
    "no_capacity": 6,
    "not_enough_money": 7,
    "limit_exceeded": 8,
    "too_large": 8,
    "timed_out": 9,
    "unavailable": 1,
    "internal": 1,
    "invariant_broken": 1,
    "a_code_of_next_year": 1,
}


@pytest.mark.parametrize(("code", "expected"), CODES.items(), ids=CODES.keys())
def test_each_error_code_has_its_exit_code(code: str, expected: int, api: FakeApi, line: CommandLine) -> None:
    api.on("GET", "/wallet", Reply(400, {"code": code, "detail": "that is why"}))
    ran = line.run("wallet")
    assert (ran.code, ran.out) == (expected, "")
    assert ran.err == "starverse: that is why\n"


def test_no_error_class_of_the_product_was_forgotten() -> None:
    classes = [
        c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, errors.StarverseError)
    ]
    assert {c.code for c in classes} <= set(CODES)


def test_a_limit_says_when_to_try_again(api: FakeApi, line: CommandLine) -> None:
    problem = {"code": "limit_exceeded", "detail": "Too many attempts.", "retry_after_seconds": 540}
    api.on("GET", "/wallet", Reply(429, problem))
    assert line.run("wallet").err.splitlines()[-1] == "try again in 540 s"
    assert json.loads(line.run("wallet", "--json").err)["error"]["retry_after_seconds"] == 540


def test_of_many_faults_the_first_are_printed_and_the_others_counted(api: FakeApi, line: CommandLine) -> None:
    faults = [{"field": f"a{number}", "value": "", "expected": "b"} for number in range(775)]
    api.on("GET", "/wallet", Reply(422, {"code": "invalid", "detail": "d", "faults": faults}))
    lines = line.run("wallet").err.splitlines()
    assert (len(lines), lines[0], lines[-1]) == (12, "starverse: 775 things are wrong", "  and 765 more")
    assert len(json.loads(line.run("wallet", "--json").err)["error"]["faults"]) == 775


def test_errors_with_json_are_one_object_on_stderr(api: FakeApi, line: CommandLine) -> None:
    problem = {
        "code": "invalid",
        "detail": "d",
        "hint": "h",
        "request_id": "r",
        "faults": [{"field": "--time", "value": "x", "expected": "minutes"}],
    }
    api.on("GET", "/wallet", Reply(422, problem))
    for words in (("wallet", "--json"), ("--json", "wallet")):
        ran = line.run(*words)
        assert (ran.code, ran.out) == (2, "")
        assert json.loads(ran.err) == {"version": 1, "error": problem}


def test_several_faults_are_each_on_a_line(api: FakeApi, line: CommandLine) -> None:
    faults = [
        {"field": "--time", "value": "x", "expected": "minutes"},
        {"field": "--gres", "value": "gpu:h100", "expected": "gpu:rtx4090"},
    ]
    api.on("GET", "/wallet", Reply(422, {"code": "invalid", "detail": "d", "hint": "h", "faults": faults}))
    assert line.run("wallet").err == (
        "starverse: 2 things are wrong\n"
        "  --time: 'x'; expected minutes\n"
        "  --gres: 'gpu:h100'; expected gpu:rtx4090\n"
        "hint: h\n"
    )


def test_a_server_cannot_draw_on_the_terminal(api: FakeApi, line: CommandLine) -> None:
    api.on("GET", "/wallet", Reply(409, {"code": "conflict", "detail": "\x1b[31mred\x07"}))
    assert line.run("wallet").err == "starverse: \\x1b[31mred\\x07\n"


def test_an_unknown_error_shows_the_request_id(api: FakeApi, line: CommandLine) -> None:
    api.on("GET", "/wallet", Reply(500, {"code": "internal", "detail": "broken", "request_id": "r-9"}))
    assert "request id: r-9" in line.run("wallet").err


USAGE = {
    "misspelt command": (["sumbit", "x"], "Did you mean 'submit'?"),
    "misspelt subcommand": (["job", "sho", "1"], "Did you mean 'show'?"),
    "command of a later version": (["reserve"], "No such command 'reserve'."),
    "missing argument": (["job", "show"], "Missing argument 'JOB'"),
    "unknown option": (["wallet", "--what"], "No such option"),
    "not an amount": (["topup", "-5"], "No such option"),
    "zero": (["topup", "0"], "not a positive amount"),
    "seven places": (["topup", "1.2345678"], "not a positive amount"),
    "group alone": (["job"], "Usage: starverse job"),
    "nothing to change": (["admin", "account", "set", "a@b.c"], "say what to change"),
    "stray word": (["submit", "train.sh", "10"], "'10' stands alone"),
    "no script": (["submit", "--lint"], "name the script"),
}


@pytest.mark.parametrize(("words", "said"), USAGE.values(), ids=USAGE.keys())
def test_wrong_usage_is_2_and_says_what_would_be_right(
    words: list[str], said: str, line: CommandLine, api: FakeApi
) -> None:
    ran = line.run(*words)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert api.seen == []


def test_aliases_of_habit_work(api: FakeApi, line: CommandLine) -> None:
    api.on("GET", "/jobs", {"items": [], "next_cursor": None})
    api.on("DELETE", "/tokens/t1", Reply(204))
    assert line.run("job", "list").code == 0
    assert line.run("token", "delete", "t1").code == 0


def test_no_answer_at_all_says_where_it_was_looked_for(tmp_path: Path) -> None:
    ran = CommandLine(f"unix:{tmp_path}/none.sock", tmp_path).run("wallet")
    assert ran.code == 1
    assert f"unix:{tmp_path}/none.sock" in ran.err
    assert "starverse up" in ran.err


def test_an_interrupt_is_130(tmp_path: Path) -> None:
    class Interrupting(io.StringIO):
        def isatty(self) -> bool:
            raise KeyboardInterrupt

    err = io.StringIO()
    session = Session(environ={}, stdin=Interrupting(), stderr=err, folder=tmp_path)
    assert run(["login", "a@b.c"], session) == 130
    assert "interrupted" in err.getvalue()


JOBS = {
    "succeeded": (("succeeded", 0, None), 0),
    "its own code": (("failed", 3, None), 3),
    "a signal": (("failed", None, 9), 137),
    "cancelled before it ran": (("cancelled", None, None), 1),
    "failed without a code": (("failed", 0, None), 1),
}


@pytest.mark.parametrize(("job", "expected"), JOBS.values(), ids=JOBS.keys())
def test_waiting_returns_the_jobs_own_code(job: tuple[str, int | None, int | None], expected: int) -> None:
    assert exit_code_of_job(*job) == expected


def test_the_interrupted_code_is_reserved() -> None:
    assert exit_code_of("interrupted") == 130
