"""Images as they are recorded: of a team, or of the platform (no team) for everybody."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Row, Select, bindparam, func, insert, or_, select, update

from starverse.db.disk_tables import images
from starverse.db.instance_tables import instances
from starverse.db.prepared import Prepared, among
from starverse.db.tables import allocations, job_specs, jobs
from starverse.domain.catalog.images import Image, ImageKind, ImageState, advance
from starverse.domain.errors import Conflict
from starverse.domain.workloads.states import AllocationState, InstanceState, JobState

_OPEN = (
    AllocationState.PLACED,
    AllocationState.STARTING,
    AllocationState.RUNNING,
    AllocationState.STOPPING,
)
_NAMES_ONE = '"image":"'
"""In the stored text of a specification that names an image."""
_FIELDS = tuple(Image.__dataclass_fields__)


def _select() -> Select[*tuple[object, ...]]:
    return select(*(images.c[name] for name in _FIELDS))


_GET = Prepared(_select().where(images.c.id == bindparam("wanted")))
_IN_STATES = Prepared(
    _select().where(among(images.c.state, "states")).order_by(images.c.asked_at, images.c.id)
)


def add(connection: Connection, image: Image) -> None:
    """Raises ``IntegrityError`` when the team has an image of this name."""
    connection.execute(insert(images).values(**_values(image)))


def get(connection: Connection, image_id: str) -> Image | None:
    row = _GET.first(connection, wanted=image_id)
    return None if row is None else _image(row)


def find(connection: Connection, team_id: str, text: str) -> Image | None:
    """An image by id or name, of the team, else of the platform; removed ones are not found."""
    mine = or_(images.c.team_id == team_id, images.c.team_id.is_(None))
    query = (
        _select()
        .where(mine, images.c.removed_at.is_(None), or_(images.c.id == text, images.c.name == text))
        .order_by(images.c.team_id.is_(None), images.c.asked_at)
        .limit(1)
    )
    row = connection.execute(query).one_or_none()
    return None if row is None else _image(row)


def visible(connection: Connection, team_id: str) -> tuple[Image, ...]:
    """The team's images and those of the platform, by name; of two of one name the team's comes first."""
    query = (
        _select()
        .where(or_(images.c.team_id == team_id, images.c.team_id.is_(None)), images.c.removed_at.is_(None))
        .order_by(images.c.name, images.c.team_id.is_(None))
    )
    return tuple(_image(row) for row in connection.execute(query))


def count_of_team(connection: Connection, team_id: str | None) -> int:
    owner = images.c.team_id.is_(None) if team_id is None else images.c.team_id == team_id
    query = select(func.count()).select_from(images).where(owner, images.c.removed_at.is_(None))
    return int(connection.execute(query).scalar_one())


def in_states(connection: Connection, *states: ImageState) -> tuple[Image, ...]:
    """The images in these states, the one asked for first leading."""
    rows = _IN_STATES.rows(connection, states=[state.value for state in states])
    return tuple(_image(row) for row in rows)


def change(connection: Connection, image: Image, state: ImageState, **changes: Any) -> Image:
    """Write another state if nobody wrote one since ``image`` was read; raises :class:`Conflict` else."""
    new = replace(image, state=advance(image.state, state), generation=image.generation + 1, **changes)
    done = connection.execute(
        update(images)
        .where(images.c.id == image.id, images.c.generation == image.generation)
        .values(**_values(new))
    )
    if done.rowcount != 1:
        raise Conflict(f"The image {image.name} was changed at the same moment; look at it and try again.")
    return new


def named_digests(connection: Connection) -> frozenset[str]:
    """The digests that an image names which is not removed, a saved image's base included."""
    rows = connection.execute(
        select(images.c.digest).where(images.c.removed_at.is_(None), images.c.digest.is_not(None)).distinct()
    )
    return frozenset(row.digest for row in rows)


def digests_of(connection: Connection, image_ids: Collection[str]) -> frozenset[str]:
    """The digests of these images, removed ones too."""
    rows = connection.execute(
        select(images.c.digest).where(images.c.id.in_(image_ids), images.c.digest.is_not(None))
    )
    return frozenset(row.digest for row in rows)


def used_by_open_jobs(connection: Connection) -> dict[str, list[str]]:
    """Image id -> ids of jobs that have not ended, or whose allocation is open, and name it."""
    running = select(allocations.c.job_id).where(allocations.c.state.in_(_OPEN))
    query = (
        select(jobs.c.id, job_specs.c.content)
        .join(job_specs, job_specs.c.id == jobs.c.spec_id)
        .where(
            job_specs.c.content.contains(_NAMES_ONE),
            or_(jobs.c.state.in_((JobState.QUEUED, JobState.RUNNING)), jobs.c.id.in_(running)),
        )
    )
    return _named(connection.execute(query))


def used_as_base(connection: Connection) -> dict[str, list[str]]:
    """Image id -> ids of saved images that stand on it and are not removed."""
    query = select(images.c.id, images.c.recipe).where(
        images.c.kind == ImageKind.SAVED, images.c.removed_at.is_(None)
    )
    found: dict[str, list[str]] = {}
    for image_id, recipe in connection.execute(query):
        base = json.loads(recipe)["base"]
        if base:
            found.setdefault(base, []).append(image_id)
    return found


def used_by_instances(connection: Connection) -> dict[str, list[str]]:
    """Image id -> ids of instances that are not released and name it."""
    query = select(instances.c.id, instances.c.spec).where(
        instances.c.spec.contains(_NAMES_ONE), instances.c.state != InstanceState.RELEASED
    )
    return _named(connection.execute(query))


def _named(rows: Iterable[Row[*tuple[object, ...]]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for user, text in rows:
        image_id = json.loads(str(text)).get("image")
        if image_id:
            found.setdefault(str(image_id), []).append(str(user))
    return found


def _image(row: Any) -> Image:
    values = {name: getattr(row, name) for name in _FIELDS}
    return Image(**values | {"contents": tuple(json.loads(values["contents"]))})


def _values(image: Image) -> dict[str, Any]:
    values = {name: getattr(image, name) for name in _FIELDS}
    return values | {"contents": json.dumps(image.contents)}
