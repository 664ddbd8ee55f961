"""Jobs and nodes of the API as the lines that Slurm's commands print. Pure: ``now`` is an argument."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from starverse.cli.slurm.job_states import slurm_reason, slurm_state, slurm_state_of_run
from starverse.cli.slurm.sacct_format import AccountingLine
from starverse.cli.slurm.sinfo_format import NodeLine, node_state
from starverse.cli.slurm.squeue_format import JobLine
from starverse.client.shapes import Job, Node

PARTITION_DEFAULT = "all"
_DOWN_STATES = frozenset({"down", "lost", "unhealthy", "unreachable"})
_USED_STATES = frozenset({"busy", "allocated"})
_MEBIBYTE = 1024**2


def instant(text: str | None) -> datetime | None:
    """An RFC 3339 instant; ``None`` stays ``None``."""
    return datetime.fromisoformat(text) if text else None


def user_name(account: str) -> str:
    """The part of a mail address that looks like a Unix user."""
    return account.partition("@")[0]


def node_names(value: object) -> tuple[str, ...]:
    """Node names of a list, or of text with commas (brackets are left as they are)."""
    if isinstance(value, str):
        return tuple(name for name in re.split(r",(?![^\[]*\])", value) if name)
    return tuple(str(name) for name in value) if isinstance(value, (list, tuple)) else ()


def numbers_of(job: Job) -> tuple[int, int | None, int | None]:
    """``(number, array number, array index)``; a task has a number of its own."""
    array, index = job.get("array_number"), job.get("array_index")
    if array is None or index is None:
        return int(str(job["number"]).partition("_")[0]), None, None
    return int(job["own_number"]), int(array), int(index)


def job_line(job: Job, now: datetime, *, expected_start: str | None = None) -> JobLine:
    """A job for squeue."""
    number, array, index = numbers_of(job)
    started, ended = instant(job.get("started_at")), instant(job.get("ended_at"))
    state = slurm_state(job["state"], job.get("reason") or "")
    running = job["state"] == "running" or ended is not None
    used = max(0, int(((ended or now) - started).total_seconds())) if started and running else 0
    return JobLine(
        number=number,
        name=job["name"],
        user=user_name(job["account"]),
        state=state,
        reason=slurm_reason(job.get("reason") or ""),
        array_number=array,
        array_index=index,
        account=job.get("cost_label") or job["team"],
        partition=job.get("partition") or PARTITION_DEFAULT,
        nodes=node_names(job.get("node_list")),
        nodes_count=job["nodes"],
        cpus=_whole(job, "cpus", job["nodes"]),
        cards=_cards_per_node(job),
        memory_mebibytes=_whole(job, "memory_bytes", 0) // _MEBIBYTE,
        time_used_seconds=used,
        time_limit_seconds=job["time_limit_seconds"],
        submit_at=instant(job["submitted_at"]),
        start_at=started if running else instant(expected_start or job.get("begin_at")),
        end_at=ended,
        dependency=job.get("dependency_text") or "",
        features=",".join(filter(None, (job.get("fabric"), "declared" if job.get("cards_declared") else ""))),
        comment=job.get("comment") or "",
        work_dir=job.get("submit_dir") or "",
        restart_count=job.get("restart_count") or 0,
    )


def accounting_line(job: Job, now: datetime) -> AccountingLine:
    """A job, over all its runs, for sacct."""
    state = slurm_state(job["state"], job.get("reason") or "")
    return _accounting(job, job, state, now)


def run_lines(job: Job, now: datetime) -> list[AccountingLine]:
    """Every run of a job for ``sacct --duplicates``; ``job`` carries its allocations."""
    lines = []
    for run in job.get("allocations") or ():
        ended = run.get("ended_at") is not None
        state = slurm_state_of_run(run.get("cause") or "") if ended else "RUNNING"
        own = {"started_at": run.get("ready_at"), "node_list": run.get("nodes")}
        lines.append(_accounting(job, {**run, **own}, state, now))
    return lines


def _accounting(job: Job, run: Mapping[str, Any], state: str, now: datetime) -> AccountingLine:
    number, array, index = numbers_of(job)
    started, ended = instant(run.get("started_at")), instant(run.get("ended_at"))
    submitted = instant(job["submitted_at"])
    cpus = _whole(job, "cpus", job["nodes"])
    gpus = f",gres/gpu={job['cards']}" if job["cards"] else ""
    resources = f"cpu={cpus}{gpus},node={job['nodes']}"
    return AccountingLine(
        number=number,
        name=job["name"],
        state=state,
        array_number=array,
        array_index=index,
        exit_code=run.get("exit_code") or 0,
        exit_signal=run.get("exit_signal") or 0,
        user=user_name(job["account"]),
        account=job.get("cost_label") or job["team"],
        partition=job.get("partition") or PARTITION_DEFAULT,
        cpus=cpus,
        nodes=node_names(run.get("node_list")),
        nodes_count=job["nodes"],
        tasks=_whole(job, "tasks_count", 1),
        memory_mebibytes=_whole(job, "memory_bytes", 0) // _MEBIBYTE,
        allocated=resources if started else "",
        requested=resources,
        elapsed_seconds=max(0, int(((ended or now) - started).total_seconds())) if started else 0,
        time_limit_seconds=job["time_limit_seconds"],
        submit_at=submitted,
        eligible_at=instant(job.get("begin_at")) or submitted,
        start_at=started,
        end_at=ended,
        reason=slurm_reason(job.get("reason") or ""),
        comment=job.get("comment") or "",
        work_dir=job.get("submit_dir") or "",
        restarts=job.get("restart_count") or 0,
    )


def node_lines(nodes: Sequence[Node], partitions: Iterable[str] = ()) -> list[NodeLine]:
    """Nodes for sinfo, once per partition; without names ``all``, the zones and the fabrics."""
    names = list(partitions) or list(
        dict.fromkeys(
            (
                PARTITION_DEFAULT,
                *sorted({node["zone"] for node in nodes}),
                *sorted({node["fabric"] for node in nodes}),
            )
        )
    )
    return [_node_line(node, name) for name in names for node in nodes if in_partition(node, name)]


def in_partition(node: Node, partition: str) -> bool:
    """Whether sbatch's ``--partition`` of this name could use the node: all, fabric, zone, model or pool."""
    models = {str(card["model"]) for card in node.get("cards") or ()}
    pools = {f"{node['zone']}/{model}/{node['fabric']}" for model in models}
    tariffs = {"spot", "idle"}
    return partition in {PARTITION_DEFAULT, node["fabric"], node["zone"], *models, *pools, *tariffs}


