"""The other commands: sign-in, teams, money, jobs, files, operators: what they send and say."""

from __future__ import annotations

import io
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from starverse.testing import api_examples as examples
from starverse.testing.command_lines import CommandLine
from starverse.testing.fake_api import BREAK, FakeApi, Reply, sse

ACCOUNT = {"id": "a", "email": "wang@example.org", "operator": False, "created_at": "2026-03-10T00:00:00Z"}
STREAM = {"Content-Type": "text/event-stream"}


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with FakeApi() as fake:
        yield fake


@pytest.fixture
def line(api: FakeApi, tmp_path: Path) -> CommandLine:
    return CommandLine(api.url, tmp_path)


@pytest.fixture
def newcomer(api: FakeApi, tmp_path: Path) -> CommandLine:
    return CommandLine(api.url, tmp_path, {"STARVERSE_TOKEN": ""})


def test_registering_signs_in_and_says_what_is_in_the_wallet(
    api: FakeApi, newcomer: CommandLine, tmp_path: Path
) -> None:
    wallet = {**examples.wallet(), "free_micro": 10_000_000, "free": "10.00"}
    api.on(
        "POST",
        "/accounts",
        Reply(
            201, {"account": ACCOUNT, "team": {"id": "t", "name": "wang"}, "token": "s-1", "wallet": wallet}
        ),
    )
    api.on("GET", "/wallet", wallet)
    ran = newcomer.run("register", "wang@example.org", stdin="correct horse\n")
    assert ran.code == 0
    assert "CNY 10.00 to spend" in ran.out
    assert "s-1" not in ran.out + ran.err
    assert api.seen[0].json == {"email": "wang@example.org", "password": "correct horse"}
    kept = tmp_path / ".config" / "starverse" / "credentials.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    newcomer.run("wallet")
    assert api.seen[-1].headers["authorization"] == "Bearer s-1"


def test_signing_out_revokes_and_forgets(api: FakeApi, newcomer: CommandLine) -> None:
    api.on("POST", "/sessions", Reply(201, {"token": "s-2", "token_id": "i", "account": ACCOUNT}))
    api.on("DELETE", "/sessions/current", Reply(204))
    api.on("GET", "/wallet", Reply(401, {"code": "unauthenticated", "detail": "sign in first"}))
    assert newcomer.run("login", "wang@example.org", stdin="pw\n").code == 0
    assert newcomer.run("logout").code == 0
    assert newcomer.run("wallet").code == 4
    assert "authorization" not in api.seen[-1].headers


def test_a_team_is_named_on_any_command(api: FakeApi, line: CommandLine) -> None:
    api.on("GET", "/wallet", examples.wallet())
    for words in (("--team", "lab", "wallet"), ("wallet", "--team", "lab")):
        line.run(*words)
        assert api.seen[-1].headers["x-starverse-team"] == "lab"


def test_a_new_token_goes_to_stdout_alone(api: FakeApi, line: CommandLine) -> None:
    api.on("POST", "/tokens", Reply(201, {"id": "i", "name": "ci", "scope": "team", "token": "s-3"}))
    ran = line.run("token", "create", "ci", "--expires-in-days", "30", "--team", "lab")
    assert ran.out == "s-3\n"
    assert api.seen[0].json == {"name": "ci", "team": "lab", "expires_in_days": 30}


def test_top_ups_by_hand_and_by_themselves(api: FakeApi, line: CommandLine) -> None:
    api.on("POST", "/topups", Reply(201, {"id": "t1", "state": "paid", "amount": "50.00"}))
    api.on("PUT", "/wallet/auto-topup", {"below": "5.00", "amount": "20.00", "armed": True})
    api.on("DELETE", "/wallet/auto-topup", Reply(204))
    assert "paid" in line.run("topup", "50").out
    assert line.run("topup", "--auto-below", "5", "--amount", "20").code == 0
    assert line.run("topup", "--auto-off").code == 0
    assert [seen.json for seen in api.seen[:2]] == [
        {"amount": "50", "provider": "mock"},
        {"below": "5", "amount": "20"},
    ]


