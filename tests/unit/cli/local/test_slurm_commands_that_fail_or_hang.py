"""``slurm check`` with commands that refuse, hang, or run a job whose answer never comes."""

from __future__ import annotations

from pathlib import Path

import pytest

from starverse.cli.local.slurm_cluster import Access, SlurmSilent, sample_nodes
from starverse.domain.slurm_cluster.facts import GresCards, NodeFacts, Verdict
from starverse.domain.slurm_cluster.samples import judge_samples

NODE = NodeFacts(
    "gpu001",
    frozenset({"idle"}),
    frozenset({"gpu", "other"}),
    (GresCards("rtx4090", 8, "RTX4090"),),
    frozenset(),
    64,
    512_000,
    "22.05.8",
)
OURS = frozenset({"gpu"})


class Commands:
    """A folder of commands that say what they are told and write down how they were called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.now = 1_000.0
        self.says("sbatch", "cat >/dev/null; echo 7")
        self.says("squeue", "echo '7 RUNNING None'")
        self.says("scancel", ":")

    def says(self, name: str, script: str) -> None:
        file = self.folder / name
        file.write_text(f'#!/bin/sh\necho "$(basename $0) $*" >>"{self.folder}/calls"\n{script}\n')
        file.chmod(0o755)

    def calls(self) -> str:
        file = self.folder / "calls"
        return file.read_text() if file.exists() else ""

    def access(self) -> Access:
        return Access(
            data=self.data,
            path=f"{self.folder}:/usr/bin:/bin",
            call_seconds=2.0,
            clock=lambda: self.now,
            pause=self._pass,
        )

    def _pass(self, seconds: float) -> None:
        self.now += seconds

    def findings(self, wait_seconds: float = 5) -> dict[str, tuple[Verdict, str]]:
        samples, expected = sample_nodes(self.access(), [NODE], OURS, wait_seconds)
        found = judge_samples(samples, expected)
        return {finding.name: (finding.verdict, f"{finding.has} {finding.why}") for finding in found}


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    return Commands(tmp_path)


def test_a_job_that_ran_and_wrote_nothing_here_means_a_path_that_is_not_shared(commands: Commands) -> None:
    commands.says("squeue", "echo '7 COMPLETED None'")
    verdict, said = commands.findings()["shared path"]
    assert verdict is Verdict.BLOCKS
    assert "not shared" in said
    assert commands.now >= 1_005, "caches of the file system were given their time"


def test_a_job_that_is_gone_from_the_queue_ran_as_well(commands: Commands) -> None:
    commands.says("squeue", ":")
    assert commands.findings()["shared path"][0] is Verdict.BLOCKS


def test_a_job_is_asked_for_one_card_of_its_type_in_a_partition_of_ours(commands: Commands) -> None:
    commands.findings(wait_seconds=1)
    (call,) = [line for line in commands.calls().splitlines() if line.startswith("sbatch")]
    for word in ("--nodelist=gpu001", "--partition=gpu", "--gres=gpu:RTX4090:1", "--no-requeue", "--time=2"):
        assert word in call.split()


def test_what_still_runs_at_the_end_of_the_wait_is_cancelled(commands: Commands) -> None:
    verdict, said = commands.findings(wait_seconds=1)["node sample"]
    assert verdict is Verdict.BLOCKS
    assert "RUNNING" in said
    assert "scancel --quiet 7" in commands.calls()


def test_a_refused_job_is_told_in_slurms_own_words(commands: Commands) -> None:
    commands.says("sbatch", "cat >/dev/null; echo 'sbatch: error: Invalid account' >&2; exit 1")
    verdict, said = commands.findings()["node sample"]
    assert verdict is Verdict.BLOCKS
    assert "Invalid account" in said


@pytest.mark.parametrize("squeue", ["exec sleep 60", "echo 'squeue: error: slurmctld' >&2; exit 1"])
def test_a_queue_that_hangs_or_fails_is_silence_and_leaves_nothing_behind(
    commands: Commands, squeue: str
) -> None:
    commands.says("squeue", squeue)
    with pytest.raises(SlurmSilent, match="squeue"):
        commands.findings()
    assert "scancel --quiet 7" in commands.calls()
    assert list(commands.data.iterdir()) == []


def test_an_answer_that_is_a_link_is_not_followed(commands: Commands) -> None:
    secret = commands.folder / "secret"
    secret.write_text("nonce=x\ntime=1000\n")
    commands.says(
        "sbatch",
        f'cat >/dev/null; for d in {commands.data}/*; do ln -s {secret} "$d/gpu001.sample"; done; echo 7',
    )
    commands.says("squeue", "echo '7 COMPLETED None'")
    assert set(commands.findings()) == {"shared path"}
