"""Specifications of jobs, kept once per content: the tasks of an array share one, whatever its length."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from threading import Lock

from pydantic import TypeAdapter
from sqlalchemy import Connection, select

from starverse.db.prepared import Prepared, among
from starverse.db.statements import insert_new
from starverse.db.tables import job_specs
from starverse.domain.workloads.specs import JobSpec

KEPT_MAX = 8_192
"""Specifications that stay parsed in memory; a queue is read in every round."""

_SPEC = TypeAdapter(JobSpec)
_NAMED = Prepared(select(job_specs).where(among(job_specs.c.id, "ids")))
_parsed: dict[str, JobSpec] = {}
_parsed_lock = Lock()


def keep(connection: Connection, specs: Iterable[JobSpec]) -> dict[int, str]:
    """Store those that are not there yet; ``id()`` of each object -> the id of its row."""
    found: dict[int, str] = {}
    for spec in specs:
        if id(spec) not in found:
            content = _SPEC.dump_json(spec)
            spec_id = found[id(spec)] = f"sha256:{hashlib.sha256(content).hexdigest()}"
            insert_new(connection, job_specs, {"id": spec_id, "content": content.decode()})
    return found


def load(connection: Connection, ids: Collection[str]) -> dict[str, JobSpec]:
    """The specifications with these ids; one that is in memory is not read again, since none changes."""
    with _parsed_lock:
        found = {spec_id: _parsed[spec_id] for spec_id in ids if spec_id in _parsed}
    missing = sorted(set(ids) - found.keys())
    if not missing:
        return found
    found |= {row.id: _SPEC.validate_json(row.content) for row in _NAMED.rows(connection, ids=missing)}
    with _parsed_lock:
        for spec_id in missing:
            _parsed[spec_id] = found[spec_id]
        while len(_parsed) > KEPT_MAX:
            del _parsed[next(iter(_parsed))]
    return found
