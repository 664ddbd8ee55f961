"""Nodes, tasks, cards, CPUs and memory that fit each other, out of the options that name some of them.

sbatch manual page, ``--nodes``, ``--ntasks``, ``--gpus`` and their neighbours. Slurm leaves some sums to
its scheduler; here every number of a gang is settled before it is priced, and what contradicts itself is
refused by name.
"""

from __future__ import annotations

from dataclasses import dataclass

from starverse.domain.sbatch.cards import CardRequest, Place
from starverse.domain.sbatch.choosing import Choice
from starverse.domain.sbatch.origins import Notice
from starverse.domain.sbatch.values import NodeCount
from starverse.domain.workloads.specs import Resources


@dataclass(frozen=True, slots=True)
class _Shape:
    nodes: int
    tasks: int
    tasks_per_node: int


def combine(choice: Choice) -> Resources | None:
    """The resources asked for; ``None`` when they contradict themselves, with faults in ``choice``."""
    before = len(choice.faults)
    shape = _shape(choice)
    cards = _cards_per_node(choice, shape)
    model = _one_of(choice, "model", _models(choice))
    fabric = _one_of(choice, "fabric", _places(choice, "fabric"))
    zone = _one_of(choice, "zone", _places(choice, "zone"))
    nodelist: tuple[str, ...] = choice.value("nodelist", tuple) or ()
    exclude: tuple[str, ...] = choice.value("exclude", tuple) or ()
    both = sorted(set(nodelist) & set(exclude))
    if both:
        choice.fault("exclude", f"no node that --nodelist names: {', '.join(both)}")
    if model is not None and cards == 0:
        name = next(name for name, found in _models(choice) if found == model)
        choice.fault(name, f"a number of cards as well, such as --gres=gpu:{model}:1")
    cpus = _cpus_per_task(choice, shape, cards)
    memory = _memory_per_node(choice, shape.tasks_per_node * cpus, cards)
    if len(choice.faults) > before:
        return None
    return Resources(
        card_model=model,
        cards_per_node=cards,
        nodes=shape.nodes,
        tasks=shape.tasks,
        tasks_per_node=shape.tasks_per_node,
        cpus_per_task=cpus,
        memory_bytes_per_node=memory,
        fabric=fabric,
        zone=zone,
        exclude=exclude,
        nodelist=nodelist,
    )