def test_a_refund_names_the_top_up_and_maybe_an_amount(api: FakeApi, line: CommandLine) -> None:
    api.on("POST", "/topups/t1/refunds", Reply(201, {"id": "r1", "amount": "12.50"}))
    assert "CNY 12.50" in line.run("refund", "t1", "12.50").out
    assert api.seen[0].json == {"amount": "12.50"}
    line.run("refund", "t1")
    assert api.seen[1].json == {}


def test_a_new_password_is_typed_twice_at_a_terminal_and_the_same(api: FakeApi, line: CommandLine) -> None:
    made = {
        "account": {"email": "a@example.org"},
        "team": {"name": "a"},
        "token": "t",
        "wallet": {"free": "10"},
    }
    api.on("POST", "/accounts", Reply(201, made))
    api.on("GET", "/me", Reply(401, {"code": "unauthenticated", "detail": "sign in"}))
    differ = line.run("register", "a@example.org", stdin="one password\nother password\n", terminal=True)
    assert (differ.code, [seen.method for seen in api.seen]) == (2, ["GET"])
    assert "differ" in differ.err
    same = line.run("register", "a@example.org", stdin="one password\none password\n", terminal=True)
    assert same.code == 0
    assert same.err.startswith("Password (10 characters or more): Password again: ")
    assert line.run("register", "a@example.org", stdin="one password\n").code == 0
    assert {seen.json["password"] for seen in api.seen if seen.body} == {"one password"}


def test_nobody_is_asked_for_a_password_that_no_server_would_get(line: CommandLine) -> None:
    line.api = "http://127.0.0.1:1"
    for words in (("login", "a@example.org"), ("register", "a@example.org")):
        ran = line.run(*words, stdin="a password\n", terminal=True)
        assert ran.code == 1
        assert "Password" not in ran.err


def test_offers_of_nothing_say_where_to_look(api: FakeApi, line: CommandLine) -> None:
    api.on("GET", "/offers", {"items": [], "next_cursor": None})
    assert "starverse offers" in line.run("offers", "--card", "h100").err
    assert "starverse doctor" in line.run("offers").err


def test_destroying_asks_at_a_terminal(api: FakeApi, line: CommandLine) -> None:
    api.on("POST", "/jobs/12:cancel", Reply(202, examples.job()))
    assert line.run("job", "cancel", "12", stdin="n\n", terminal=True).code == 1
    assert api.seen == []
    assert line.run("job", "cancel", "12", stdin="y\n", terminal=True).code == 0
    assert line.run("job", "cancel", "12", "--yes", terminal=True).code == 0
    assert line.run("job", "cancel", "12", "--signal", "USR1").code == 0
    assert api.seen[-1].json == {"signal": "USR1"}


def test_json_asks_at_a_terminal_too(api: FakeApi, line: CommandLine) -> None:
    api.on("POST", "/topups", Reply(201, {"id": "t1", "state": "paid", "amount": "5.00"}))
    assert line.run("topup", "5", "--json", stdin="n\n", terminal=True).code == 1
    assert api.seen == []
    ran = line.run("topup", "5", "--json", stdin="y\n", terminal=True)
    assert (ran.code, ran.json["state"]) == (0, "paid")
    assert "Pay in CNY 5?" in ran.err


def test_a_resumed_job_shows_its_price_first_and_is_named_by_its_own_number(
    api: FakeApi, line: CommandLine
) -> None:
    api.on("GET", "/jobs/12", examples.job("12", state="failed"))
    api.on("POST", "/jobs/12:resume", Reply(202, examples.job("81", state="queued")))
    ran = line.run("job", "resume", "12", stdin="n\n", terminal=True)
    assert (ran.code, [seen.method for seen in api.seen]) == (1, ["GET"])
    ran = line.run("job", "resume", "12", stdin="y\n", terminal=True)
    assert ran.out == "81\n"
    assert "price: CNY 0.996 per hour (spot), for at most 2 h" in ran.err.splitlines()[0]
    assert ran.err.endswith("job 81 goes on with job 12; watch it: starverse job logs -f 81\n")


def test_a_waiting_job_that_is_tried_again_keeps_its_number(api: FakeApi, line: CommandLine) -> None:
    api.on("GET", "/jobs/12", examples.job("12", state="queued"))
    api.on("POST", "/jobs/12:resume", Reply(202, examples.job("12", state="queued")))
    assert "job 12 is tried again" in line.run("job", "resume", "12").err


