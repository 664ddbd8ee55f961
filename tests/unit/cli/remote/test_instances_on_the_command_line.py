"""Instances on the command line: what is sent, what is said before money goes, and how each command ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from starverse.cli.remote.instance_text import warnings_of
from starverse.client.shapes import Instance
from starverse.testing import api_examples as examples
from starverse.testing.command_lines import PROGRAM_EXIT_CODE, CommandLine
from starverse.testing.fake_api import FakeApi, Reply

WANTED = ("--card", "rtx4090", "--cards", "2")


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with FakeApi() as fake:
        offer = examples.offers()[0]
        lines = [
            *offer["prices"],
            {"tariff": "no_gpu", "rate": "0.498", "rate_micro_per_card_hour": "498000"},
        ]
        fake.on("GET", "/offers", {"items": [{**offer, "prices": lines}], "next_cursor": None})
        fake.on("GET", "/instances/lab", examples.instance())
        fake.on("GET", "/instances/0191-lab", examples.instance())
        yield fake


@pytest.fixture
def line(api: FakeApi, tmp_path: Path) -> CommandLine:
    return CommandLine(api.url, tmp_path)


def queued(**changes: Any) -> dict[str, Any]:
    return examples.instance(state="queued", ready_at=None, started_at=None, **changes)


def sent(api: FakeApi, method: str, path: str) -> Any:
    (seen,) = api.requests(method, path)
    return seen.json


def test_an_image_that_is_not_there_is_said_before_the_question(api: FakeApi, line: CommandLine) -> None:
    api.on(
        "GET", "/images/nothing", Reply(404, {"code": "not_found", "detail": "There is no image nothing."})
    )
    ran = line.run("launch", *WANTED, "--image", "nothing", stdin="y\n", terminal=True)
    assert (ran.code, "Launch it" in ran.err) == (3, False)


def test_a_launch_says_its_price_waits_until_it_can_be_reached_and_prints_its_name(
    api: FakeApi, line: CommandLine
) -> None:
    api.on("POST", "/instances", Reply(201, queued(reason="starting")))
    api.on("GET", "/instances/0191-lab", queued(reason="starting"), examples.instance())
    ran = line.run(
        "launch", *WANTED, "--name", "lab", "--image", "pytorch", "--dataset", "digits", "--disk", "home",
        "--disk", "db:/data/my:db:ro", "--secret", "hf", "--ttl", "2h", "--idle-stop", "30m", "--restart",
        "elsewhere", "--yes",
    )  # fmt: skip
    assert (ran.code, ran.out) == (0, "lab\n")
    assert ran.err.splitlines()[0] == (
        "price: 2 x rtx4090, on_demand: CNY 3.32 per hour (changes next at 2026-03-10 15:00:00Z)"
    )
    assert "lab is ready; sign in: starverse ssh lab" in ran.err
    assert sent(api, "POST", "/instances") == {
        "card": "rtx4090",
        "cards": 2,
        "name": "lab",
        "image": "pytorch",
        "datasets": ["digits"],
        "disks": [
            {"name": "home", "read_only": False},
            {"name": "db", "read_only": True, "path": "/data/my:db"},
        ],
        "secrets": ["hf"],
        "tariff": "on_demand",
        "ttl_seconds": 7200,
        "idle_stop": 1800,
        "restart": "elsewhere",
        "wait": False,
    }
    assert api.requests("POST", "/instances")[0].headers["idempotency-key"]


SPENDS = {
    "launch": (("launch", *WANTED), "/instances"),
    "start": (("start", "baseline"), "/instances/0191-baseline:start"),
    "resize": (("resize", "lab", "--cards", "4"), "/instances/0191-lab:resize"),
}


@pytest.mark.parametrize(("words", "path"), SPENDS.values(), ids=SPENDS.keys())
def test_money_is_spent_only_after_a_price_and_a_yes(
    api: FakeApi, line: CommandLine, words: tuple[str, ...], path: str
) -> None:
    api.on("POST", path, examples.instance())
    api.on("GET", "/instances/baseline", examples.stopped("baseline"))
    for options in ({"stdin": ""}, {"stdin": "n\n", "terminal": True}):
        ran = line.run(*words, **options)
        assert ran.code == (1 if "terminal" in options else 2)
        assert ran.err.startswith("price: ")
        assert not api.requests("POST", path), "nothing was asked of the server"
    assert line.run(*words, stdin="y\n", terminal=True).code == 0
    assert line.run(*words, "--yes").code == 0
    assert len(api.requests("POST", path)) == 2


def test_what_no_pool_sells_is_refused_with_what_there_is(api: FakeApi, line: CommandLine) -> None:
    ran = line.run("launch", "--card", "h900", "--zone", "bj9", "--yes")
    assert ran.code == 2
    assert "no pool sells h900 on on_demand in bj9" in ran.err
    assert "hint: there is: bj1/rtx4090/eth (on_demand, spot, no_gpu)" in ran.err
    assert not api.requests("POST", "/instances")


IDLE_VALUES = {"unset": "unset", "off": "off", "default": "default", "0": 0, "30m": 1800, "1h30m": 5400}


@pytest.mark.parametrize(("typed", "value"), IDLE_VALUES.items(), ids=IDLE_VALUES.keys())
def test_unset_off_default_and_0_are_four_values(
    api: FakeApi, line: CommandLine, typed: str, value: object
) -> None:
    api.on("PATCH", "/instances/lab", examples.instance())
    api.on("GET", "/instances/lab", Reply(200, examples.instance(), {"ETag": '"7"'}))
    assert line.run("set", "lab", "--idle-stop", typed).code == 0
    (seen,) = api.requests("PATCH", "/instances/lab")
    assert (seen.json, seen.headers["if-match"]) == ({"idle_stop": value}, '"7"')


@pytest.mark.parametrize("typed", ["", "30", "-1m", "1.5h", "forever", "30m "])
def test_what_is_no_length_is_told_with_what_one_is(line: CommandLine, typed: str) -> None:
    ran = line.run("set", "lab", f"--idle-stop={typed}")
    assert ran.code == 2
    assert "such as 30m or 0" in ran.err


def test_a_start_without_cards_says_the_price_of_one_and_sends_no_tariff(
    api: FakeApi, line: CommandLine
) -> None:
    api.on("GET", "/instances/lab", examples.stopped(cards=8))
    api.on("POST", "/instances/0191-lab:start", examples.instance(no_gpu=True))
    ran = line.run("start", "lab", "--no-gpu", "--yes")
    assert ran.err.startswith("price: no_gpu (8 x rtx4090 stay away): CNY 0.498 per hour")
    assert sent(api, "POST", "/instances/0191-lab:start") == {"no_gpu": True, "wait": False}
    assert line.run("start", "lab", "--no-gpu", "--tariff", "spot", "--yes").code == 2


WAITING = {
    "neither: no queue, stays": ((), False, True),
    "--wait: queues, stays": (("--wait",), True, True),
    "--no-wait: returns": (("--no-wait",), False, False),
}


@pytest.mark.parametrize(("flags", "wait", "stays"), WAITING.values(), ids=WAITING.keys())
def test_waiting_for_cards_and_for_the_start_are_two_things(
    api: FakeApi, line: CommandLine, flags: tuple[str, ...], wait: bool, stays: bool
) -> None:
    api.on("POST", "/instances", Reply(201, queued(message="8 of 8 cards are taken")))
    ran = line.run("launch", *WANTED, *flags, "--yes")
    assert ran.code == 0
    assert sent(api, "POST", "/instances")["wait"] is wait
    assert bool(api.requests("GET", "/instances/0191-lab")) is stays
    assert ("is ready" in ran.err) is stays


ENDS = {"no_cards": 6, "no_money": 7, "disk_in_use": 5, "start_failed": 1}


@pytest.mark.parametrize(("reason", "code"), ENDS.items(), ids=ENDS.keys())
def test_a_start_that_ends_stopped_says_why_and_exits_with_the_code_of_that(
    api: FakeApi, line: CommandLine, reason: str, code: int
) -> None:
    ended = examples.stopped(reason=reason, message="that is why")
    api.on("POST", "/instances", Reply(201, queued()))
    api.on("GET", "/instances/0191-lab", queued(), ended)
    ran = line.run("launch", *WANTED, "--yes")
    assert ran.code == code
    assert ran.err.endswith("lab is stopped: that is why\n")


def test_no_free_cards_are_exit_code_6(api: FakeApi, line: CommandLine) -> None:
    api.on("POST", "/instances", Reply(507, {"code": "no_capacity", "detail": "none is free"}))
    assert line.run("launch", *WANTED, "--yes").code == 6


def test_one_that_is_being_resized_is_not_called_ready_before_its_new_start(
    api: FakeApi, line: CommandLine
) -> None:
    ending = examples.instance(reason="resized", cards=4)
    api.on("POST", "/instances/0191-lab:resize", ending)
    api.on("GET", "/instances/0191-lab", ending, queued(cards=4), examples.instance(cards=4))
    ran = line.run("resize", "lab", "--cards", "4", "--yes")
    assert ran.code == 0
    assert len(api.requests("GET", "/instances/0191-lab")) == 3
    assert sent(api, "POST", "/instances/0191-lab:resize") == {"cards": 4, "wait": False}


def test_a_stopped_one_is_resized_without_a_start(api: FakeApi, line: CommandLine) -> None:
    api.on("GET", "/instances/lab", examples.stopped())
    api.on("POST", "/instances/0191-lab:resize", examples.stopped(cards=4))
    ran = line.run("resize", "lab", "--cards", "4", "--yes")
    assert (ran.code, ran.err.splitlines()[-1]) == (0, "lab has 4 x rtx4090 at its next start")


def test_stopping_stays_until_it_has_stopped_and_says_how_long_its_files_are_kept(
    api: FakeApi, line: CommandLine
) -> None:
    api.on("POST", "/instances/lab:stop", examples.instance(reason="asked"))
    api.on("GET", "/instances/0191-lab", examples.instance(reason="asked"), examples.stopped())
    ran = line.run("stop", "lab")
    assert (ran.code, ran.err) == (0, "lab stopped; its files are kept until 2026-03-25 11:45:00Z\n")
    assert line.run("stop", "lab", "--no-wait").err.startswith("lab stopping")


def test_removing_names_what_is_lost_and_what_is_kept(api: FakeApi, line: CommandLine) -> None:
    api.on("DELETE", "/instances/0191-lab", Reply(204))
    ran = line.run("rm", "lab", stdin="n\n", terminal=True)
    assert ran.code == 1
    assert "lost for good: everything in /workspace and /root" in ran.err
    assert "kept: disk home" in ran.err
    assert not api.requests("DELETE", "/instances/0191-lab")
    assert line.run("rm", "lab", "--yes", "--json").json == {"version": 1, "released": ["lab"]}
    assert line.run("delete", "lab", "--yes").code == 0


def test_a_clone_an_extension_and_a_new_name(api: FakeApi, line: CommandLine) -> None:
    api.on("POST", "/instances/lab:clone", Reply(201, examples.stopped("lab-2", reason="cloning")))
    copying, there = (examples.stopped("lab-2", reason=reason) for reason in ("cloning", "new"))
    api.on("GET", "/instances/0191-lab-2", copying, there)
    api.on("POST", "/instances/lab:extend", examples.stopped(release_at="2026-04-10T00:00:00Z"))
    api.on("PATCH", "/instances/lab", examples.instance("atelier"))
    assert line.run("clone", "lab", "--name", "lab-2").out == "lab-2\n"
    assert len(api.requests("GET", "/instances/0191-lab-2")) == 2
    assert line.run("extend", "lab", "--days", "30").err == "lab is kept until 2026-04-10 00:00:00Z\n"
    assert line.run("set", "lab", "--name", "atelier").code == 0
    bodies = [seen.json for seen in api.seen if seen.method in ("POST", "PATCH")]
    assert bodies == [{"name": "lab-2"}, {"days": 30}, {"name": "atelier"}]
    assert line.run("set", "lab").code == 2


def test_the_list_asks_for_states_and_for_those_that_are_gone(api: FakeApi, line: CommandLine) -> None:
    api.on("GET", "/instances", {"items": [], "next_cursor": None})
    line.run("ps", "--state", "running", "--state", "queued", "--all")
    assert api.seen[0].query == {"state": ["running", "queued"], "all": ["true"]}


def test_an_address_goes_to_stdout_and_to_a_browser_only_where_somebody_looks(
    api: FakeApi, line: CommandLine
) -> None:
    url = "http://gpu.example.org/apps/0191-lab/8888/?token=x"
    api.on("POST", "/instances/lab/app-links", Reply(201, {"url": url, "expires_at": None}))
    assert line.run("open", "lab", "jupyter").out == f"{url}\n"
    assert line.browsed == []
    assert line.run("open", "lab", "6006", terminal=True).code == 0
    assert line.browsed == [url]
    line.run("open", "lab", "6006", "--no-browser", terminal=True)
    assert line.browsed == [url]
    bodies = [seen.json for seen in api.requests("POST", "/instances/lab/app-links")]
    assert bodies == [{"app": "jupyter"}, {"app": 6006}, {"app": 6006}]
    assert line.run("open", "lab", "terminal").out == f"ws{api.url[4:]}/api/v1/instances/0191-lab/terminal\n"
    for wrong in ("0", "65536", "vim", "６"):
        assert line.run("open", "lab", wrong).code == 2, wrong


def test_an_interrupt_while_it_starts_leaves_it_and_says_so(api: FakeApi, tmp_path: Path) -> None:
    from starverse.cli.remote.entry import run
    from starverse.cli.remote.session import Session
    from starverse.testing.command_lines import Terminal

    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    api.on("POST", "/instances", Reply(201, queued()))
    api.on("GET", "/instances/0191-lab", queued())
    out, err = Terminal(), Terminal()
    session = Session(
        {"STARVERSE_API": api.url, "STARVERSE_TOKEN": "t", "HOME": str(tmp_path)},
        Terminal(), out, err, tmp_path, pause=interrupted,
    )  # fmt: skip
    assert run(["launch", *WANTED, "--yes"], session) == 130
    assert "lab goes on; end it: starverse stop lab" in err.getvalue()


def test_the_exit_code_of_another_program_is_the_commands(api: FakeApi, line: CommandLine) -> None:
    api.on("GET", "/ssh-keys", {"items": [examples.ssh_key()], "next_cursor": None})
    api.on("GET", "/ssh", examples.gateway())
    for words in (("ssh", "lab"), ("exec", "lab", "--", "true"), ("cp", "lab:x", ".")):
        assert line.run(*words).code == PROGRAM_EXIT_CODE
    assert [argv[0] for argv in line.became] == ["ssh", "ssh", "scp"]


@pytest.mark.parametrize(
    ("policy", "shown"),
    [
        ({"ttl_seconds": 7200}, "ttl 2 h after each start"),
        ({"ttl_seconds": None, "idle_stop": 0}, "idle stop after 0 s"),
        ({"idle_stop": "unset"}, "idle stop unset"),
    ],
)
def test_what_stops_it_by_itself_is_shown_also_while_it_is_stopped(
    api: FakeApi, line: CommandLine, policy: dict[str, Any], shown: str
) -> None:
    api.on("GET", "/instances/lab", {**examples.instance(), "state": "stopped", "policy": policy})
    assert shown in " ".join(line.run("show", "lab").out.split())


NOW = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("changes", "warning"),
    [
        ({"state": "stopped", "release_at": "2026-03-14T12:00:00Z"}, None),
        ({"state": "stopped", "release_at": "2026-03-12T12:00:00Z"}, "starverse extend lab"),
        ({"state": "running", "idle": {"verdict": "idle", "stops_at": "2026-03-10T12:10:00Z"}}, None),
        (
            {"state": "running", "idle": {"verdict": "warned", "stops_at": "2026-03-10T12:01:00Z"}},
            "and stops at",
        ),
        ({"state": "running", "idle": {"verdict": "warned", "stops_at": None}}, None),
    ],
    ids=[
        "its release is far",
        "its release is near",
        "idle for a while",
        "idle for long",
        "idle never stops it",
    ],
)
def test_what_is_lost_or_stops_soon_is_said_before(changes: dict[str, Any], warning: str | None) -> None:
    said = warnings_of(cast(Instance, examples.instance() | {"release_at": None} | changes), NOW)
    assert [warning in line for line in said if warning] == ([True] if warning else [])
    assert len(said) == (warning is not None)


def test_lists_and_single_looks_warn(api: FakeApi, line: CommandLine) -> None:
    soon = examples.instance() | {"state": "stopped", "release_at": "2026-03-10T12:00:00Z"}
    api.on("GET", "/instances", {"items": [soon], "next_cursor": None})
    api.on("GET", "/instances/lab", soon)
    for words in (("ps",), ("show", "lab")):
        assert "released with its own files" in line.run(*words).err


CONFLICT = Reply(409, {"code": "conflict", "detail": "instance old is stopped already"})
GONE = Reply(404, {"code": "not_found", "detail": "There is no instance gone."})


def test_one_that_is_refused_keeps_no_other_from_being_stopped(api: FakeApi, line: CommandLine) -> None:
    api.on("POST", "/instances/old:stop", CONFLICT)
    api.on("POST", "/instances/gone:stop", GONE)
    api.on("POST", "/instances/lab:stop", examples.instance(state="stopped"))
    ran = line.run("stop", "old", "gone", "lab", "--no-wait")
    assert (ran.code, len(api.requests("POST", "/instances/lab:stop"))) == (5, 1)
    assert all(
        word in ran.err for word in ("lab stopped", "There is no instance gone.", "old is stopped already")
    )
    told = line.run("--json", "stop", "old", "lab", "--no-wait")
    assert (told.out, json.loads(told.err.splitlines()[-1])["error"]["code"]) == ("", "conflict")


def test_one_that_is_refused_keeps_no_other_from_being_released(api: FakeApi, line: CommandLine) -> None:
    for name in ("old", "lab"):
        api.on("GET", f"/instances/{name}", examples.instance(id=f"id-{name}", name=name, state="stopped"))
    api.on("DELETE", "/instances/id-old", CONFLICT)
    api.on("DELETE", "/instances/id-lab", Reply(204, {}))
    ran = line.run("rm", "old", "lab", "--yes")
    assert (ran.code, len(api.requests("DELETE", "/instances/id-lab"))) == (5, 1)
    assert "lab is released" in ran.err
