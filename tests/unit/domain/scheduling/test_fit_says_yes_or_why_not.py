"""One node, one request: the cards taken, or the typed reason with its figures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from starverse.domain.ids import CardId
from starverse.domain.scheduling.fit import Fit, Misfit, MisfitReason, fits, free_of, impossible, share_fits
from starverse.domain.scheduling.snapshot import Node, NodeShare, NodeState
from starverse.domain.workloads.specs import Resources
from starverse.testing.snapshots import GIB, a_node, a_share, all_linked

FOUR = Resources(card_model="rtx4090", cards_per_node=4)
QUADS = all_linked([range(4), range(4, 8)])


def card_ids(node: str, *indices: int) -> tuple[CardId, ...]:
    return a_share(node, *indices).card_ids


def answer(node: Node, resources: Resources, *held: NodeShare) -> Fit | Misfit:
    return fits(node, resources, free_of(node, held))


@pytest.mark.parametrize(
    ("why", "node", "resources", "held", "reason", "permanent", "says"),
    [
        (
            "another zone",
            a_node(),
            replace(FOUR, zone="sh1"),
            (),
            MisfitReason.ZONE,
            True,
            "zone bj1, not sh1",
        ),
        (
            "another fabric",
            a_node(),
            replace(FOUR, fabric="ib"),
            (),
            MisfitReason.FABRIC,
            True,
            "eth, not ib",
        ),
        (
            "no such model",
            a_node(),
            replace(FOUR, card_model="a100-40g"),
            (),
            MisfitReason.NO_SUCH_MODEL,
            True,
            "no a100-40g",
        ),
        ("excluded", a_node(), replace(FOUR, exclude=("n1",)), (), MisfitReason.EXCLUDED, True, "excluded"),
        (
            "not listed",
            a_node(),
            replace(FOUR, nodelist=("n2",)),
            (),
            MisfitReason.NOT_LISTED,
            True,
            "node list",
        ),
        (
            "nine of eight cards",
            a_node(),
            replace(FOUR, cards_per_node=9),
            (),
            MisfitReason.CARDS_TOO_MANY,
            True,
            "9 rtx4090 on one node; n1 has 8",
        ),
        (
            "65 of 64 CPUs",
            a_node(),
            replace(FOUR, cpus_per_task=65),
            (),
            MisfitReason.CPUS_TOO_MANY,
            True,
            "65 CPUs",
        ),
        (
            "more memory than there is",
            a_node(),
            replace(FOUR, memory_bytes_per_node=513 * GIB),
            (),
            MisfitReason.MEMORY_TOO_MUCH,
            True,
            "513 GiB of memory on one node; n1 has 512 GiB",
        ),
        (
            "more memory than there is, though nobody named any",
            a_node(memory_bytes=64 * GIB),
            replace(FOUR, cpus_per_task=64, memory_bytes_per_node=None),
            (),
            MisfitReason.MEMORY_TOO_MUCH,
            True,
            "128 GiB of memory (2 GiB for each of 64 CPUs; --mem asks for less) on one node; n1 has 64 GiB",
        ),
        ("down", a_node(state=NodeState.DOWN), FOUR, (), MisfitReason.NODE_DOWN, False, "n1 is down"),
        ("drained", a_node(state=NodeState.DRAINED), FOUR, (), MisfitReason.NODE_DRAINED, False, "drained"),
        (
            "three cards left",
            a_node(),
            FOUR,
            (a_share("n1", 0, 1, 2, 3, 4),),
            MisfitReason.CARDS_IN_USE,
            False,
            "4 rtx4090 needed, 3 free on n1",
        ),
        (
            "a faulty card is not free",
            a_node(cards=4, broken=(2,)),
            FOUR,
            (),
            MisfitReason.CARDS_IN_USE,
            False,
            "3 free",
        ),
        (
            "CPUs in use",
            a_node(),
            replace(FOUR, cpus_per_task=8),
            (a_share("n1", 0, cpus=60),),
            MisfitReason.CPUS_IN_USE,
            False,
            "8 CPUs needed, 4 free",
        ),
        (
            "memory in use",
            a_node(),
            replace(FOUR, memory_bytes_per_node=16 * GIB),
            (a_share("n1", 0, memory_bytes=500 * GIB),),
            MisfitReason.MEMORY_IN_USE,
            False,
            "16 GiB of memory needed, 12 GiB free",
        ),
        (
            "four free cards, two in each linked quad",
            a_node(links=QUADS),
            FOUR,
            (a_share("n1", 0, 1, 4, 5),),
            MisfitReason.NOT_LINKED,
            False,
            "4 rtx4090 are free on n1 but not linked",
        ),
    ],
    ids=lambda value: value.replace(" ", "_") if isinstance(value, str) and " " in value else None,
)
def test_a_misfit_has_a_reason_and_figures(
    why: str,
    node: Node,
    resources: Resources,
    held: tuple[NodeShare, ...],
    reason: MisfitReason,
    permanent: bool,
    says: str,
) -> None:
    found = answer(node, resources, *held)
    assert isinstance(found, Misfit), why
    assert (found.reason, found.permanent) == (reason, permanent)
    assert says in found.message


def test_a_fit_names_the_cards_and_their_weakest_link() -> None:
    node = a_node(links=QUADS)
    assert answer(node, FOUR, a_share("n1", 0)) == Fit(card_ids("n1", 4, 5, 6, 7), 100)


def test_no_cards_asked_takes_no_cards() -> None:
    assert answer(a_node(), Resources(cpus_per_task=4)) == Fit((), 0)


def test_five_cards_need_no_link_where_no_five_are_linked() -> None:
    five = replace(FOUR, cards_per_node=5)
    assert isinstance(answer(a_node(links=QUADS), five, a_share("n1", 0, 1, 4)), Fit)


def test_an_open_model_takes_the_first_model_that_fits() -> None:
    node = a_node(models=("a100-40g",) * 2 + ("rtx4090",) * 4)
    found = answer(node, Resources(cards_per_node=4))
    assert found == Fit(card_ids("n1", 2, 3, 4, 5), 0)


NODES = (a_node("n1"), a_node("n2"), a_node("n3", fabric="ib"), a_node("n4", cards=4, model="a100-40g"))


@pytest.mark.parametrize(
    ("resources", "says"),
    [
        (FOUR, None),
        (replace(FOUR, nodes=2), None),
        (replace(FOUR, nodes=3), "3 nodes of one pool"),
        (replace(FOUR, cards_per_node=9), "9 rtx4090 on one node; n1 has 8"),
        (replace(FOUR, card_model="h100"), "there is no h100 here; there are a100-40g, rtx4090"),
        (replace(FOUR, fabric="roce"), "no node has fabric roce; there are eth, ib"),
        (replace(FOUR, zone="sh1"), "there is no zone sh1; there are bj1"),
        (replace(FOUR, exclude=("n1", "n2", "n3")), "excluded"),
        (replace(FOUR, nodelist=("n9",)), "there is no node n9"),
        (replace(FOUR, nodes=2, nodelist=("n1", "n3")), "not all of one pool"),
        (replace(FOUR, nodelist=("n1", "n2")), "names 2 nodes, the job asks for 1"),
        (replace(FOUR, cpus_per_task=100), "100 CPUs on one node"),
    ],
)
def test_what_can_never_run_is_told_apart_from_not_now(resources: Resources, says: str | None) -> None:
    busy = tuple(replace(node, state=NodeState.DOWN) for node in NODES)
    found = impossible(busy, resources)
    if says is None:
        assert found is None
    else:
        assert found is not None
        assert found.permanent
        assert says in found.message


def test_with_no_node_known_nothing_is_called_impossible() -> None:
    assert impossible((), FOUR) is None


@pytest.mark.parametrize(
    ("share", "reason"),
    [
        (a_share("n1", 0, 1, 2, 3), None),
        (a_share("n1", 0, 1, 2, 7), MisfitReason.CARDS_IN_USE),
        (a_share("n1", 0, 1, 2), MisfitReason.WRONG_SHARE),
        (a_share("n1", 0, 1, 2, 2), MisfitReason.WRONG_SHARE),
        (a_share("n1", 0, 1, 2, 9), MisfitReason.WRONG_SHARE),
        (a_share("n1", 0, 1, 2, 3, cpus=2), MisfitReason.WRONG_SHARE),
        (a_share("n2", 0, 1, 2, 3), MisfitReason.WRONG_SHARE),
    ],
)
def test_the_applier_rechecks_the_very_cards_of_a_share(
    share: NodeShare, reason: MisfitReason | None
) -> None:
    node = a_node()
    misfit = share_fits(node, FOUR, share, free_of(node, [a_share("n1", 7)]))
    assert (misfit.reason if misfit else None) == reason


def test_the_recheck_refuses_cards_without_the_link_they_could_have() -> None:
    node = a_node(links=QUADS)
    misfit = share_fits(node, FOUR, a_share("n1", 0, 1, 4, 5), free_of(node, []))
    assert misfit is not None
    assert misfit.reason is MisfitReason.NOT_LINKED
