"""``slurm plan`` and ``slurm check`` on a real Slurm: what is broken is named, nothing is left behind."""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from starverse.cli.local.slurm_cluster import Access, SlurmSilent, read_facts, sample_nodes
from starverse.cli.local.slurm_rest import ask_rest
from starverse.cli.remote.entry import run
from starverse.cli.remote.session import Session
from starverse.domain.slurm_cluster.facts import Finding, Verdict, Wanted
from starverse.domain.slurm_cluster.judge import blocks, judge
from starverse.domain.slurm_cluster.samples import judge_samples
from starverse.testing.slurm_lab import SlurmLab

pytestmark = [
    pytest.mark.serial,
    pytest.mark.skipif(bool(SlurmLab.missing()), reason=SlurmLab.missing() or "Slurm is there"),
]
OURS = frozenset({"ib", "eth"})


@pytest.fixture(scope="module")
def lab() -> Iterator[SlurmLab]:
    with SlurmLab(nodes=2) as running:
        yield running


@pytest.fixture
def access(lab: SlurmLab, tmp_path: Path) -> Access:
    tmp_path.chmod(0o755)
    return Access(conf=str(lab.conf), python=sys.executable, data=tmp_path, declared=True)


def sampled(access: Access, wait_seconds: float = 60) -> dict[str, Finding]:
    samples, expected = sample_nodes(access, read_facts(access).nodes, OURS, wait_seconds)
    assert not list(access.data.iterdir()), "the folder of the check is still there"
    return {finding.name: finding for finding in judge_samples(samples, expected)}


def test_a_sound_cluster_answers_everything(access: Access) -> None:
    found = sampled(access)
    assert found.pop("card driver").verdict is Verdict.WARN  # the lab's cards are declared
    assert {finding.verdict for finding in found.values()} == {Verdict.OK}, found
    assert {"shared path", "clock", "python", "sandbox", "cards bound", "unix user"} == set(found)


def test_cards_that_no_driver_knows_block_as_no_job_would_start_on_them(access: Access) -> None:
    found = sampled(replace(access, declared=False))
    assert found["card driver"].verdict is Verdict.BLOCKS
    assert "no driver knows card 0" in found["card driver"].has
    assert "slurm.cards_declared" in found["card driver"].remedy


def test_a_python_that_is_not_there_is_named_with_its_error(access: Access, tmp_path: Path) -> None:
    found = sampled(Access(conf=access.conf, python="/nowhere/python", data=tmp_path))
    assert found["python"].verdict is Verdict.BLOCKS
    assert "/nowhere/python" in found["python"].has
    assert found["shared path"].verdict is Verdict.OK


def test_a_channel_that_nodes_cannot_reach_is_named(access: Access, tmp_path: Path) -> None:
    away = "192.0.2.1:8751"
    found = sampled(Access(conf=access.conf, python=sys.executable, data=tmp_path, channel=away))
    assert found["channel"].verdict is Verdict.BLOCKS


