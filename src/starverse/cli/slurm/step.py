"""A step of a job: which ranks run on which of its nodes, and what each of them sees. Pure.

Ranks are laid out in blocks: counted evenly over the nodes, then numbered node by node (srun manual page,
``--distribution=block``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field

HOSTS_MAX = 4096

NODE_OWN = (
    "CUDA_DEVICE_ORDER",
    "CUDA_VISIBLE_DEVICES",
    "HOME",
    "SLURMD_NODENAME",
    "SLURM_CPUS_ON_NODE",
    "SLURM_GPUS_ON_NODE",
    "SLURM_JOB_GPUS",
    "STARVERSE_API",
    "STARVERSE_NOTICE_FILE",
    "STARVERSE_PYTHON",
    "STARVERSE_TOKEN_FILE",
    "TMPDIR",
)
"""What differs from node to node: a far rank has its own node's values, never the script's."""

HEAD_ONLY = ("STARVERSE_GANG",)
"""What of the script's variables means nothing on another node."""


@dataclass(frozen=True, slots=True)
class Step:
    """What to run: ``command`` on ``nodes``, ``counts`` ranks on each; ``label`` puts ``rank: `` before each
    line. ``addresses`` are those of the nodes, ``()`` where they are not known."""

    command: tuple[str, ...]
    step_id: int
    nodes: tuple[str, ...]
    counts: tuple[int, ...]
    addresses: tuple[str, ...] = ()
    label: bool = False
    kill_on_bad_exit: bool = False
    folder: str | None = None
    output: str | None = None
    error: str | None = None
    append: bool = False
    input: str | None = None
    cpus_per_task: str | None = None
    gpus_per_task: int | None = None
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def ranks(self) -> int:
        return sum(self.counts)

    def ranks_of(self, node: int) -> range:
        """The ranks on one of the step's nodes."""
        first = sum(self.counts[:node])
        return range(first, first + self.counts[node])

    def node_of(self, rank: int) -> int:
        """The step's node that a rank runs on."""
        return next(node for node in range(len(self.nodes)) if rank in self.ranks_of(node))

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Step:
        """Raises ``ValueError`` or ``TypeError`` on what is none."""
        raw = json.loads(text)
        for name in ("command", "nodes", "counts", "addresses"):
            raw[name] = tuple(raw[name])
        return cls(**raw)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was asked of the layout; ``None``: not said. ``nodes_min`` is that of ``-N``."""

    ranks: int | None = None
    per_node: int | None = None
    nodes_min: int | None = None
    ranks_of_job: int = 1


def lay_out(wanted: Wanted, nodes: int) -> tuple[int, ...]:
    """Ranks on each node, as many of the ``nodes`` as are used; raises ``ValueError`` with srun's words."""
    if wanted.nodes_min is not None and wanted.nodes_min > nodes:
        raise ValueError(f"Only allocated {nodes} nodes asked for {wanted.nodes_min}")
    used = wanted.nodes_min or nodes
    if wanted.ranks is not None:
        total = wanted.ranks
    elif wanted.per_node is not None:
        total = wanted.per_node * used
    else:
        total = max(wanted.ranks_of_job, used if wanted.nodes_min else 1)
    used = min(used, total)
    each, more = divmod(total, used)
    counts = tuple(each + (node < more) for node in range(used))
    if wanted.per_node is not None and max(counts) > wanted.per_node:
        raise ValueError("More processors requested than permitted")
    return counts


def fold_counts(counts: Iterable[int]) -> str:
    """As Slurm writes ``SLURM_TASKS_PER_NODE``: ``2(x3),1``."""
    runs: list[tuple[int, int]] = []
    for count in counts:
        if runs and runs[-1][0] == count:
            runs[-1] = (count, runs[-1][1] + 1)
        else:
            runs.append((count, 1))
    return ",".join(f"{count}(x{times})" if times > 1 else str(count) for count, times in runs)


