"""Who has which card on record once a launcher told what its engine bound."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from starverse.domain.workloads.rebinding import (
    BindingFault,
    BoundCard,
    Rebinding,
    cards_at,
    rebind,
    with_silent_nodes,
)


def card(index: int, node: str = "n1", model: str = "rtx4090") -> BoundCard:
    return BoundCard(f"{node}-{index}", node, index, model)


KNOWN = {c.place: c for node in ("n1", "n2") for c in (card(i, node) for i in range(8))}


def bind(who: str, indices: str, held: dict[str, str], said: dict[str, str] | None = None) -> object:
    """Cards of one node by their digits; ``said`` is what other launchers report."""
    return rebind(
        who,
        [card(int(i)) for i in indices],
        {name: tuple(card(int(i)) for i in digits) for name, digits in held.items()},
        {("n1", int(i)): name for name, digits in (said or {}).items() for i in digits},
    )


def digits(found: object) -> dict[str, str]:
    assert isinstance(found, Rebinding), found
    return {name: "".join(c.removeprefix("n1-") for c in cards) for name, cards in found.cards.items()}


def test_free_cards_are_taken_as_they_are() -> None:
    assert digits(bind("a", "67", {"a": "01", "b": "23"})) == {"a": "67"}


def test_who_had_them_gets_those_that_are_given_up() -> None:
    assert digits(bind("a", "23", {"a": "01", "b": "23"})) == {"a": "23", "b": "01"}
    assert digits(bind("a", "12", {"a": "01", "b": "23"})) == {"a": "12", "b": "03"}
    assert digits(bind("a", "24", {"a": "01", "b": "23", "c": "45"})) == {"a": "24", "b": "03", "c": "15"}


def test_a_card_that_another_launcher_really_has_is_a_fault() -> None:
    found = bind("a", "23", {"a": "01", "b": "23"}, said={"b": "23"})
    assert isinstance(found, BindingFault)
    assert "n1-2" in found.why and "b" in found.why


def test_other_cards_than_were_placed_are_a_fault() -> None:
    assert isinstance(bind("a", "012", {"a": "01"}), BindingFault)
    dearer = rebind("a", [card(0, model="a100")], {"a": (card(1),)}, {})
    assert isinstance(dearer, BindingFault)
    assert dearer.why == "the engine bound 1 x a100 on n1, placed were 1 x rtx4090 on n1"
    elsewhere = rebind("a", [card(0, node="n2")], {"a": (card(0),)}, {})
    assert isinstance(elsewhere, BindingFault)


def test_places_that_no_node_has_and_one_card_twice_are_faults() -> None:
    assert cards_at([("n1", (0, 1)), ("n2", (7,))], KNOWN) == (KNOWN["n1", 0], KNOWN["n1", 1], KNOWN["n2", 7])
    assert isinstance(cards_at([("n1", (8,))], KNOWN), BindingFault)
    assert isinstance(cards_at([("n1", (1, 1))], KNOWN), BindingFault)


@given(st.permutations(range(8)), st.lists(st.integers(1, 3), min_size=1, max_size=4), st.randoms())
def test_any_binding_is_reached_in_any_order_of_reports(truth: list[int], sizes: list[int], dice) -> None:  # type: ignore[no-untyped-def]
    sizes = sizes[: next((n for n in range(len(sizes), 0, -1) if sum(sizes[:n]) <= 8), 1)]
    names = [f"a{i}" for i in range(len(sizes))]
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    really = {n: truth[at : at + size] for n, at, size in zip(names, starts, sizes, strict=True)}
    held = {
        n: tuple(card(i) for i in range(at, at + size))
        for n, at, size in zip(names, starts, sizes, strict=True)
    }
    spoken: dict[tuple[str, int], str] = {}
    order = list(names)
    dice.shuffle(order)
    for name in order:
        spoken |= {("n1", i): name for i in really[name]}
        found = rebind(name, [card(i) for i in really[name]], held, spoken)
        assert isinstance(found, Rebinding)
        for other, ids in found.cards.items():
            held[other] = tuple(card(int(c.removeprefix("n1-"))) for c in ids)
        everything = [c.id for cards in held.values() for c in cards]
        assert len(everything) == len(set(everything)), "a card is with one allocation at most"
    assert {n: {c.index for c in cards} for n, cards in held.items()} == {
        n: set(v) for n, v in really.items()
    }


def test_nodes_that_have_not_spoken_keep_what_is_on_record() -> None:
    """The head of a gang tells its own cards before the launchers on the other nodes are there."""
    here, there = [BoundCard(f"a{i}", "a", i, "x") for i in (0, 1)], [BoundCard("b0", "b", 0, "x")]
    whole = with_silent_nodes(here[1:], {"a"}, (here[0], *there))
    assert whole == (here[1], *there)
    found = rebind("gang", whole, {"gang": (here[0], *there)}, {})
    assert found == Rebinding({"gang": ("a1", "b0")})
    assert isinstance(rebind("gang", here[1:], {"gang": (here[0], *there)}, {}), BindingFault)
