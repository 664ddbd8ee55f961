"""What engines and launchers write for each other is read back whole, also what an older one wrote."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from starverse.domain.workloads.launch import GrantedCard, LauncherState, LaunchSpec
from starverse.testing.launches import build_launch

CARDS = (
    GrantedCard("gpu001-0", 0, "GPU-a", "rtx4090", declared=True),
    GrantedCard("gpu002-3", 3, "GPU-b", "rtx4090", declared=True, node="gpu002"),
)


def build_gang() -> LaunchSpec:
    return replace(
        build_launch(Path("/data")),
        node="gpu001",
        nodes=("gpu001", "gpu002"),
        cards=CARDS,
        binds_cards=False,
        channel="/data/channel.sock,10.0.0.1:8002",
        channel_ca="PEM",
    )


@pytest.mark.parametrize("spec", [build_launch(Path("/data")), build_gang()], ids=["one node", "two nodes"])
def test_a_launch_spec_comes_back_as_it_was(spec: LaunchSpec) -> None:
    assert LaunchSpec.from_json(spec.to_json()) == spec


def test_a_launch_spec_of_one_node_needs_none_of_the_gangs_fields() -> None:
    raw = json.loads(build_launch(Path("/data")).to_json())
    for name in ("nodes", "binds_cards", "channel_ca"):
        del raw[name]
    for card in raw["cards"]:
        del card["node"]
    spec = LaunchSpec.from_json(json.dumps(raw))
    assert (spec.node_names, spec.binds_cards) == (("declared-1",), True)
    assert spec.cards_of("declared-1") == spec.cards


def test_each_card_is_of_its_node_and_of_the_first_where_none_is_named() -> None:
    gang = build_gang()
    assert [gang.cards_of(node) for node in gang.node_names] == [CARDS[:1], CARDS[1:]]


@pytest.mark.parametrize("bound", [None, (), (("gpu001", (0, 1)), ("gpu002", ()))])
def test_what_the_engine_bound_comes_back_as_it_was(
    bound: tuple[tuple[str, tuple[int, ...]], ...] | None,
) -> None:
    state = LauncherState("a-1", 1, "claimed", "boot", 1.0, bound=bound)
    assert LauncherState.from_json(state.to_json()) == state


def test_a_state_of_an_older_launcher_has_its_cards_as_placed() -> None:
    raw = json.loads(LauncherState("a-1", 1, "claimed", "boot", 1.0).to_json())
    del raw["bound"]
    assert LauncherState.from_json(json.dumps(raw)).bound is None


@pytest.mark.parametrize("bound", ["x", 3, [["gpu001"]], [["gpu001", ["x"]]]])
def test_a_state_with_cards_that_are_none_is_refused(bound: object) -> None:
    raw = json.loads(LauncherState("a-1", 1, "claimed", "boot", 1.0).to_json())
    with pytest.raises((ValueError, TypeError)):
        LauncherState.from_json(json.dumps({**raw, "bound": bound}))
