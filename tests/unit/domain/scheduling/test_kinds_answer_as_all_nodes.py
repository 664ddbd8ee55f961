"""One node of each kind answers for all of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from starverse.domain.scheduling.fit import impossible, kinds_of, pools_asked
from starverse.domain.scheduling.snapshot import Node
from starverse.domain.workloads.specs import Resources
from starverse.testing.snapshots import a_node

NODES: tuple[Node, ...] = (
    *(a_node(f"a{n}", cards=8) for n in range(3)),
    *(a_node(f"b{n}", cards=8, fabric="ib") for n in range(3)),
    *(a_node(f"c{n}", cards=4, model="a100") for n in range(2)),
    replace(a_node("d0", cards=8), generation=9),
)


def test_there_is_one_node_of_each_kind_the_first() -> None:
    assert [node.id for node in kinds_of(NODES)] == ["a0", "b0", "c0"]


@pytest.mark.parametrize("model", [None, "rtx4090", "a100", "h100"])
@pytest.mark.parametrize("count", [1, 4, 8, 9])
@pytest.mark.parametrize("fabric", [None, "ib", "eth"])
def test_pools_and_what_is_impossible_on_one_node(model: str | None, count: int, fabric: str | None) -> None:
    asked = Resources(cards_per_node=count, card_model=model, fabric=fabric)
    kinds = kinds_of(NODES)
    assert pools_asked(kinds, asked) == pools_asked(NODES, asked)
    assert impossible(kinds, asked) == impossible(NODES, asked)