DATASET = {"name": "digits", "version": 2, "state": "damaged", "files": 2, "bytes": 9}


def test_what_is_shown_never_hides_the_version_of_its_form(api: FakeApi, line: CommandLine) -> None:
    api.on("GET", "/datasets/digits", DATASET)
    api.on("POST", "/datasets/digits:verify", {**DATASET, "faults": []})
    api.on("POST", "/datasets", Reply(201, DATASET))
    about = ("--title", "T", "--source", "S", "--licence", "L")
    for words in (("show", "digits"), ("verify", "digits"), ("add", "digits", ".", *about)):
        shown = line.run("dataset", *words, "--json").json
        assert (shown["version"], shown["dataset_version"]) == (1, 2), words


def test_the_faults_of_a_dataset_are_told_plainly_with_what_mends_it(api: FakeApi, line: CommandLine) -> None:
    fault = {"path": "raw/图像.bin", "kind": "size", "detail": "256 bytes, now 3"}
    api.on("POST", "/datasets/digits:verify", {**DATASET, "faults": [fault]})
    ran = line.run("dataset", "verify", "digits")
    assert ran.code == 1
    assert "raw/图像.bin: size (256 bytes, now 3)" in ran.out
    assert "{" not in ran.out
    assert "starverse dataset add digits" in ran.err


def test_the_queue_asks_for_open_jobs_only(api: FakeApi, line: CommandLine) -> None:
    api.on("GET", "/jobs", {"items": [examples.job()], "next_cursor": None})
    assert line.run("queue").err == ""
    assert api.seen[0].query["state"] == ["queued", "running"]


def test_the_queue_says_who_explains_a_wait(api: FakeApi, line: CommandLine) -> None:
    waits = examples.job("13", state="queued", reason="shadow_start")
    api.on("GET", "/jobs", {"items": [examples.job(), waits], "next_cursor": None})
    assert "starverse job why 13" in line.run("queue").err


def test_a_log_is_printed_as_it_is(api: FakeApi, line: CommandLine) -> None:
    api.on("GET", "/jobs/12/logs", {"attempt": 2, "offset": 0, "next_offset": 0, "text": "50%\r100%\n"})
    ran = line.run("job", "logs", "12", "--attempt", "2", "--stderr")
    assert ran.out == "50%\r100%\n"
    assert api.seen[0].query == {"attempt": ["2"], "stream": ["err"], "offset": ["0"], "limit": ["262144"]}


def test_following_tells_gaps_and_breaks_on_stderr(api: FakeApi, line: CommandLine) -> None:
    first = sse(("gap", "1:100", {"from": 0, "to": 100}), ("log", "1:100", {"text": "a\n"}))
    last = sse(("log", "1:102", {"text": "b\n"}), ("end", "1:104", {"state": "succeeded", "exit_code": 0}))
    api.on(
        "GET", "/jobs/12/logs:follow", Reply(200, first, STREAM, cut=True), BREAK, BREAK, BREAK, BREAK,
        Reply(200, last, STREAM),
    )  # fmt: skip
    ran = line.run("job", "logs", "-f", "12")
    assert (ran.code, ran.out) == (0, "a\nb\n")
    assert "bytes 0 to 100" in ran.err
    assert "connection lost" in ran.err
    assert ran.err.endswith("job 12 succeeded\n")


def test_the_bill_can_be_asked_for_by_job_month_and_label(api: FakeApi, line: CommandLine) -> None:
    api.on("GET", "/bill", {**examples.bill(), "charges": [], "open": []})
    ran = line.run("bill", "--job", "12", "--month", "2026-03", "--label", "论文")
    assert ran.out.startswith("nothing charged yet")
    assert api.seen[0].query == {"job": ["12"], "month": ["2026-03"], "label": ["论文"]}


def tar_of(**files: str) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return raw.getvalue()


def test_a_file_is_copied_out_of_a_job(api: FakeApi, line: CommandLine, tmp_path: Path) -> None:
    api.on("GET", "/jobs/12/files/out/%E6%A8%A1%E5%9E%8B%201.npz", Reply(200, b"\x00\x01"))
    ran = line.run("cp", "12:out/模型 1.npz", ".")
    assert ran.code == 0
    assert (tmp_path / "模型 1.npz").read_bytes() == b"\x00\x01"
    assert line.run("cp", "12:/workspace/out/模型 1.npz", "new/name").code == 0
    assert (tmp_path / "new" / "name").read_bytes() == b"\x00\x01"


