"""A job's environment (interfaces.md): what the script sees of its cards, ids, folders and rank."""

from __future__ import annotations

from starverse.domain.workloads.launch import LaunchSpec
from starverse.node.sandbox.driver import Places, working_folder


def job_environment(spec: LaunchSpec, places: Places, python: str) -> dict[str, str]:
    """Defaults, then what the job asks for, then what it was granted: a later one wins.

    ``CUDA_VISIBLE_DEVICES`` names real cards by UUID and declared cards by index; no cards gives ``""``,
    which hides all. Names that describe the grant cannot be set by the job's own variables.
    """
    return {**_defaults(spec, places), **dict(spec.environment), **_granted(spec, places, python)}


def _defaults(spec: LaunchSpec, places: Places) -> dict[str, str]:
    return {
        "PATH": f"{places.run}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "PYTHONPATH": f"{places.run}/bin/lib",
        "LANG": "C.UTF-8",
        "SHELL": "/bin/bash",
        "USER": "user",
        "LOGNAME": "user",
        "PWD": working_folder(spec, places),
        "SLURM_JOB_NAME": "sbatch",
        "SLURM_NTASKS": "1",
        "SLURM_NPROCS": "1",
        "SLURM_CPUS_ON_NODE": str(max(1, int(spec.limits.cpus))),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(rendezvous_port(spec.job_number)),
        "STARVERSE_BATCH_SCALE": "1",
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
        "SLURM_JOB_ID": spec.job_number,
        "SLURM_JOBID": spec.job_number,
        "SLURM_JOB_NODELIST": spec.node,
        "SLURM_NODELIST": spec.node,
        "SLURMD_NODENAME": spec.node,
        "SLURM_JOB_NUM_NODES": "1",
        "SLURM_NNODES": "1",
        "SLURM_NODEID": "0",
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
        "SLURM_GPUS_ON_NODE": str(len(spec.cards)),
        "SLURM_SUBMIT_DIR": places.workspace,
        "SLURM_RESTART_COUNT": str(max(0, spec.attempt - 1)),
        "NNODES": "1",
        "NODE_RANK": "0",
        "STARVERSE_JOB_ID": spec.job_id,
        "STARVERSE_ALLOCATION_ID": spec.allocation_id,
        "STARVERSE_RETRY": str(spec.attempt),
        "STARVERSE_CHECKPOINT_DIR": places.checkpoint,
        "STARVERSE_RESUME_FROM": resume,
        "STARVERSE_NOTICE_FILE": f"{places.run}/notice.json",
        "STARVERSE_PYTHON": python,
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


def rendezvous_port(job_number: str) -> int:
    """A port from the job's number, so that jobs on one host network rarely meet: 20000 to 29999."""
    digits = "".join(letter for letter in job_number if letter.isdigit())
    return 20_000 + int(digits or "0") % 10_000
