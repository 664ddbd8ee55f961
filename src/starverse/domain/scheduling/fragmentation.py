"""What part of the free cards the usual workload could not use, and where a task adds least to it.

A node's free cards are worth what copies of the usual tasks could still be put on them: as many as its cards
take, but no more than its CPUs feed. A task goes where that worth falls least: the gradient descent of Weng
et al. (Beware of Fragmentation, ATC 2023), with three differences. Copies are counted instead of the first
one only, so that CPUs that a card will need have a worth too. Tasks that may use few of the cards weigh more,
by the square of how scarce their cards are, so that models wanted by name are left to those who ask for
them. And between places that are nearly as good a whole-card task takes the first node, which keeps the last
ones empty for those who need whole nodes.

Cards are counted in thousandths, since a task may ask for a part of one card.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

CARD = 1000
COVERED = 0.97
"""The usual tasks are the most frequent ones that make up this share of all arrivals."""
SCARCITY_POWER = 2
NEARLY = 0.06
"""Worth, in cards, by which places may differ and still count as equally good for whole cards."""

CPU_STEPS = 512
REQUESTS_KEPT = 8
"""Of a cluster's requests for whole cards; more of them would say little and cost each decision."""

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Task:
    """``cards`` cards with ``card_milli`` thousandths of each; ``models`` empty: any model will do."""

    cpu_milli: int
    cards: int
    card_milli: int = CARD
    models: frozenset[str] = frozenset()

    @property
    def milli(self) -> int:
        return self.cards * self.card_milli


@dataclass(frozen=True, slots=True)
class NodeRoom:
    """What is free on a node; ``cards`` holds thousandths, one number for each card."""

    model: str
    cpu_milli: int
    memory_mib: int
    cards: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Workload:
    """The usual tasks that want cards, and which share of those arrivals each is (the shares add up to 1)."""

    tasks: tuple[Task, ...]
    shares: tuple[float, ...]

    @classmethod
    def of_arrivals(cls, arrivals: Iterable[Task], covered: float = COVERED) -> Workload:
        """The most frequent tasks of recent arrivals; empty where none wanted cards."""
        counts = Counter(arrivals)
        wanted, seen = covered * counts.total(), 0
        usual: list[tuple[Task, int]] = []
        for task, count in sorted(counts.items(), key=lambda found: (-found[1], _order(found[0]))):
            if seen >= wanted:
                break
            seen += count
            if task.cards:
                usual.append((task, count))
        total = sum(count for _, count in usual)
        return cls(tuple(task for task, _ in usual), tuple(count / total for _, count in usual))


def expected_unusable(workload: Workload, nodes: Sequence[NodeRoom]) -> float:
    """Cards that are free but of no use to a task drawn from the workload, in cards.

    0 where every usual task could be packed into all of it; all of it where none finds room.
    """
    free = sum(sum(node.cards) for node in nodes) / CARD
    if not workload.tasks or not nodes:
        return free
    worth = Worth.of(workload, nodes)
    state = State.of(nodes, worth)
    size = np.array([task.milli for task in workload.tasks], dtype=np.float32)
    copies = np.floor(worth.copies(state.fits, state.cpu_milli))
    usable = (copies * worth.allowed[state.model] * size) @ np.array(workload.shares, dtype=np.float32)
    return max(0.0, free - float(usable.sum()) / CARD)


