"""Where a demo runs: which engine and database, and what that changes in the story."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

EIGHT_CARDS = """#!/bin/bash
#SBATCH --job-name=eight-cards
#SBATCH --gres=gpu:rtx4090:8
#SBATCH --time=00:05:00
echo "on $SLURM_GPUS_ON_NODE cards: $CUDA_VISIBLE_DEVICES"
for step in 1 2 3 4; do echo "step $step/4"; sleep 1; done
"""

TWO_NODES = """#!/bin/bash
#SBATCH --job-name=two-nodes
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=rtx4090:8
#SBATCH --constraint=ib
#SBATCH --time=00:05:00
srun --label bash -c 'echo "rank $SLURM_PROCID of $SLURM_NTASKS on $SLURMD_NODENAME: $CUDA_VISIBLE_DEVICES"'
for step in 1 2 3 4; do echo "step $step/4"; sleep 1; done
"""


@dataclass(frozen=True, slots=True)
class Ground:
    """What differs from ground to ground.

    ``words`` are flags of ``starverse up``, ``environment`` what its process is given beside. The second
    team's job, ``rival_script``, needs every card that the spot job (``spot_words``) could run on, and has to
    say each text of ``rival_log``. ``declared``: the cards are declared to the platform, and it has to say so
    everywhere.
    """

    words: tuple[str, ...]
    said: str
    declared: bool
    rival_script: str
    rival_cards: int
    spot_words: tuple[str, ...] = ("--gres=gpu:rtx4090:2",)
    rival_log: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@contextlib.contextmanager
def open_ground(engine: str, database: str) -> Iterator[Ground]:
    """Everything the platform needs around it, started for the demo alone and ended after it."""
    with ExitStack() as stack:
        ground = _on_slurm(stack) if engine == "slurm" else _one_machine()
        if database == "postgresql":
            ground = _on_postgres(ground, stack)
        yield ground


def _one_machine() -> Ground:
    return Ground(
        words=("--declare-cards", "rtx4090:8"),
        said="a platform with 8 declared RTX 4090 (they are not really there) is up",
        declared=True,
        rival_script=EIGHT_CARDS,
        rival_cards=8,
    )


def _on_slurm(stack: ExitStack) -> Ground:
    from starverse.domain.errors import Unavailable
    from starverse.testing.slurm_lab import SlurmLab

    if why := SlurmLab.missing():
        raise Unavailable(why)
    lab = stack.enter_context(SlurmLab(nodes=4))
    return Ground(
        words=("--engine", "slurm"),
        said="a Slurm of the demo's own (2 nodes in ib, 2 in eth; their 32 cards are not really there) "
        "and a platform on it are up",
        declared=True,
        rival_script=TWO_NODES,
        rival_cards=16,
        spot_words=("--gres=gpu:rtx4090:2", "--constraint=ib"),
        rival_log=("rank 0 of 2 on ", "rank 1 of 2 on "),
        environment={
            "STARVERSE_SLURM__CONF": str(lab.conf),
            "STARVERSE_SLURM__REST_URL": lab.rest_url,
            "STARVERSE_SLURM__JWT_KEY": str(lab.jwt_key),
            "STARVERSE_SLURM__CARDS_DECLARED": "true",
        },
    )


def _on_postgres(ground: Ground, stack: ExitStack) -> Ground:
    from dataclasses import replace

    from starverse.domain.errors import Unavailable
    from starverse.testing.postgres_lab import PostgresLab

    if why := PostgresLab.missing():
        raise Unavailable(why)
    lab = stack.enter_context(PostgresLab(flushes=True))
    said = f"a PostgreSQL server of the demo's own is up; {ground.said}"
    return replace(ground, words=("--db", lab.url, *ground.words), said=said)


def make_folder(root: Path, ground: Ground) -> Path:
    """The second team's folder, with its script."""
    folder = root / "rival-folder"
    folder.mkdir()
    (folder / "all_cards.sh").write_text(ground.rival_script)
    return folder
