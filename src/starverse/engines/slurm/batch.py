"""From a launch to a Slurm job: sizes, time limit and the script that starts the launchers. Pure."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from starverse.domain.workloads.launch import LaunchSpec
from starverse.engines.slurm.facts import JobRequest, SlurmNode, SlurmRefused
from starverse.engines.slurm.nodes import model_name

MIB = 1024**2
START_SECONDS = 600
"""How long a launcher may take from Slurm's start of the job to the first line of the script."""
END_SECONDS = 600
"""How long it may take after the end of the script: outputs, the last checkpoint, the report."""
OUTPUT = "launcher.log"

_SCRIPT = """\
#!/bin/sh
# starverse allocation {name}: made by the platform
export STARVERSE_SHIMS={shims}
{start}
"""

_KEEP = """\
trap : TERM USR1 USR2
{python} -m starverse.node.launcher {folder} --node-index "${{SLURM_NODEID:-0}}" &
launcher=$!
while :; do
  wait "$launcher"
  code=$?
  kill -0 "$launcher" 2>/dev/null || break
done
[ -e {folder}/report.json ] || {python} -m starverse.engines.slurm.node_leftovers {folder}
exit "$code"
"""


@dataclass(frozen=True, slots=True)
class Site:
    """What is the same for all jobs of a cluster: programs on its nodes, and how our jobs are known."""

    python: str
    srun: str
    shims: str
    comment: str
    environment: tuple[tuple[str, str], ...] = ()


def job_request(
    launch: LaunchSpec,
    nodes: Mapping[str, SlurmNode],
    models: Mapping[str, str],
    partitions: Collection[str],
    site: Site,
) -> JobRequest:
    """Raises :class:`SlurmRefused` where Slurm would refuse it, or keep it waiting for ever."""
    names = launch.nodes or (launch.node,)
    found = [_usable(name, nodes) for name in names]
    gres = _gres(launch, found, models)
    limits = launch.limits
    cpus, memory_mib = max(1, math.ceil(limits.cpus)), max(1, math.ceil(limits.memory_bytes / MIB))
    for node in found:
        if cpus > node.cpus or memory_mib > node.memory_mib:
            raise SlurmRefused(
                f"{node.name} has {node.cpus} CPUs and {node.memory_mib} MiB of memory;"
                f" {cpus} and {memory_mib} are asked"
            )
    seconds = (
        launch.time_limit_seconds
        + START_SECONDS
        + launch.grace_seconds
        + launch.kill_after_seconds
        + END_SECONDS
    )
    return JobRequest(
        name=launch.allocation_id,
        script=_script(launch, site, len(names), cpus),
        nodes=names,
        partition=_partition(found, partitions),
        gres=gres,
        cpus=cpus,
        memory_mib=memory_mib,
        time_minutes=-(-seconds // 60),
        folder=launch.folder,
        output=f"{launch.folder}/{OUTPUT}",
        comment=site.comment,
        pins_by_feature=all(node.name in node.features for node in found),
        environment=site.environment,
    )


def _usable(name: str, nodes: Mapping[str, SlurmNode]) -> SlurmNode:
    node = nodes.get(name)
    if node is None:
        raise SlurmRefused(f"Slurm has no node {name} in the partitions of the platform")
    return node


def _gres(launch: LaunchSpec, nodes: list[SlurmNode], models: Mapping[str, str]) -> str:
    """``gpu:TYPE:COUNT``, the same on each node: what Slurm can give to a job."""
    wanted = {node.name: Counter[str]() for node in nodes}
    for card in launch.cards:
        wanted[card.node or launch.node][card.model] += 1
    if any(counts != wanted[nodes[0].name] for counts in wanted.values()):
        raise SlurmRefused("Slurm gives each node of a job the same cards; these differ")
    parts = []
    for model, count in sorted(wanted[nodes[0].name].items()):
        kinds = {_kind(node, model, count, models) for node in nodes}
        if len(kinds) > 1:
            raise SlurmRefused(f"{model} goes by several gres types: {', '.join(sorted(kinds))}")
        kind = kinds.pop()
        parts.append(f"gpu:{kind}:{count}" if kind else f"gpu:{count}")
    return ",".join(parts)


def _kind(node: SlurmNode, model: str, count: int, models: Mapping[str, str]) -> str:
    for cards in node.cards:
        if model_name(cards.kind, models) == model:
            if cards.count < count:
                raise SlurmRefused(f"{node.name} has {cards.count} cards {model}; {count} are asked")
            return cards.kind
    raise SlurmRefused(f"{node.name} has no cards {model}")


def _partition(nodes: list[SlurmNode], ours: Collection[str]) -> str:
    """One that has all the nodes; ours in the order of the settings."""
    common = set(nodes[0].partitions).intersection(*(node.partitions for node in nodes))
    ordered = [name for name in ours if name in common] if ours else sorted(common)
    if not ordered:
        raise SlurmRefused(f"no partition has all of {', '.join(node.name for node in nodes)}")
    return ordered[0]


def _script(launch: LaunchSpec, site: Site, nodes: int, cpus: int) -> str:
    """One node: the script starts the launcher. Several: srun starts one on each node."""
    keep = _KEEP.format(python=shlex.quote(site.python), folder=shlex.quote(launch.folder))
    start = keep
    if nodes > 1:
        options = f"--ntasks={nodes} --ntasks-per-node=1 --cpus-per-task={cpus} --kill-on-bad-exit=0"
        start = (
            f"exec {shlex.quote(site.srun)} --nodes={nodes} {options} --unbuffered --input=none"
            f" /bin/sh -c {shlex.quote(keep)}\n"
        )
    return _SCRIPT.format(name=launch.allocation_id, shims=shlex.quote(site.shims), start=start)
