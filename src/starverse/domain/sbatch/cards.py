"""What scripts say about cards: ``--gres``, ``--gpus*``, ``--constraint``, ``--partition``."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from starverse.domain.sbatch.origins import BadValue
from starverse.domain.sbatch.values import COUNT_MAX, FABRICS

_MODEL = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,63}", re.ASCII)
_GRES = re.compile(r"(?:gres[:/])?(?P<kind>[A-Za-z][A-Za-z0-9_]*)(?P<rest>(?::[^:]*)*)", re.ASCII)
_GRES_EXPECTED = "gpu:COUNT or gpu:MODEL:COUNT, for instance gpu:rtx4090:2"
_GPUS_EXPECTED = "COUNT or MODEL:COUNT, for instance rtx4090:2"


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The card models and zones that exist; empty: not known here, so any well-formed name is taken."""

    models: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CardRequest:
    """A number of cards and their model; ``None``: any."""

    count: int
    model: str | None = None

    def __str__(self) -> str:
        return str(self.count) if self.model is None else f"{self.model}:{self.count}"


@dataclass(frozen=True, slots=True)
class Place:
    """What ``--constraint`` or ``--partition`` ask for; ``None``: any. ``tariff`` is a partition's name."""

    model: str | None = None
    fabric: str | None = None
    zone: str | None = None
    tariff: str | None = None


def gres(text: str, vocabulary: Vocabulary) -> CardRequest:
    """``--gres``: cards per node. ``none`` asks for no cards; an empty value is named."""
    if not text.strip():
        raise BadValue(f"{_GRES_EXPECTED}; it is empty, which would ask for no cards")
    if text.lower() == "none":
        return CardRequest(0)
    requests = [_one_gres(part.strip(), vocabulary) for part in text.split(",")]
    return _one_model(requests)


def gpus(text: str, vocabulary: Vocabulary) -> CardRequest:
    """``--gpus``, ``--gpus-per-node``, ``--gpus-per-task``."""
    requests = [_typed_count(part.strip().split(":"), vocabulary, _GPUS_EXPECTED) for part in text.split(",")]
    return _one_model(requests)


def constraint(text: str, vocabulary: Vocabulary) -> Place:
    """Features that all must hold, joined by ``&`` or ``,``: a fabric, a model, a zone."""
    if re.search(r"[|*()\[\]]", text):
        raise BadValue("features joined by &: alternatives (|), counts (*) and groups are not supported")
    place = Place()
    for feature in re.split(r"[&,]", text):
        place = _merged(place, _one_feature(feature.strip(), vocabulary))
    return place


def partition(text: str, vocabulary: Vocabulary) -> Place:
    """A pool ``zone/model/fabric``, a fabric, a model, a zone, ``spot`` or ``idle`` (tariffs), or ``all``."""
    if "," in text:
        raise BadValue("one partition, not a list")
    name = text.strip()
    if name.lower() in {"all", "any"}:
        return Place()
    if name.lower() in {"spot", "idle"}:
        return Place(tariff=name.lower())
    if name.count("/") == 2:
        zone, model, fabric = name.split("/")
        place = _merged(Place(fabric=_fabric(fabric)), Place(model=_model(model, vocabulary)))
        return _merged(place, _one_feature(f"zone:{zone}", vocabulary))
    try:
        return _one_feature(name, vocabulary)
    except BadValue as error:
        raise BadValue(
            "all, ib, roce, eth, spot, idle, a card model, a zone, or a pool such as bj1/rtx4090/ib"
        ) from error


def _one_gres(part: str, vocabulary: Vocabulary) -> CardRequest:
    found = _GRES.fullmatch(part)
    if found is None:
        raise BadValue(_GRES_EXPECTED)
    if found["kind"].lower() != "gpu":
        raise BadValue(f"{_GRES_EXPECTED}; there is nothing but gpu")
    fields = found["rest"].split(":")[1:]
    return _typed_count(fields, vocabulary, _GRES_EXPECTED) if fields else CardRequest(1)


def _typed_count(fields: list[str], vocabulary: Vocabulary, expected: str) -> CardRequest:
    model: str | None = None
    number = "1"
    if len(fields) == 1:
        if fields[0][:1].isdigit():
            number = fields[0]
        else:
            model = _model(fields[0], vocabulary)
    elif len(fields) == 2:
        model, number = _model(fields[0], vocabulary), fields[1]
    else:
        raise BadValue(expected)
    if not re.fullmatch(r"\d{1,7}", number, re.ASCII) or int(number) > COUNT_MAX:
        raise BadValue(expected)
    return CardRequest(int(number), model if int(number) else None)


def _one_model(requests: list[CardRequest]) -> CardRequest:
    if len(requests) == 1:
        return requests[0]
    models = sorted({request.model or "any" for request in requests})
    if len(models) > 1:
        raise BadValue(f"one card model for the whole job, not {' and '.join(models)}")
    return CardRequest(sum(request.count for request in requests), requests[0].model)


def _model(text: str, vocabulary: Vocabulary) -> str:
    name = text.lower()
    if _MODEL.fullmatch(name) is None:
        raise BadValue("a card model such as rtx4090")
    if vocabulary.models and name not in vocabulary.models:
        raise BadValue(f"a card model that is here: {_choices(name, vocabulary.models)}")
    return name


def _fabric(text: str) -> str:
    if text.lower() not in FABRICS:
        raise BadValue("a fabric: ib, roce or eth")
    return text.lower()


def _one_feature(feature: str, vocabulary: Vocabulary) -> Place:
    kind, colon, name = feature.partition(":")
    if colon and kind in {"zone", "model", "fabric"}:
        if kind == "fabric":
            return Place(fabric=_fabric(name))
        if kind == "model":
            return Place(model=_model(name, vocabulary))
        if _MODEL.fullmatch(name) is None or (vocabulary.zones and name not in vocabulary.zones):
            raise BadValue(f"a zone that is here: {_choices(name, vocabulary.zones)}")
        return Place(zone=name)
    if feature.lower() in FABRICS:
        return Place(fabric=feature.lower())
    if feature.lower() in vocabulary.models:
        return Place(model=feature.lower())
    if feature in vocabulary.zones:
        return Place(zone=feature)
    raise BadValue(
        "ib, roce or eth, model:NAME, zone:NAME"
        + (
            f", or a name of {', '.join((*vocabulary.models, *vocabulary.zones))}"
            if vocabulary.models
            else ""
        )
    )


def _merged(one: Place, other: Place) -> Place:
    """Both at once; raises :class:`BadValue` where they contradict each other."""
    merged: dict[str, str | None] = {}
    for name in ("model", "fabric", "zone", "tariff"):
        first, second = getattr(one, name), getattr(other, name)
        if first is not None and second is not None and first != second:
            raise BadValue(f"one {name}, not {first} and {second}")
        merged[name] = first if first is not None else second
    return Place(**merged)


def _choices(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=3)
    return ", ".join(near or names) or "none is known"
