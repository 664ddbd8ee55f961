"""Cards are those that the engine bound, read from what it gave the launcher, where it picks them itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from starverse.domain.workloads.launch import GrantedCard, LauncherState, LaunchSpec
from starverse.node.binding import bind_cards, bound_indices
from starverse.node.sandbox.driver import StartRefused
from starverse.testing.launches import build_launch

STATE = LauncherState("a-1", 1, "claimed", "boot", 1.0)
REAL = tuple(GrantedCard(f"gpu1-{n}", n, f"GPU-{n}", "a100-40g", declared=False) for n in (0, 1))


def build(*, binds_cards: bool = False, **changes: Any) -> LaunchSpec:
    return build_launch(Path("/nowhere"), node="gpu1", binds_cards=binds_cards, **changes)


@pytest.mark.parametrize(
    ("environ", "first", "further"),
    [
        ({"SLURM_STEP_GPUS": "5,2"}, (2, 5), (2, 5)),
        ({"SLURM_JOB_GPUS": "2,5", "CUDA_VISIBLE_DEVICES": "0,1"}, (2, 5), (0, 1)),
        ({"SLURM_STEP_GPUS": "4,6", "SLURM_JOB_GPUS": "2,5"}, (4, 6), (4, 6)),
        ({"CUDA_VISIBLE_DEVICES": "3"}, (3,), (3,)),
        ({}, (), ()),
    ],
)
def test_indices_come_from_slurms_variables(
    environ: dict[str, str], first: tuple[int, ...], further: tuple[int, ...]
) -> None:
    assert bound_indices(environ, first_node=True) == first
    assert bound_indices(environ, first_node=False) == further


@pytest.mark.parametrize("text", ["GPU-abc", "1,1", "0-3", "1,", "-1"])
def test_what_is_no_list_of_indices_is_refused(text: str) -> None:
    with pytest.raises(StartRefused, match="SLURM_STEP_GPUS"):
        bound_indices({"SLURM_STEP_GPUS": text}, first_node=True)


def test_declared_cards_are_known_by_index_alone() -> None:
    spec, state = bind_cards(build(), STATE, {"SLURM_STEP_GPUS": "6,3"}, first_node=True)
    assert [card.index for card in spec.cards] == [3, 6]
    assert state.bound == (("gpu1", (3, 6)),)


def test_real_cards_get_the_uuid_of_what_was_bound(tmp_path: Path) -> None:
    for minor in range(4):
        (tmp_path / f"0000:0{minor}:00.0").mkdir()
        text = f"Model: \t NVIDIA A100\nGPU UUID: \t GPU-uuid-{minor}\nDevice Minor: \t {minor}\n"
        (tmp_path / f"0000:0{minor}:00.0" / "information").write_text(text)
    environ = {"SLURM_STEP_GPUS": "1,3"}
    spec, _ = bind_cards(build(cards=REAL), STATE, environ, first_node=True, driver_folder=tmp_path)
    assert [card.uuid for card in spec.cards] == ["GPU-uuid-1", "GPU-uuid-3"]
    with pytest.raises(StartRefused, match="card 9"):
        bind_cards(
            build(cards=REAL[:1]), STATE, {"SLURM_STEP_GPUS": "9"}, first_node=True, driver_folder=tmp_path
        )


@pytest.mark.parametrize("environ", [{}, {"SLURM_STEP_GPUS": "1"}, {"SLURM_STEP_GPUS": "1,2,3"}])
def test_another_number_of_cards_than_granted_is_refused(environ: dict[str, str]) -> None:
    with pytest.raises(StartRefused, match="2 were granted"):
        bind_cards(build(), STATE, environ, first_node=True)


def test_where_the_platform_binds_nothing_is_read_and_nothing_told() -> None:
    spec = build(binds_cards=True)
    assert bind_cards(spec, STATE, {"SLURM_STEP_GPUS": "7"}, first_node=True) == (spec, STATE)
