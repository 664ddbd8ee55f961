"""Which card model a job means when it names none (architecture.md, Scheduling).

``--gres=gpu:2`` without a model is refused where models differ in price, with the choices.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from starverse.domain.errors import FieldFault
from starverse.domain.money import MICRO_PER_YUAN, decimal_string
from starverse.domain.workloads.specs import JobSpec


@dataclass(frozen=True, slots=True)
class ModelChoices:
    """No model can be settled: ``asked`` is what was asked for, ``None``: any; ``rates`` are the choices.

    A rate is in micro-yuan per card-hour.
    """

    asked: str | None
    cards_per_node: int
    rates: tuple[tuple[str, Fraction], ...]

    def fault(self) -> FieldFault:
        """In words, with each choice as it would be typed and its price."""
        typed = "gpu:" + (f"{self.asked}:" if self.asked else "") + str(self.cards_per_node)
        if not self.rates:
            return FieldFault("--gres", typed, "cards, but there are none here; see `starverse offers`")
        choices = [
            f"gpu:{model}:{self.cards_per_node} (CNY {decimal_string(rate / MICRO_PER_YUAN)} per card-hour)"
            for model, rate in self.rates
        ]
        why = "a model that is here" if self.asked else "a model, because prices differ"
        return FieldFault("--gres", typed, f"{why}: {' or '.join(choices)}")


def resolve_model(spec: JobSpec, prices_by_model: Mapping[str, Fraction]) -> JobSpec | ModelChoices:
    """The spec with its model settled, or the choices.

    ``prices_by_model``: list price of each model in the pools that the spec may use (its zone and fabric),
    in micro-yuan per card-hour. Where all models cost the same ``card_model`` stays ``None``: the platform
    takes what is free. A single model is filled in.
    """
    resources = spec.resources
    if resources.cards_per_node == 0:
        return spec
    rates = sorted(prices_by_model.items(), key=lambda item: (item[1], item[0]))
    if resources.card_model is not None:
        if resources.card_model in prices_by_model:
            return spec
        near = difflib.get_close_matches(resources.card_model, [model for model, _ in rates], n=3)
        chosen = [item for item in rates if item[0] in near] or rates
        return ModelChoices(resources.card_model, resources.cards_per_node, tuple(chosen))
    if not rates or len({rate for _, rate in rates}) > 1:
        return ModelChoices(None, resources.cards_per_node, tuple(rates))
    if len(rates) > 1:
        return spec
    return replace(spec, resources=replace(resources, card_model=rates[0][0]))