def expand_hosts(text: str) -> tuple[str, ...]:
    """``gpu[001-002],head`` as names; raises ``ValueError``."""
    names: list[str] = []
    parts = re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text)
    if ",".join(parts) != text:
        raise ValueError(f"{text!r} is not a list of nodes")
    for part in parts:
        found = re.fullmatch(r"([^\[\]]*)(?:\[([\d,-]+)\])?([^\[\]]*)", part)
        if found is None:
            raise ValueError(f"{text!r} is not a list of nodes")
        prefix, numbers, suffix = found.groups()
        if numbers is None:
            names.append(prefix)
            continue
        for run in numbers.split(","):
            first, _, last = run.partition("-")
            if not first.isdecimal() or int(last or first) - int(first) not in range(HOSTS_MAX):
                raise ValueError(f"{text!r} is not a list of nodes")
            names += [
                f"{prefix}{number:0{len(first)}d}{suffix}"
                for number in range(int(first), int(last or first) + 1)
            ]
    return tuple(names)


def rank_environment(step: Step, rank: int, own: Mapping[str, str] | None = None) -> dict[str, str]:
    """What one rank sees (srun manual page, OUTPUT ENVIRONMENT VARIABLES; interfaces.md).

    ``own`` is the environment of a far node's agent, ``None`` on the script's own node.
    """
    variables = dict(step.variables)
    if own is not None:
        for name in (*HEAD_ONLY, *NODE_OWN):
            variables.pop(name, None)
        variables |= {name: own[name] for name in NODE_OWN if name in own}
    node = step.node_of(rank)
    local = rank - step.ranks_of(node).start
    made = {**_of_step(step, variables), **_of_rank(step, rank, node, local)}
    if step.cpus_per_task:
        made["SLURM_CPUS_PER_TASK"] = step.cpus_per_task
    if "SLURM_JOB_GPUS" in variables:
        made["SLURM_STEP_GPUS"] = variables["SLURM_JOB_GPUS"]
    cards = [card for card in variables.get("CUDA_VISIBLE_DEVICES", "").split(",") if card]
    if step.gpus_per_task is not None and cards:
        mine = cards[local * step.gpus_per_task : (local + 1) * step.gpus_per_task]
        made["CUDA_VISIBLE_DEVICES"] = ",".join(mine)
    return {**variables, **made}


def _of_step(step: Step, variables: Mapping[str, str]) -> dict[str, str]:
    ranks, nodes, per_node = str(step.ranks), str(len(step.nodes)), fold_counts(step.counts)
    names = variables.get("SLURM_JOB_NODELIST", "")
    if nodes != variables.get("SLURM_JOB_NUM_NODES", "1") or not names:
        names = ",".join(step.nodes)
    made = {
        "SLURM_NTASKS": ranks,
        "SLURM_NPROCS": ranks,
        "SLURM_NNODES": nodes,
        "SLURM_TASKS_PER_NODE": per_node,
        "SLURM_STEP_ID": str(step.step_id),
        "SLURM_STEPID": str(step.step_id),
        "SLURM_STEP_NUM_TASKS": ranks,
        "SLURM_STEP_NUM_NODES": nodes,
        "SLURM_STEP_TASKS_PER_NODE": per_node,
        "SLURM_STEP_NODELIST": names,
        "WORLD_SIZE": ranks,
        "NNODES": nodes,
    }
    if step.addresses:
        made["MASTER_ADDR"] = step.addresses[0]
    return made


def _of_rank(step: Step, rank: int, node: int, local: int) -> dict[str, str]:
    return {
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(local),
        "SLURM_NODEID": str(node),
        "SLURM_GTIDS": ",".join(map(str, step.ranks_of(node))),
        "SLURMD_NODENAME": step.nodes[node],
        "RANK": str(rank),
        "LOCAL_RANK": str(local),
        "NODE_RANK": str(node),
    }


def file_name(pattern: str, step: Step, rank: int) -> str:
    """``%t`` rank, ``%n`` node number, ``%N`` node, ``%s`` step, ``%j %J`` job (srun manual page)."""
    job = step.variables.get("SLURM_JOB_ID", "")
    node = step.node_of(rank)
    values = {
        "t": str(rank),
        "n": str(node),
        "N": step.nodes[node],
        "s": str(step.step_id),
        "j": job,
        "J": f"{job}.{step.step_id}",
        "x": step.variables.get("SLURM_JOB_NAME", ""),
        "%": "%",
    }
    parts = pattern.split("%")
    text, at = parts[0], 1
    while at < len(parts):
        part = parts[at]
        if not part and at + 1 < len(parts):
            text += "%" + parts[at + 1]
            at += 2
            continue
        text += values.get(part[:1], "%" + part[:1]) + part[1:]
        at += 1
    return text