def test_a_copy_that_breaks_leaves_nothing_half_written(
    api: FakeApi, line: CommandLine, tmp_path: Path
) -> None:
    (tmp_path / "m").write_bytes(b"old")
    api.on("GET", "/jobs/12/files/m", Reply(200, b"half", cut=True))
    assert line.run("cp", "12:m", "m").code == 1
    assert [path.name for path in tmp_path.iterdir()] == ["m"]
    assert (tmp_path / "m").read_bytes() == b"old"


def test_a_folder_is_copied_out_of_a_job(api: FakeApi, line: CommandLine, tmp_path: Path) -> None:
    tar = Reply(200, tar_of(**{"a.txt": "a", "sub/b.txt": "乙"}), {"Content-Type": "application/x-tar"})
    api.on("GET", "/jobs/15_2/files/out", tar)
    assert line.run("cp", "15_2:out", ".").code == 0
    assert (tmp_path / "out" / "sub" / "b.txt").read_text() == "乙"


@pytest.mark.parametrize("name", ["../up.txt", "/etc/x", "a/../../up.txt"])
def test_an_archive_cannot_write_outside_its_folder(
    api: FakeApi, line: CommandLine, tmp_path: Path, name: str
) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    api.on(
        "GET", "/jobs/12/files/out", Reply(200, tar_of(**{name: "x"}), {"Content-Type": "application/x-tar"})
    )
    ran = line.run("cp", "12:out", "inner")
    assert ran.code == 2
    assert "outside" in ran.err
    assert not (tmp_path / "up.txt").exists()


def test_files_and_folders_are_copied_into_a_job(api: FakeApi, line: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "a b.yaml").write_text("x")
    (tmp_path / "one.txt").write_text("1")
    for path in ("conf/a%20b.yaml", "in/one.txt", "named.txt", "one.txt"):
        api.on("PUT", f"/jobs/12/files/{path}", Reply(204))
    for words in (("conf", "12:"), ("one.txt", "12:in/"), ("one.txt", "12:named.txt"), ("one.txt", "12:.")):
        assert line.run("cp", *words).code == 0, words
    puts = [seen for seen in api.seen if seen.method == "PUT"]
    assert [seen.path.removeprefix("/jobs/12/files/") for seen in puts] == [
        "conf/a%20b.yaml",
        "in/one.txt",
        "named.txt",
        "one.txt",
    ]


@pytest.mark.parametrize(
    ("there", "target", "path"),
    [
        (True, "12:old", "old/conf/a.yaml"),
        (False, "12:new", "new/a.yaml"),
        (False, "12:new/", "new/conf/a.yaml"),
        (False, "12:", "conf/a.yaml"),
    ],
    ids=["a folder that is there", "a new name", "a folder by its slash", "the job's folder"],
)
def test_a_folder_is_copied_in_as_cp_does(
    api: FakeApi, line: CommandLine, tmp_path: Path, there: bool, target: str, path: str
) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "a.yaml").write_text("x")
    (tmp_path / "conf" / "nothing").mkdir()
    missing = Reply(404, {"code": "not_found", "detail": "no such folder"})
    api.on("GET", "/jobs/12/files", {"items": [], "next_cursor": None} if there else missing)
    api.on("PUT", f"/jobs/12/files/{path}", Reply(204))
    ran = line.run("cp", "conf", target)
    assert (ran.code, [seen.path for seen in api.seen if seen.method == "PUT"]) == (
        0,
        [f"/jobs/12/files/{path}"],
    )
    assert "not sent, because they are empty: nothing" in ran.err


def test_cards_without_a_price_are_told(api: FakeApi, line: CommandLine) -> None:
    sold = examples.offers()[0]
    api.on("GET", "/offers", {"items": [sold, {**sold, "card": "h900", "prices": []}], "next_cursor": None})
    assert "without a price in the price book, so nobody can use them: h900" in line.run("offers").err


