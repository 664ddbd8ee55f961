"""Which ranks of a step run where, and how lists of nodes and counts are written."""

from __future__ import annotations

import pytest

from starverse.cli.slurm.step import (
    Step,
    Wanted,
    expand_hosts,
    file_name,
    fold_counts,
    lay_out,
    rank_environment,
)

JOB = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "gpu[1-3]", "SLURM_JOB_NUM_NODES": "3", "MINE": "x"}


@pytest.mark.parametrize(
    ("wanted", "nodes", "counts"),
    [
        (Wanted(), 1, (1,)),
        (Wanted(ranks_of_job=8), 2, (4, 4)),
        (Wanted(ranks_of_job=1), 2, (1,)),
        (Wanted(ranks=1), 2, (1,)),
        (Wanted(ranks=5), 3, (2, 2, 1)),
        (Wanted(ranks=5, nodes_min=2), 3, (3, 2)),
        (Wanted(ranks=1, nodes_min=2), 3, (1,)),
        (Wanted(nodes_min=2), 3, (1, 1)),
        (Wanted(nodes_min=1, ranks_of_job=4), 2, (4,)),
        (Wanted(per_node=3), 2, (3, 3)),
        (Wanted(per_node=3, nodes_min=1), 2, (3,)),
        (Wanted(per_node=3, ranks=4), 2, (2, 2)),
    ],
)
def test_ranks_are_counted_evenly(wanted: Wanted, nodes: int, counts: tuple[int, ...]) -> None:
    assert lay_out(wanted, nodes) == counts


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (Wanted(nodes_min=4), "Only allocated 3 nodes asked for 4"),
        (Wanted(per_node=1, ranks=4), "More processors requested than permitted"),
    ],
)
def test_what_does_not_fit_is_refused(wanted: Wanted, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        lay_out(wanted, 3)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gpu001", ("gpu001",)),
        ("gpu[001-002],head", ("gpu001", "gpu002", "head")),
        ("gpu[1,3-4]x,b", ("gpu1x", "gpu3x", "gpu4x", "b")),
        ("gpu[09-11]", ("gpu09", "gpu10", "gpu11")),
    ],
)
def test_lists_of_nodes_are_read(text: str, names: tuple[str, ...]) -> None:
    assert expand_hosts(text) == names


@pytest.mark.parametrize("text", ["gpu[1", "gpu[2-1]", "gpu[a]", "gpu[1-99999]", "a]b"])
def test_what_is_no_list_of_nodes_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="list of nodes"):
        expand_hosts(text)


def test_counts_are_folded_as_slurm_does() -> None:
    assert [fold_counts(counts) for counts in ((1,), (2, 2, 1), (1, 2, 2))] == ["1", "2(x2),1", "1,2(x2)"]


def build(**changes: object) -> Step:
    facts = {
        "command": ("true",),
        "step_id": 3,
        "nodes": ("gpu1", "gpu3"),
        "counts": (2, 1),
        "variables": JOB,
    }
    return Step(**{**facts, **changes})  # type: ignore[arg-type]


def test_a_step_comes_back_from_json_as_it_was() -> None:
    step = build(addresses=("10.0.0.1", "10.0.0.3"), gpus_per_task=1)
    assert Step.from_json(step.to_json()) == step


def test_a_step_on_some_of_the_nodes_names_those() -> None:
    seen = rank_environment(build(addresses=("10.0.0.1", "10.0.0.3")), 2, {"SLURMD_NODENAME": "gpu3"})
    assert (seen["SLURM_STEP_NODELIST"], seen["SLURM_NODEID"], seen["SLURM_LOCALID"]) == (
        "gpu1,gpu3",
        "1",
        "0",
    )
    assert (seen["MASTER_ADDR"], seen["SLURM_GTIDS"], seen["MINE"]) == ("10.0.0.1", "2", "x")


def test_a_far_rank_has_its_own_nodes_values_and_nothing_of_the_heads() -> None:
    step = build(
        gpus_per_task=1,
        variables={**JOB, "CUDA_VISIBLE_DEVICES": "0,1", "STARVERSE_GANG": "/x", "SLURM_JOB_GPUS": "0,1"},
    )
    far = rank_environment(step, 2, {"CUDA_VISIBLE_DEVICES": "6,7", "PATH": "/agents", "TMPDIR": "/t"})
    assert (far["CUDA_VISIBLE_DEVICES"], far["TMPDIR"]) == ("6", "/t")
    assert not {"STARVERSE_GANG", "PATH", "SLURM_JOB_GPUS"} & far.keys()
    near = rank_environment(step, 1)
    assert (near["CUDA_VISIBLE_DEVICES"], near["STARVERSE_GANG"], near["SLURM_STEP_GPUS"]) == (
        "1",
        "/x",
        "0,1",
    )


def test_output_names_know_rank_and_node() -> None:
    assert file_name("%j.%s/%t-%n-%N.%%x", build(), 2) == "7.3/2-1-gpu3.%x"