def _node_line(node: Node, partition: str) -> NodeLine:
    cards = node.get("cards") or []
    used = [card for card in cards if card.get("state") in _USED_STATES]
    return NodeLine(
        name=node["id"],
        partition=partition,
        state=node_state(
            cards=len(cards),
            cards_used=len(used),
            draining=bool(node.get("drained")) or node["state"] == "drained",
            down=node["state"] in _DOWN_STATES,
        ),
        partition_is_default=partition == PARTITION_DEFAULT,
        reason=_reason(node),
        cpus=int(node["cpus"]),
        memory_mebibytes=int(node["memory_bytes"]) // _MEBIBYTE,
        gres=_gres(cards),
        gres_used=_gres(used) or "gpu:0",
        features=",".join(filter(None, (node["fabric"], node["zone"]))),
    )


def _reason(node: Node) -> str:
    """Slurm's own word for why it drains a node, without ours before it."""
    message = node.get("message") or ""
    return message.partition(": ")[2] or message if node["state"] == "drained" else message


def _gres(cards: Sequence[Mapping[str, Any]]) -> str:
    """``gpu:rtx4090:8``; cards that are lent without being there are called declared."""
    models = [str(card["model"]) for card in cards]
    lent = {str(card["model"]) for card in cards if card.get("declared")}
    return ",".join(
        f"gpu:{model}:{models.count(model)}" + ("(declared)" if model in lent else "")
        for model in dict.fromkeys(models)
    )


def _cards_per_node(job: Job) -> str:
    if not job["cards"]:
        return "N/A"
    model = f":{job['card']}" if job.get("card") else ""
    return f"gres:gpu{model}:{job['cards'] // max(1, job['nodes'])}"


def _whole(job: Mapping[str, Any], name: str, default: int) -> int:
    value = job.get(name)
    return int(value) if isinstance(value, (int, float)) else default