class WholeCards:
    """The same for whole cards of one pool: ``requests`` are (cards, CPUs) per node, the most frequent ones.

    The worth of every number of free cards and CPUs is worked out once, so that a decision only looks it up.
    """

    def __init__(self, requests: Iterable[tuple[int, int]], cards_max: int, cpus_max: int) -> None:
        """The maxima are those of the largest nodes."""
        counts = Counter(request for request in requests if request[0])
        kept = sorted(counts.items(), key=lambda found: (-found[1], found[0]))[:REQUESTS_KEPT]
        self.requests = tuple(request for request, _ in kept)
        self._step = max(1, -(-cpus_max // CPU_STEPS))
        self._table = np.zeros((cards_max + 1, cpus_max // self._step + 1))
        free, cpus = np.arange(cards_max + 1)[:, None], np.arange(self._table.shape[1])[None, :] * self._step
        for (cards, cpus_wanted), count in kept:
            share = count / sum(times for _, times in kept)
            copies = np.minimum(free // cards, cpus / max(1, cpus_wanted))
            self._table += share * cards * copies

    def losses(self, cards: Ints, cpus: Ints, request: tuple[int, int]) -> Ints:
        """How far the worth of each node's free cards and CPUs falls by the request, in steps of NEARLY."""
        if not self.requests or not request[0]:
            return np.zeros(len(cards), dtype=np.int64)
        after = self._table[cards - request[0], (cpus - request[1]) // self._step]
        return np.rint((self._table[cards, cpus // self._step] - after) / NEARLY).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Worth:
    """The workload as arrays, one column per usual task.

    ``weight`` has a row per model: what one more copy there is worth, in cards. ``fits_milli[r]`` is how many
    copies' worth of cards a card with ``r`` thousandths free gives.
    """

    models: tuple[str, ...]
    cpu_milli: Floats
    cards: Floats
    allowed: npt.NDArray[np.bool_]
    weight: Floats
    fits_milli: Floats

    @classmethod
    def of(cls, workload: Workload, nodes: Sequence[NodeRoom]) -> Worth:
        """``nodes`` say how many cards of each model there are when all are free."""
        models = tuple(sorted({node.model for node in nodes}))
        supply = np.array([sum(len(n.cards) for n in nodes if n.model == m) for m in models], dtype=float)
        tasks = workload.tasks
        allowed = np.array([[not t.models or m in t.models for t in tasks] for m in models], dtype=bool)
        usable = np.maximum(supply @ allowed, 1.0)
        cards = np.array([task.cards for task in tasks], dtype=np.float32)
        weight = np.array(workload.shares) * cards * (supply.sum() / usable) ** SCARCITY_POWER
        part = np.array([max(1, task.card_milli) for task in tasks], dtype=np.int64)
        return cls(
            models=models,
            cpu_milli=np.array([max(1, task.cpu_milli) for task in tasks], dtype=np.float32),
            cards=cards,
            allowed=allowed,
            weight=(allowed * weight).astype(np.float32),
            fits_milli=(np.arange(CARD + 1)[:, None] // part).astype(np.float32),
        )

    def copies(self, fits: Floats, cpu_milli: Ints) -> Floats:
        """How many copies of each usual task go on each node; fractions of one where CPUs are the limit."""
        by_cards = np.floor(fits / self.cards)
        copies: Floats = np.minimum(by_cards, cpu_milli[:, None] / self.cpu_milli).astype(np.float32)
        return copies

    def of_rows(self, fits: Floats, cpu_milli: Ints, model: Ints) -> Floats:
        """The worth of what is free on each of these nodes, in cards."""
        worth: Floats = np.einsum("nk,nk->n", self.copies(fits, cpu_milli), self.weight[model])
        return worth


@dataclass(slots=True)
class State:
    """What is free, one row per node; ``fits`` are the cards' sums of ``Worth.fits_milli``."""

    model: Ints
    cpu_milli: Ints
    memory_mib: Ints
    cards: Ints
    fits: Floats

    @classmethod
    def of(cls, nodes: Sequence[NodeRoom], worth: Worth) -> State:
        width = max((len(node.cards) for node in nodes), default=1)
        cards = np.zeros((len(nodes), width), dtype=np.int64)
        for row, node in enumerate(nodes):
            cards[row, : len(node.cards)] = node.cards
        row_of = {model: row for row, model in enumerate(worth.models)}
        return cls(
            model=np.array([row_of[node.model] for node in nodes], dtype=np.int64),
            cpu_milli=np.array([node.cpu_milli for node in nodes], dtype=np.int64),
            memory_mib=np.array([node.memory_mib for node in nodes], dtype=np.int64),
            cards=cards,
            fits=worth.fits_milli[cards].sum(1),
        )


@dataclass(frozen=True, slots=True)
class Place:
    """The node's row and the places of the cards that the task gets there."""

    row: int
    cards: tuple[int, ...]


@dataclass(slots=True)
class _Known:
    """What a task would cost on each node, and up to which change that is true."""

    cost: Floats
    card: Ints
    seen: int


class Placer:
    """Places tasks one after another where the worth of what stays free falls least.

    What a task costs on a node only changes with that node. So costs are remembered per distinct task, and
    only nodes touched since are thought about again; nodes that nobody touched share the answer of their
    kind. A decision costs about the same on four times as many nodes.
    """

    def __init__(self, workload: Workload, nodes: Sequence[NodeRoom], worth: type[Worth] = Worth) -> None:
        self.worth = worth.of(workload, nodes)
        self.state = State.of(nodes, self.worth)
        self._now = self._worth_of(np.arange(len(nodes)))
        kinds: dict[NodeRoom, int] = {}
        self._kind = np.array([kinds.setdefault(node, len(kinds)) for node in nodes], dtype=np.int64)
        self._touched: list[int] = []
        self._known: dict[Task, _Known] = {}
        for task in workload.tasks:
            self._costs(task)

    def place(self, task: Task, memory_mib: int = 0) -> Place | None:
        """Where the task goes, taken at once; ``None`` where it fits nowhere."""
        known = self._costs(task)
        cost = np.where(self.state.memory_mib >= memory_mib, known.cost, np.inf)
        best = int(cost.argmin())
        if not np.isfinite(cost[best]):
            return None
        row = self.pick(cost, best, task)
        cards = self._cards_of(row, task, int(known.card[row]))
        self._take(row, task, cards, memory_mib)
        return Place(row, cards)

    def pick(self, cost: npt.NDArray[np.floating], best: int, task: Task) -> int:
        """Which of the places that are nearly as good as the best; the first one for whole cards."""
        if task.card_milli % CARD and task.cards:
            return best
        return int((cost <= cost[best] + NEARLY).argmax())

    def _costs(self, task: Task) -> _Known:
        known = self._known.get(task)
        if known is None:
            cost, card = self._cost_when_untouched(task)
            known = self._known[task] = _Known(cost, card, 0)
        if known.seen < len(self._touched):
            rows = np.array(sorted(set(self._touched[known.seen :])), dtype=np.int64)
            known.cost[rows], known.card[rows] = self._cost(task, rows)
            known.seen = len(self._touched)
        return known

    def _cost_when_untouched(self, task: Task) -> tuple[Floats, Ints]:
        """From one node of each kind that nobody has touched; touched ones follow in any case."""
        untouched = np.ones(len(self._kind), dtype=bool)
        untouched[self._touched] = False
        cost = np.full(len(self._kind), np.inf, dtype=np.float32)
        card = np.full(len(self._kind), -1, dtype=np.int64)
        rows = np.flatnonzero(untouched)
        if rows.size:
            _, first, back = np.unique(self._kind[rows], return_index=True, return_inverse=True)
            one_cost, one_card = self._cost(task, rows[first])
            cost[rows], card[rows] = one_cost[back], one_card[back]
        return cost, card

    def _worth_of(self, rows: Ints) -> Floats:
        state = self.state
        return self.worth.of_rows(state.fits[rows], state.cpu_milli[rows], state.model[rows])

    def _cost(self, task: Task, rows: Ints) -> tuple[Floats, Ints]:
        """What the task costs on each of the rows (infinite: does not fit), and the card if it is a part."""
        state, worth = self.state, self.worth
        cost = np.full(len(rows), np.inf, dtype=np.float32)
        card = np.full(len(rows), -1, dtype=np.int64)
        allowed = np.array([not task.models or model in task.models for model in worth.models])
        good = (state.cpu_milli[rows] >= task.cpu_milli) & allowed[state.model[rows]]
        if task.cards:
            good &= (state.cards[rows] >= task.card_milli).sum(1) >= task.cards
        fit = np.flatnonzero(good)
        if not fit.size:
            return cost, card
        if task.cards == 1 and task.card_milli < CARD:
            self._cost_of_part(task, rows[fit], fit, cost, card)
            return cost, card
        at = rows[fit]
        fits = state.fits[at] - worth.fits_milli[CARD] * np.float32(task.cards)
        cost[fit] = self._now[at] - self.after(fits, at, task)
        return cost, card

    def after(self, fits: Floats, at: Ints, task: Task) -> Floats:
        """The worth of these nodes once the task is there and its cards are gone from ``fits``."""
        return self.worth.of_rows(fits, self.state.cpu_milli[at] - task.cpu_milli, self.state.model[at])

    def _cost_of_part(self, task: Task, at: Ints, fit: Ints, cost: Floats, card: Ints) -> None:
        """A part of a card: each distinct amount free on a node is a choice of its own."""
        free = np.sort(self.state.cards[at], axis=1)
        order = np.argsort(self.state.cards[at], axis=1, kind="stable")
        choices = free >= task.card_milli
        choices[:, 1:] &= free[:, 1:] != free[:, :-1]
        which, place = np.nonzero(choices)
        had = free[which, place]
        table = self.worth.fits_milli
        fits = self.state.fits[at[which]] - table[had] + table[had - task.card_milli]
        loss = self._now[at[which]] - self.after(fits, at[which], task)
        starts = np.flatnonzero(np.diff(which, prepend=-1))
        least = np.minimum.reduceat(loss, starts)
        first = np.flatnonzero(loss == np.repeat(least, np.diff(starts, append=len(which))))
        first = first[np.diff(which[first], prepend=-1) != 0]
        cost[fit] = least
        card[fit] = order[which[first], place[first]]

    def _cards_of(self, row: int, task: Task, card: int) -> tuple[int, ...]:
        if card >= 0:
            return (card,)
        free = np.flatnonzero(self.state.cards[row] >= task.card_milli)
        return tuple(int(place) for place in free[: task.cards])

    def _take(self, row: int, task: Task, cards: tuple[int, ...], memory_mib: int) -> None:
        state = self.state
        state.cpu_milli[row] -= task.cpu_milli
        state.memory_mib[row] -= memory_mib
        if cards:
            state.cards[row, list(cards)] -= task.card_milli
            state.fits[row] = self.worth.fits_milli[state.cards[row]].sum(0)
        self._now[row] = self._worth_of(np.array([row]))[0]
        self._touched.append(row)


def _order(task: Task) -> tuple[int, int, int, tuple[str, ...]]:
    return (task.cards, task.card_milli, task.cpu_milli, tuple(sorted(task.models)))
