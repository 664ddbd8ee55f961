"""A job's environment (interfaces.md): what the script sees of its cards, ids, folders and rank."""

from __future__ import annotations

from dataclasses import dataclass

from starverse.domain.sbatch.hostlists import fold_hosts
from starverse.domain.workloads.launch import LaunchSpec
from starverse.node.gang import GANG_SOCKET, RANKS_SOCKET
from starverse.node.sandbox import oci_root
from starverse.node.sandbox.driver import IMAGE, Places, working_folder

_NCCL = {
    "ib": {"NCCL_IB_DISABLE": "0"},
    "roce": {"NCCL_IB_DISABLE": "0", "NCCL_IB_GID_INDEX": "3"},
    "eth": {"NCCL_IB_DISABLE": "1"},
}
"""By fabric; index 3 is RoCE v2 on cards whose tables are as their maker left them (NCCL user guide)."""


@dataclass(frozen=True, slots=True)
class NodePlace:
    """Which of its nodes this is, and the address of each (``()``: there is one node only)."""

    index: int = 0
    hosts: tuple[tuple[str, str], ...] = ()


def job_environment(
    spec: LaunchSpec, places: Places, python: str, place: NodePlace | None = None
) -> dict[str, str]:
    """Defaults, then what the job asks for, then what it was granted: a later one wins.

    ``CUDA_VISIBLE_DEVICES`` names real cards by UUID and declared cards by index; no cards gives ``""``,
    which hides all. Names that describe the grant cannot be set by the job's own variables. ``spec`` is the
    node's own part of the launch.
    """
    where = place or NodePlace()
    asked = dict(spec.environment)
    return {
        **_defaults(spec, places, where, asked),
        **asked,
        **_granted(spec, places, python),
        **_nodes(spec, places, where),
    }


def _defaults(spec: LaunchSpec, places: Places, place: NodePlace, asked: dict[str, str]) -> dict[str, str]:
    nodes = len(spec.node_names)
    tasks = asked.get("SLURM_NTASKS", "")
    image = f"{IMAGE}/bin:" if spec.image else ""
    of_image: dict[str, str] = {}
    if oci_root.is_root_image(spec.image):
        root = oci_root.ids_of(spec) is not None
        image, of_image = "", oci_root.environment(spec.image, f"{places.run}/bin", root=root)
    return {
        "PATH": f"{image}{places.run}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "PYTHONPATH": f"{places.run}/bin/lib",
        "LANG": "C.UTF-8",
        "SHELL": "/bin/bash",
        "USER": "user",
        "LOGNAME": "user",
        "PWD": working_folder(spec, places),
        "SLURM_JOB_NAME": "sbatch",
        "SLURM_NTASKS": str(nodes),
        "SLURM_NPROCS": str(nodes),
        "SLURM_TASKS_PER_NODE": tasks_per_node(int(tasks) if tasks.isdecimal() else nodes, nodes),
        "SLURM_CPUS_ON_NODE": str(max(1, int(spec.limits.cpus))),
        "MASTER_ADDR": place.hosts[0][1] if place.hosts else "127.0.0.1",
        "MASTER_PORT": str(rendezvous_port(spec.slurm_job_id)),
        "STARVERSE_BATCH_SCALE": "1",
        **_NCCL.get(spec.fabric, {}),
        **of_image,
    }


def _granted(spec: LaunchSpec, places: Places, python: str) -> dict[str, str]:
    resume = f"{places.checkpoint}/{spec.resume_from}" if spec.resume_from else ""
    indices = ",".join(str(card.index) for card in spec.cards)
    granted = {
        "HOME": places.home,
        "TMPDIR": places.temporary,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(
            str(card.index) if card.declared else card.uuid for card in spec.cards
        ),
        "SLURM_JOB_ID": spec.slurm_job_id,
        "SLURM_JOBID": spec.slurm_job_id,
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
        "SLURM_GPUS_ON_NODE": str(len(spec.cards)),
        "SLURM_SUBMIT_DIR": places.workspace,
        "SLURM_RESTART_COUNT": str(max(0, spec.attempt - 1)),
        "STARVERSE_JOB_ID": spec.job_id,
        "STARVERSE_ALLOCATION_ID": spec.allocation_id,
        "STARVERSE_RETRY": str(spec.attempt),
        "STARVERSE_CHECKPOINT_DIR": places.checkpoint,
        "STARVERSE_RESUME_FROM": resume,
        "STARVERSE_NOTICE_FILE": f"{places.run}/notice.json",
        "STARVERSE_PYTHON": (
            f"{places.run}/{oci_root.PYTHON}" if oci_root.is_root_image(spec.image) else python
        ),
    }
    if spec.cards:
        granted["SLURM_JOB_GPUS"] = indices
    if "_" in spec.job_number:
        array_job, _, task = spec.job_number.partition("_")
        granted |= {"SLURM_ARRAY_JOB_ID": array_job, "SLURM_ARRAY_TASK_ID": task}
    if spec.api_socket is not None:
        granted["STARVERSE_API"] = f"unix:{places.run}/api.sock"
        granted["STARVERSE_TOKEN_FILE"] = f"{places.run}/token"
    return granted


def _nodes(spec: LaunchSpec, places: Places, place: NodePlace) -> dict[str, str]:
    """All nodes of the allocation, and which of them this is."""
    names = fold_hosts(spec.node_names)
    nodes = {
        "SLURM_JOB_NODELIST": names,
        "SLURM_NODELIST": names,
        "SLURMD_NODENAME": spec.node,
        "SLURM_JOB_NUM_NODES": str(len(spec.node_names)),
        "SLURM_NNODES": str(len(spec.node_names)),
        "SLURM_NODEID": str(place.index),
        "NNODES": str(len(spec.node_names)),
        "NODE_RANK": str(place.index),
    }
    if place.hosts:
        nodes["STARVERSE_NODES"] = ",".join(f"{name}={address}" for name, address in place.hosts)
        if place.index == 0:
            nodes["STARVERSE_GANG"] = f"{places.run}/{GANG_SOCKET}"
        else:
            nodes["STARVERSE_RANKS"] = f"{places.run}/{RANKS_SOCKET}"
    return nodes


def tasks_per_node(tasks: int, nodes: int) -> str:
    """As Slurm writes it, tasks spread evenly: 5 on 3 nodes are ``2(x2),1`` (sbatch manual page)."""
    each, more = divmod(max(tasks, nodes), nodes)
    runs = [(each + 1, more), (each, nodes - more)]
    return ",".join(f"{count}(x{times})" if times > 1 else str(count) for count, times in runs if times)


def rendezvous_port(job_number: str) -> int:
    """A port from the job's number, so that jobs on one host network rarely meet: 20000 to 29999."""
    digits = "".join(letter for letter in job_number if letter.isdigit())
    return 20_000 + int(digits or "0") % 10_000