def _shape(choice: Choice) -> _Shape:
    tasks = choice.value("ntasks", int)
    each = choice.value("ntasks-per-node", int)
    nodes = _nodes(choice, tasks, each)
    if tasks is None:
        tasks = nodes * each if each is not None else _tasks_by_cards(choice, nodes)
    if tasks < nodes:
        choice.fault("ntasks", f"at least one task for each of {nodes} nodes")
    elif each is not None and tasks > nodes * each:
        choice.fault("ntasks", f"at most {nodes * each}: {each} tasks on each of {nodes} nodes")
    return _Shape(nodes, tasks, max(1, -(-tasks // nodes)))


def _nodes(choice: Choice, tasks: int | None, each: int | None) -> int:
    asked = choice.value("nodes", NodeCount)
    nodelist: tuple[str, ...] = choice.value("nodelist", tuple) or ()
    if asked is not None:
        if asked.most > asked.least:
            text = f"--nodes={asked.least}-{asked.most}: a gang has a fixed size, {asked.least} is taken"
            choice.notices.append(Notice(text, choice.origin("nodes")))
        if len(nodelist) > asked.least:
            choice.fault("nodelist", f"at most {asked.least} nodes, as --nodes says")
        return asked.least
    if nodelist:
        return len(nodelist)
    if tasks is not None and each is not None:
        return -(-tasks // each)
    total = choice.value("gpus", CardRequest)
    per_node = _first_count(choice, ("gres", "gpus-per-node"))
    if total is not None and per_node:
        return max(1, total.count // per_node)
    per_task = choice.value("gpus-per-task", CardRequest)
    if total is not None and per_task is not None and per_task.count and each:
        return max(1, total.count // per_task.count // each)
    return 1


def _tasks_by_cards(choice: Choice, nodes: int) -> int:
    """One task per node, or as many as ``--gpus-per-task`` makes of the cards."""
    per_task = choice.value("gpus-per-task", CardRequest)
    if per_task is None or not per_task.count:
        return nodes
    total = choice.value("gpus", CardRequest)
    per_node = _first_count(choice, ("gres", "gpus-per-node"))
    if total is not None:
        return max(nodes, total.count // per_task.count)
    return max(nodes, nodes * per_node // per_task.count) if per_node else nodes


def _first_count(choice: Choice, names: tuple[str, ...]) -> int:
    for name in names:
        request = choice.value(name, CardRequest)
        if request is not None and request.count:
            return request.count
    return 0


def _cards_per_node(choice: Choice, shape: _Shape) -> int:
    """Each option's own answer; they must agree."""
    answers: dict[str, int] = {}
    for name in ("gres", "gpus-per-node"):
        request = choice.value(name, CardRequest)
        if request is not None:
            answers[name] = request.count
    total = choice.value("gpus", CardRequest)
    if total is not None:
        if total.count % shape.nodes:
            choice.fault("gpus", f"a multiple of the {shape.nodes} nodes: each has as many cards")
        answers["gpus"] = total.count // shape.nodes
    per_task = choice.value("gpus-per-task", CardRequest)
    if per_task is not None:
        if shape.tasks != shape.nodes * shape.tasks_per_node:
            choice.fault("gpus-per-task", f"tasks spread evenly, not {shape.tasks} on {shape.nodes} nodes")
        answers["gpus-per-task"] = per_task.count * shape.tasks_per_node
    if len(set(answers.values())) > 1:
        first, *others = answers
        for name in others:
            if answers[name] != answers[first]:
                agree = f"--{first} makes {answers[first]} on each node, --{name} makes {answers[name]}"
                choice.fault(name, f"the same number of cards: {agree}")
    return next(iter(answers.values()), 0)


def _models(choice: Choice) -> list[tuple[str, str]]:
    found = []
    for name in ("gres", "gpus", "gpus-per-node", "gpus-per-task"):
        request = choice.value(name, CardRequest)
        if request is not None and request.model is not None:
            found.append((name, request.model))
    return [*found, *_places(choice, "model")]


def _places(choice: Choice, what: str) -> list[tuple[str, str]]:
    found = []
    for name in ("constraint", "partition"):
        place = choice.value(name, Place)
        value = None if place is None else getattr(place, what)
        if value is not None:
            found.append((name, str(value)))
    return found


def _one_of(choice: Choice, what: str, found: list[tuple[str, str]]) -> str | None:
    if not found:
        return None
    first_name, first = found[0]
    for name, value in found[1:]:
        if value != first:
            choice.fault(name, f"one {what} for the whole job: --{first_name} says {first}, --{name} {value}")
    return first


def _cpus_per_task(choice: Choice, shape: _Shape, cards: int) -> int:
    cpus = choice.value("cpus-per-task", int)
    per_card = choice.value("cpus-per-gpu", int)
    if per_card is None:
        return cpus or 1
    if cpus is not None:
        choice.fault("cpus-per-gpu", "only one of --cpus-per-task and --cpus-per-gpu")
    elif cards == 0:
        choice.fault("cpus-per-gpu", "cards to count by, such as --gres=gpu:1")
    return -(-per_card * cards // shape.tasks_per_node) or 1


def _memory_per_node(choice: Choice, cpus_per_node: int, cards: int) -> int | None:
    per_cpu = choice.value("mem-per-cpu", int)
    if per_cpu is not None:
        return per_cpu * cpus_per_node
    per_card = choice.value("mem-per-gpu", int)
    if per_card is not None:
        if cards == 0:
            choice.fault("mem-per-gpu", "cards to count by, such as --gres=gpu:1")
        return per_card * cards
    return choice.value("mem", int)