def test_a_file_that_is_there_is_written_over(api: FakeApi, line: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("1")
    itself = {"path": "out/old.txt", "kind": "file", "bytes": 3}
    api.on("GET", "/jobs/12/files", {"items": [itself], "next_cursor": None})
    api.on("PUT", "/jobs/12/files/out/old.txt", Reply(204))
    assert line.run("cp", "one.txt", "12:out/old.txt").code == 0


def test_a_file_is_printed(api: FakeApi, line: CommandLine, tmp_path: Path) -> None:
    api.on("GET", "/jobs/12/files/out.txt", Reply(200, "一\n".encode()))
    ran = line.run("cp", "12:out.txt", "-")
    assert (ran.code, ran.out, ran.err) == (0, "一\n", "")
    assert list(tmp_path.iterdir()) == []


def test_a_path_outside_of_the_jobs_folder_is_refused(api: FakeApi, line: CommandLine) -> None:
    for path in ("/etc/passwd", "/workspace/../etc/passwd", "/workspacer", "../x"):
        assert line.run("cp", f"12:{path}", ".").code == 2, path
    assert api.seen == []


def test_two_places_of_the_same_kind_cannot_be_copied(line: CommandLine) -> None:
    assert line.run("cp", "a", "b").code == 2
    assert line.run("cp", "1:a", "2:b").code == 2


def test_the_first_operator_is_made_with_the_token_of_the_data_folder(
    api: FakeApi, newcomer: CommandLine, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "operator-token").write_text("boot\n")
    (data / "api-url").write_text(api.url + "\n")
    api.on("PATCH", "/admin/accounts/wang%40example.org", {**ACCOUNT, "operator": True})
    ran = newcomer.run("admin", "account", "operator", "wang@example.org", "--data", str(data))
    assert ran.code == 0
    assert api.seen[0].headers["authorization"] == "Bearer boot"
    assert api.seen[0].json == {"operator": True}


def test_a_broken_ledger_is_a_failure(api: FakeApi, line: CommandLine) -> None:
    checks = [{"name": "sums_to_zero", "holds": False, "detail": "off by 1"}]
    api.on("GET", "/admin/ledger/check", {"holds": False, "invariants": checks})
    ran = line.run("admin", "ledger", "check")
    assert ran.code == 1
    assert "BROKEN" in ran.out


def test_operators_set_prices_accounts_and_gifts(api: FakeApi, line: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "book.yaml").write_text("effective_from: x\n")
    api.on("POST", "/admin/price-books", Reply(201, {"id": "pb", "effective_from": "2026-04-01T00:00:00Z"}))
    api.on("PATCH", "/admin/accounts/a%40b.c", ACCOUNT)
    api.on("POST", "/admin/teams/lab/grants", Reply(201, {"id": "g"}))
    assert line.run("admin", "price", "set", str(tmp_path / "book.yaml")).out == "pb\n"
    assert line.run("admin", "account", "set", "a@b.c", "--member", "edu", "--enabled").code == 0
    assert api.seen[-1].json == {"member": "edu", "disabled": False}
    assert line.run("admin", "team", "grant", "lab", "coupon", "50", "--reason", "paper").out == "g\n"
    assert api.seen[-1].json == {"kind": "coupon", "amount": "50", "reason": "paper"}


def test_shims_are_written_but_never_over_someone_elses_command(line: CommandLine, tmp_path: Path) -> None:
    ran = line.run("shims", "install", "bin")
    assert len(ran.out.splitlines()) == 7
    assert (tmp_path / "bin" / "sbatch").stat().st_mode & 0o111
    assert line.run("shims", "install", "bin").code == 0
    (tmp_path / "bin" / "squeue").write_text("#!/bin/sh\nreal\n")
    ran = line.run("shims", "install", "bin")
    assert ran.code == 2
    assert "squeue" in ran.err
    assert (tmp_path / "bin" / "squeue").read_text() == "#!/bin/sh\nreal\n"


def test_what_a_reconciler_says_is_one_short_line_in_its_row(api: FakeApi, line: CommandLine) -> None:
    said = {"name": "disks", "state": "ok", "runs": 1, "failures": 0, "message": "word\n" * 100}
    api.on("GET", "/admin/status", {"reconcilers": [said]})
    row = line.run("admin", "status").out.splitlines()[-1]
    assert row.endswith("word wo...") and len(row) < 120
