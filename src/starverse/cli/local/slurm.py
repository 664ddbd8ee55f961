"""``starverse slurm plan`` and ``check``: what a Slurm cluster needs for the platform and what it has."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from starverse.cli.remote.commands import WholeLines

if TYPE_CHECKING:
    from starverse.cli.local.slurm_cluster import Access
    from starverse.config import Config
    from starverse.domain.slurm_cluster.facts import ClusterFacts, Finding, Wanted

WAIT_SECONDS = 60


def _options(function: Callable[..., None]) -> Callable[..., None]:
    file = click.Path(dir_okay=False, path_type=Path)
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
        click.option("--config", "file", type=file, metavar="FILE", help="Settings file."),
        click.option("--all", "show_all", is_flag=True, help="Also what is well."),
    ):
        function = option(function)
    return function


@click.group("slurm", cls=WholeLines)
def command() -> None:
    """Prepare a Slurm cluster for the platform."""


@command.command("plan")
@_options
def plan(as_json: bool, file: Path | None, show_all: bool) -> None:
    """Print what the cluster needs next to what it has, with the lines to write. Changes nothing.

    Exit code 0 where nothing keeps jobs from running safely.
    """
    from starverse.cli.local.slurm_cluster import SlurmSilent, read_facts
    from starverse.domain.slurm_cluster.judge import judge, needs_without_facts, suggest_lines

    _, access, wanted = _read(file)
    try:
        facts = read_facts(access)
    except SlurmSilent as error:
        findings: tuple[Finding, ...] = (_silent(error), *needs_without_facts(wanted))
        _tell(findings, None, as_json, show_all)
        return
    _tell(judge(facts, wanted), facts, as_json, show_all, suggest_lines(facts, wanted))


@command.command("check")
@_options
@click.option(
    "--wait",
    "wait_seconds",
    type=click.IntRange(1),
    default=WAIT_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="How long the short jobs on the nodes may wait for a free card.",
)
@click.option("--no-jobs", is_flag=True, help="Leave out the short job on each node.")
def check(as_json: bool, file: Path | None, show_all: bool, wait_seconds: int, no_jobs: bool) -> None:
    """Verify a live cluster: everything of the plan, slurmrestd, and a short job on every node.

    The jobs take one card for a moment and say whether paths are shared, clocks agree, and our Python and
    bubblewrap are there. Exit code 0 only where nothing blocks.
    """
    from starverse.cli.local.slurm_cluster import SlurmSilent, read_facts

    config, access, wanted = _read(file)
    try:
        facts = read_facts(access)
    except SlurmSilent as error:
        _tell((_silent(error),), None, as_json, show_all)
        return
    from starverse.domain.slurm_cluster.judge import judge

    findings = [
        *judge(facts, wanted),
        *_live(config, access, facts, wanted, None if no_jobs else wait_seconds),
    ]
    _tell(findings, facts, as_json, show_all)


def _read(file: Path | None) -> tuple[Config, Access, Wanted]:
    """The settings that `starverse up` would use now, as what the cluster is asked for."""
    from starverse.cli.local.slurm_cluster import access_of, wanted_of
    from starverse.config import load

    config = load(file).config
    return config, access_of(config), wanted_of(config)


def _live(
    config: Config, access: Access, facts: ClusterFacts, wanted: Wanted, wait_seconds: int | None
) -> list[Finding]:
    """What only a running cluster can answer; where it falls silent on the way, what was heard and that."""
    from starverse.cli.local.slurm_cluster import SlurmSilent, ping, rest_of, sample_nodes, users_of
    from starverse.domain.slurm_cluster.facts import Finding, Verdict
    from starverse.domain.slurm_cluster.rules_nodes import nodes_of
    from starverse.domain.slurm_cluster.samples import judge_samples

    ours = nodes_of(facts, wanted)
    findings = [*rest_of(config, ours), *users_of(config)]
    try:
        findings.append(Finding("controller", Verdict.OK, ping(access), "up"))
        if wait_seconds is None:
            needs = "a short job on each node"
            findings.append(Finding("node sample", Verdict.UNKNOWN, "left out (--no-jobs)", needs))
            return findings
        nodes = [node for node in ours if node.usable and node.cards]
        samples, expected = sample_nodes(access, nodes, wanted.partitions, wait_seconds)
    except SlurmSilent as error:
        return [*findings, _silent(error)]
    return [*findings, *judge_samples(samples, expected)]


def _silent(error: Any) -> Finding:
    from starverse.domain.slurm_cluster.facts import Finding, Verdict

    why = "it was asked, and did not answer"
    return Finding(
        "slurm", Verdict.BLOCKS, str(error.detail), "an answer", why, error.hint or "see slurm.conf"
    )


def _tell(
    findings: Sequence[Finding],
    facts: ClusterFacts | None,
    as_json: bool,
    show_all: bool,
    lines: Sequence[str] = (),
) -> None:
    """Print and leave with the exit code; ``lines`` are those of slurm.conf as they should be."""
    from starverse.domain.slurm_cluster.judge import blocks

    blocked = blocks(findings)
    if as_json:
        document = {
            "version": 1,
            "blocks": blocked,
            "cluster": facts.settings.get("ClusterName") if facts else None,
            "findings": [
                {
                    "name": found.name,
                    "verdict": found.verdict.value,
                    "has": found.has,
                    "needs": found.needs,
                    "why": found.why,
                    "remedy": found.remedy,
                }
                for found in findings
            ],
            "slurm_conf": list(lines),
        }
        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        told = _lines(findings, facts, show_all)
        if lines:
            told += ["", "slurm.conf as the platform wants it (... stands for what is there):", *lines]
        click.echo("\n".join(told))
    if blocked:
        raise SystemExit(1)


def _lines(findings: Sequence[Finding], facts: ClusterFacts | None, show_all: bool) -> list[str]:
    from starverse.cli.remote.tables import columns, render_table
    from starverse.domain.slurm_cluster.facts import Verdict

    lines = []
    if facts is not None:
        cards = sum(card.count for node in facts.nodes for card in node.cards)
        name = facts.settings.get("ClusterName", "")
        version = facts.settings.get("SLURM_VERSION", "")
        lines += [f"cluster {name}, Slurm {version}: {len(facts.nodes)} nodes, {cards} cards", ""]
    shown = sorted(findings, key=lambda found: _ORDER.index(found.verdict.value))
    if not show_all:
        shown = [found for found in shown if found.verdict is not Verdict.OK]
    if shown:
        rows = [(found.verdict.value, found.name, found.has, found.needs) for found in shown]
        lines.append(render_table(columns("VERDICT", "WHAT", "HAS", "NEEDS"), rows))
        lines += ["", *_reasons(shown)]
    counts = {verdict: sum(found.verdict is verdict for found in findings) for verdict in Verdict}
    lines.append(", ".join(f"{count} {verdict.value}" for verdict, count in counts.items() if count))
    lines.append(
        "jobs cannot run safely yet: mend what blocks" if counts[Verdict.BLOCKS] else "nothing blocks"
    )
    return lines


_ORDER = ("blocks", "warn", "unknown", "wish", "ok")


def _reasons(shown: Sequence[Finding]) -> list[str]:
    """Why and what to do, one paragraph each; then a blank line."""
    lines = []
    for found in shown:
        if found.why or found.remedy:
            lines.append(f"{found.name}: {found.why}" if found.why else f"{found.name}:")
        if found.remedy:
            lines.append(f"    {found.remedy}")
    return [*lines, ""] if lines else []
