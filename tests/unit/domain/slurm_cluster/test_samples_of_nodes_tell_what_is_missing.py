"""What a short job on each node wrote, one thing wrong in each row."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from starverse.domain.slurm_cluster.facts import Verdict
from starverse.domain.slurm_cluster.samples import Expected, Sample, judge_samples, read_sample

EXPECTED = Expected(nonce="abc", version="0.1.0", folder="/shared", channel="head:8751", uids={"lab": 2001})
GOOD = {
    "node": "gpu001",
    "time": "1000.5",
    "nonce": "abc",
    "user": "starverse 900",
    "bwrap": "/usr/bin/bwrap",
    "cards": "0",
    "driver": "ok",
    "starverse": "0.1.0",
    "python": "/opt/starverse/bin/python",
    "sandbox": "ok:bubblewrap starts",
    "channel": "ok",
    "uid.lab": "2001",
}


@dataclass(frozen=True, slots=True)
class Row:
    story: str
    name: str
    verdict: Verdict
    changed: dict[str, str] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    says: str = "gpu001"


ROWS = [
    Row("a shared path", "shared path", Verdict.OK),
    Row("a folder of the same name", "shared path", Verdict.BLOCKS, {"nonce": "cat: No such file"}),
    Row("clocks agree", "clock", Verdict.OK),
    Row("a clock behind", "clock", Verdict.BLOCKS, {"time": "990"}, says="10 s behind"),
    Row("a clock ahead", "clock", Verdict.BLOCKS, {"time": "1031.2"}, says="30 s ahead"),
    Row("a clock that is not told", "clock", Verdict.UNKNOWN, {"time": "soon"}),
    Row("the same version", "python", Verdict.OK),
    Row("another version", "python", Verdict.BLOCKS, {"starverse": "0.0.9"}, says="0.0.9"),
    Row(
        "no Python there",
        "python",
        Verdict.BLOCKS,
        {"python_error": "not found"},
        without=("starverse",),
        says="not found",
    ),
    Row("a sandbox", "sandbox", Verdict.OK),
    Row("no bubblewrap", "sandbox", Verdict.BLOCKS, {"bwrap": ""}, says="no bwrap"),
    Row(
        "no user namespaces",
        "sandbox",
        Verdict.BLOCKS,
        {"sandbox": "missing:setting up uid map"},
        says="uid map",
    ),
    Row("cards are named", "cards bound", Verdict.OK),
    Row("cards are not named", "cards bound", Verdict.BLOCKS, {"cards": ""}),
    Row("the driver knows its card", "card driver", Verdict.OK),
    Row(
        "no driver knows it",
        "card driver",
        Verdict.BLOCKS,
        {"driver": "no driver knows card 0"},
        says="no driver knows card 0",
    ),
    Row("an ordinary user", "unix user", Verdict.OK, says="starverse"),
    Row("root drops by itself", "unix user", Verdict.OK, {"user": "root 0"}, says="root"),
    Row("users have the same numbers", "unix users", Verdict.OK),
    Row(
        "a user has another number",
        "unix users",
        Verdict.BLOCKS,
        {"uid.lab": "2002"},
        says="2001 on the server",
    ),
    Row("a user is missing", "unix users", Verdict.BLOCKS, {"uid.lab": ""}, says="missing"),
    Row("the channel is reached", "channel", Verdict.OK),
    Row(
        "the channel is not reached",
        "channel",
        Verdict.BLOCKS,
        {"channel": "head:8751: refused"},
        says="refused",
    ),
    Row("the channel was not tried", "channel", Verdict.BLOCKS, without=("channel",), says="not tried"),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.story)
def test_what_a_sample_tells(row: Row) -> None:
    values = {name: value for name, value in {**GOOD, **row.changed}.items() if name not in row.without}
    found = {finding.name: finding for finding in judge_samples([answer("gpu001", values)], EXPECTED)}
    assert found[row.name].verdict is row.verdict
    assert row.says in f"{found[row.name].has} {found[row.name].why}"


def test_cards_that_are_declared_need_no_driver_and_that_is_told() -> None:
    values = {**GOOD, "driver": "no driver knows card 0"}
    declared = replace(EXPECTED, declared=True)
    found = {finding.name: finding for finding in judge_samples([answer("gpu001", values)], declared)}
    assert found["card driver"].verdict is Verdict.WARN
    assert "trials only" in found["card driver"].why


@pytest.mark.parametrize(
    ("state", "name", "verdict"),
    [
        ("PENDING Resources", "node sample", Verdict.UNKNOWN),
        ("COMPLETED None", "shared path", Verdict.BLOCKS),
        ("FAILED NonZeroExitCode", "node sample", Verdict.BLOCKS),
        ("refused: sbatch: error: invalid account", "node sample", Verdict.BLOCKS),
        ("", "node sample", Verdict.BLOCKS),
    ],
)
def test_a_node_without_an_answer_is_told_by_what_slurm_says_of_its_job(
    state: str, name: str, verdict: Verdict
) -> None:
    (finding,) = judge_samples([Sample("gpu001", 1000, 1001, None, state)], EXPECTED)
    assert (finding.name, finding.verdict) == (name, verdict)
    assert "gpu001" in finding.has


def test_nodes_that_say_the_same_are_told_together_and_others_apart() -> None:
    samples = [answer(f"gpu{number:03}", GOOD) for number in range(1, 21)]
    samples.append(answer("gpu021", {**GOOD, "bwrap": ""}))
    sandbox = [finding for finding in judge_samples(samples, EXPECTED) if finding.name == "sandbox"]
    assert [finding.verdict for finding in sandbox] == [Verdict.OK, Verdict.BLOCKS]
    assert "and 12 more" in sandbox[0].has
    assert "gpu021" in sandbox[1].has


def test_a_torn_answer_loses_its_last_line_only() -> None:
    assert read_sample("time=1\nnonce=abc\nnonce=other\nuser=ro") == {"time": "1", "nonce": "abc"}


def answer(node: str, values: dict[str, str]) -> Sample:
    return Sample(node, asked_at=1000.0, seen_at=1001.0, values=values)