def test_a_channel_is_tried_whether_its_server_is_up_or_not(access: Access, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        up = sampled(Access(conf=access.conf, python=sys.executable, data=tmp_path, channel=address))
    down = sampled(Access(conf=access.conf, python=sys.executable, data=tmp_path, channel=address))
    assert up["channel"].verdict is down["channel"].verdict is Verdict.OK


def test_a_busy_node_is_unknown_and_its_job_does_not_stay(lab: SlurmLab, access: Access) -> None:
    busy = lab.command(
        *("sbatch", "--parsable", "-p", "ib", "-N1", "--gres=gpu:rtx4090:8", "--output=/dev/null"),
        *("--time=5", "--wrap", "sleep 300"),
    ).strip()
    try:
        found = sampled(access, wait_seconds=8)
    finally:
        lab.command("scancel", busy)
    assert found["node sample"].verdict is Verdict.UNKNOWN
    assert lab.node_names[0] in found["node sample"].has
    assert lab.node_names[1] in found["shared path"].has
    assert not lab.command("squeue", "-h", "-n", "starverse-check")


def test_what_scontrol_says_is_judged_and_a_drained_node_is_named(lab: SlurmLab, access: Access) -> None:
    name = lab.node_names[1]
    assert not [f for f in judge(read_facts(access), Wanted(OURS)) if f.name == "nodes/State" and f.remedy]
    lab.set_node(name, "drain", "fans are loud")
    try:
        found = {finding.name: finding for finding in judge(read_facts(access), Wanted(OURS))}
    finally:
        lab.set_node(name, "resume")
    assert name in found["nodes/State"].has
    assert "fans are loud" in found["nodes/State"].why


def test_partitions_that_share_nodes_with_others_block(access: Access) -> None:
    found = judge(read_facts(access), Wanted(frozenset({"ib"})))
    overlaps = {finding.name for finding in found if finding.name.startswith("overlap/")}
    others = {p for node in read_facts(access).nodes if "ib" in node.partitions for p in node.partitions} - {
        "ib"
    }
    assert overlaps == {f"overlap/{name}" for name in others}
    assert blocks(found) is bool(others)


def test_commands_that_are_missing_or_silent_are_told(access: Access, tmp_path: Path) -> None:
    with pytest.raises(SlurmSilent, match="scontrol"):
        read_facts(Access(conf=access.conf, path=str(tmp_path)))
    with pytest.raises(SlurmSilent):
        read_facts(Access(conf="/nowhere/slurm.conf"))


def test_slurmrestd_lets_in_who_has_the_key(lab: SlurmLab, tmp_path: Path) -> None:
    user = "root"
    let_in, version = ask_rest(lab.rest_url, lab.jwt_key, user)
    assert let_in.verdict is Verdict.OK, let_in
    assert version == "v0.0.38"
    (tmp_path / "other.key").write_bytes(b"x" * 32)
    refused, _ = ask_rest(lab.rest_url, tmp_path / "other.key", user)
    assert refused.verdict is Verdict.BLOCKS
    unreadable, _ = ask_rest(lab.rest_url, tmp_path / "missing.key", user)
    assert unreadable.name == "jwt key"
    silent, _ = ask_rest("http://127.0.0.1:1", lab.jwt_key, user)
    assert silent.verdict is Verdict.BLOCKS
    unset, _ = ask_rest("", None, user)
    assert unset.verdict is Verdict.WISH


Checked = tuple[int, dict[str, Any], str]
Check = Callable[..., Checked]


@pytest.fixture
def check(lab: SlurmLab, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Check:
    """The command with a settings file: exit code, its JSON, and what it prints for people."""
    tmp_path.chmod(0o755)

    def run_one(*words: str) -> tuple[int, str]:
        capsys.readouterr()
        try:
            code = run(["slurm", *words], Session())
        except SystemExit as end:
            code = int(str(end.code))
        return code, capsys.readouterr().out

    def run_both(*words: str, **settings: str) -> Checked:
        chosen = {"conf": str(lab.conf), "rest_url": lab.rest_url, "jwt_key": str(lab.jwt_key), **settings}
        lines = [f'{name} = "{value}"' for name, value in chosen.items()]
        lines += [] if "cards_declared" in settings else ["cards_declared = true"]
        file = tmp_path / "starverse.toml"
        head = f'[server]\ndata = "{tmp_path / "data"}"\n[engine]\nkind = "slurm"\n[slurm]'
        file.write_text("\n".join([head, *lines, ""]))
        code, told = run_one(*words, "--config", str(file), "--json")
        again, shown = run_one(*words, "--config", str(file), "--all")
        assert code == again
        return code, json.loads(told), shown

    return run_both


def test_the_commands_say_what_blocks_by_exit_code_json_and_table(lab: SlurmLab, check: Check) -> None:
    code, told, shown = check("plan", partitions="ib,eth")
    assert code == 1
    assert told["blocks"] is True
    assert {f["name"] for f in told["findings"] if f["verdict"] == "blocks"} == {"overlap/all"}
    assert "blocks   overlap/all" in shown
    ib_line = next(line for line in told["slurm_conf"] if line.startswith("PartitionName=ib "))
    assert lab.node_names[0] in ib_line
    assert ib_line in shown
    assert f"{len(lab.node_names)} nodes" in shown
    code, told, shown = check("check", partitions="all,ib,eth")
    assert code == 0, told
    verdicts = {finding["name"]: finding["verdict"] for finding in told["findings"]}
    for name in ("controller", "slurmrestd", "shared path", "clock", "python", "sandbox", "cards bound"):
        assert verdicts[name] == "ok", name
    assert verdicts["card links"] == "wish"
    assert verdicts["card driver"] == "warn"
    assert "nothing blocks" in shown


def test_a_cluster_that_does_not_answer_blocks_and_the_plan_still_tells_the_needs(check: Check) -> None:
    for words in (("plan",), ("check", "--no-jobs")):
        code, told, shown = check(*words, conf="/nowhere/slurm.conf")
        assert code == 1
        assert told["findings"][0]["name"] == "slurm"
        assert ("SelectType=select/cons_tres" in shown) is (words[0] == "plan")


def test_a_unix_user_that_is_not_safe_blocks(check: Check) -> None:
    users = "t1=root,t2=nobody-such"
    code, told, _ = check("check", "--no-jobs", partitions="all,ib,eth", unix_users=users)
    named = {finding["name"]: finding["verdict"] for finding in told["findings"]}
    assert code == 1
    assert named["slurm.unix_users/t1"] == named["slurm.unix_users/t2"] == "blocks"
    assert named["node sample"] == "unknown"


class _KnowsNothing(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_error(404)

    def log_message(self, *_: object) -> None:
        return


def test_a_slurmrestd_of_unknown_versions_is_told(lab: SlurmLab) -> None:
    with HTTPServer(("127.0.0.1", 0), _KnowsNothing) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            found, _ = ask_rest(f"http://127.0.0.1:{server.server_port}", lab.jwt_key, "root")
        finally:
            server.shutdown()
            thread.join()
    assert found.verdict is Verdict.BLOCKS
    assert "known" in found.has
