"""From a script on this machine to a job: read it, pack the folder, send what is missing, submit.

Shared by ``starverse submit`` and the ``sbatch`` shim.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from starverse.client.errors import Refused
from starverse.client.jobs import Jobs, Submission
from starverse.client.packing import pack_folder
from starverse.client.sbatch_words import WRAP_SCRIPT_NAME, Words, environment_to_send, wrapped_script
from starverse.client.shapes import Submitted

_ZONE = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+){0,2}")

SCRIPT_BYTES_MAX = 4 * 1024**2
"""Slurm's default limit for a script (``max_script_size``)."""


@dataclass(frozen=True, slots=True)
class ScriptSource:
    """``name`` is what the job is called by default; ``text`` the script."""

    name: str
    text: str


def read_script(folder: Path, name: str) -> ScriptSource:
    """Read a script file; raises :class:`Refused` when it is not readable text."""
    try:
        raw = (folder / name).read_bytes()
    except OSError as error:
        code = "not_found" if isinstance(error, FileNotFoundError) else "invalid"
        raise Refused(code, f"the script {name} cannot be read: {error.strerror or error}") from error
    return script_of_bytes(Path(name).name, raw)


def script_of_bytes(name: str, raw: bytes) -> ScriptSource:
    """The script in some bytes; raises :class:`Refused` when it is too large or not UTF-8 text."""
    if len(raw) > SCRIPT_BYTES_MAX:
        raise Refused(
            "too_large",
            f"the script {name} has {len(raw)} bytes; a script may have {SCRIPT_BYTES_MAX}",
            hint="a job's data goes into the folder that it is submitted from",
        )
    try:
        return ScriptSource(name, raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise Refused(
            "invalid",
            f"the script {name} is not UTF-8 text: byte {error.start} in line {line}",
            hint=f"convert it: iconv -f GB18030 -t UTF-8 {name}",
        ) from error


def submission_of(source: ScriptSource, words: Words, environ: Mapping[str, str], folder: Path) -> Submission:
    """What to send; its folder comes later (:func:`submit_with_folder`)."""
    return Submission(
        script=source.text,
        script_name=source.name,
        argv=tuple(words.options),
        arguments=tuple(words.arguments),
        environment={**caller_zone(environ), **environment_to_send(source.text, words.options, environ)},
        submit_dir=os.fsencode(folder).decode("utf-8", "replace"),
    )


def caller_zone(environ: Mapping[str, str], localtime: Path = Path("/etc/localtime")) -> dict[str, str]:
    """``TZ``: the zone whose clocks the caller types times by; nothing where it has no name."""
    name = environ.get("TZ")
    if not name:
        place = localtime.resolve()
        name = str(place).rpartition("zoneinfo/")[2] if place.exists() else "UTC"
    name = name.removeprefix(":")
    return {"TZ": name} if _ZONE.fullmatch(name) else {}


def wrapped_source(command: str) -> ScriptSource:
    """The script of ``--wrap``."""
    return ScriptSource(WRAP_SCRIPT_NAME, wrapped_script(command))


def submit_with_folder(jobs: Jobs, submission: Submission, folder: Path, key: str) -> Submitted:
    """Pack and send the folder, then submit; with the same ``key`` a repeat gives the same job."""
    packed = pack_folder(folder, jobs.folder_limits)
    try:
        jobs.send_folder(packed)
        return jobs.submit(replace(submission, folder_id=packed.folder_id), key=key)
    finally:
        packed.close()


def submitted_number(answer: Submitted) -> str:
    """What people type: the array's own number where an array was submitted."""
    job = answer["job"]
    return str(job.get("array_number") or job["number"])
