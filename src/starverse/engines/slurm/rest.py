"""Slurm through slurmrestd with JWT.

The version of the interface is asked for once: v0.0.38 (Slurm 22.05) takes no node names for a job, so there
a job is pinned by features, each node having its own name among its features; later ones take the names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import httpx2

from starverse.engines.slurm.facts import (
    JobRequest,
    SlurmJob,
    SlurmNode,
    SlurmRefused,
    SlurmUnavailable,
    SlurmUnreached,
)
from starverse.engines.slurm.parsing import read_rest_errors, read_rest_jobs, read_rest_nodes
from starverse.engines.slurm.tokens import Tokens

OLDEST, NAMES_NODES_FROM = 37, 39
_NO = re.compile(r"Invalid|not available|not permitted|denied|violates|Unable to process|Unknown key|parsing")
"""Complaints that are an answer; after any other one nothing is known of what was asked."""
_TOKEN = re.compile(r"authenticat|credential|token", re.IGNORECASE)
_NOTHING_SAID = ("", "Unspecified error")
"""All that Slurm 22.05 says to a bad token, with 500."""
_UNKNOWN_JOB, _NODE_AWAY = "Invalid job id", "Required node not available"


class Rest:
    """``call_seconds_max`` bounds each call; ``wire`` ``None``: the network."""

    def __init__(
        self,
        url: str,
        tokens: Tokens,
        *,
        call_seconds_max: float = 10.0,
        wire: httpx2.BaseTransport | None = None,
    ) -> None:
        self._tokens = tokens
        self._url = url
        self._version = 0
        self._client = httpx2.Client(base_url=url, timeout=call_seconds_max, trust_env=False, transport=wire)

    def close(self) -> None:
        self._client.close()

    def describe(self) -> str:
        release = self._ask("GET", "ping").get("meta", {})
        slurm = release.get("Slurm") or release.get("slurm") or {}
        return f"slurm {slurm.get('release', '?')}, by slurmrestd v0.0.{self._probe()} at {self._url}"

    def names_nodes(self) -> bool:
        """Whether a job can be pinned to nodes by their names."""
        return self._probe() >= NAMES_NODES_FROM

    def jobs(self, partitions: Sequence[str]) -> tuple[SlurmJob, ...]:
        answer = self._ask("GET", "jobs")
        wanted = set(partitions)
        ours = [
            job
            for job in answer.get("jobs") or []
            if not wanted or wanted & set(str(job.get("partition", "")).split(","))
        ]
        return tuple(job for job in read_rest_jobs({"jobs": ours}) if not job.over)

    def find(self, name: str) -> tuple[SlurmJob, ...]:
        return tuple(job for job in read_rest_jobs(self._ask("GET", "jobs")) if job.name == name)

    def nodes(self) -> tuple[SlurmNode, ...]:
        return read_rest_nodes(self._ask("GET", "nodes"))

    def submit(self, request: JobRequest) -> str:
        if not self.names_nodes() and not request.pins_by_feature:
            raise SlurmRefused(
                f"slurmrestd v0.0.{self._version} cannot pin a job to {', '.join(request.nodes)}",
                hint="give each node its own name as a feature, or set slurm.transport to commands",
            )
        try:
            answer = self._ask("POST", "job/submit", submission(request, self._version))
            number = answer.get("job_id") or (answer.get("result") or {}).get("job_id")
        except SlurmRefused as error:
            number = self._queued_all_the_same(request.name, error)
        if not number:
            raise SlurmUnavailable("slurmrestd took the job and named no number")
        if not self.forbids_requeue():
            self._refuse_requeue(request.name, str(number))
        return str(number)

    def _queued_all_the_same(self, name: str, error: SlurmRefused) -> str:
        """The number of a job that slurmrestd complains of although Slurm queued it: its node is down, or was
        not heard yet by a controller that has just come back (measured on 22.05). Raises what else it is."""
        queued = [job.job_id for job in self.find(name) if not job.over]
        if queued:
            return queued[0]
        if _NODE_AWAY in error.detail:
            raise SlurmUnavailable(error.detail) from error
        raise error

    def forbids_requeue(self) -> bool:
        """Whether a submit can say that Slurm must not start the job again. v0.0.38 takes the mere presence
        of ``requeue`` for yes (measured), so that there the cluster's JobRequeue decides."""
        return self._probe() >= NAMES_NODES_FROM

    def _refuse_requeue(self, name: str, number: str) -> None:
        """A job that Slurm would start again by itself after the death of a node is not left there."""
        try:
            found = read_rest_jobs(self._ask("GET", f"job/{number}"))
        except SlurmRefused as error:  # a controller that came back just now may have forgotten it
            raise SlurmUnavailable(f"slurmrestd took the job, and now: {error.detail}") from error
        if any(job.requeues for job in found if job.name == name):
            self.cancel(name)
            raise SlurmRefused(
                f"slurmrestd v0.0.{self._version} cannot keep Slurm from requeueing a job",
                hint="set JobRequeue=0 in slurm.conf, or slurm.transport to commands or both",
            )

    def cancel(self, name: str) -> None:
        """Each by its number, which is looked up now: an old one may be another's by now."""
        for job in self.find(name):
            if not job.over:
                try:
                    self._ask("DELETE", f"job/{job.job_id}")
                except SlurmRefused as error:
                    if _UNKNOWN_JOB not in error.detail:
                        raise

    def _probe(self) -> int:
        """The newest version of the interface that is served."""
        if not self._version:
            paths = self._send("GET", "/openapi/v3", None).get("paths") or {}
            found = {int(hit[1]) for path in paths if (hit := re.match(r"/slurm/v0\.0\.(\d+)/", path))}
            if not found or max(found) < OLDEST:
                raise SlurmRefused(
                    f"slurmrestd at {self._url} serves no version that we know: {sorted(found)}"
                )
            self._version = max(found)
        return self._version

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return self._send(method, f"/slurm/v0.0.{self._probe()}/{path}", body)

    def _send(self, method: str, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        """One call, and another one with a new token where it may have been the token (Slurm 22.05 answers
        500 to a bad one). What changes something is repeated only where it was not let in."""
        for attempt in (1, 2):
            headers = {"X-SLURM-USER-NAME": self._tokens.user, "X-SLURM-USER-TOKEN": self._tokens.current()}
            try:
                response = self._client.request(method, path, json=body, headers=headers)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                raise SlurmUnreached(
                    f"slurmrestd at {self._url} is not there: {error}; check slurm.rest_url"
                ) from error
            except httpx2.HTTPError as error:
                raise SlurmUnavailable(
                    f"slurmrestd at {self._url}: {type(error).__name__} {error}"
                ) from error
            try:
                answer = response.json()
            except ValueError:
                answer = {"errors": [{"error": response.text[:200] or f"HTTP {response.status_code}"}]}
            answer = answer if isinstance(answer, dict) else {}
            complaints = "; ".join(read_rest_errors(answer))
            if response.status_code < 400 and not complaints:
                return answer
            self._tokens.renew()
            if _NO.search(complaints) and not _TOKEN.search(complaints):
                raise SlurmRefused(f"slurmrestd: {complaints}")
            if attempt == 2 or (method != "GET" and response.status_code != 401):
                break
        said = f"slurmrestd: HTTP {response.status_code} {complaints}".strip()
        if response.status_code == 401 or complaints in _NOTHING_SAID or _TOKEN.search(complaints):
            said += f"; does it take the token of {self._tokens.user}? check slurm.jwt_key and slurm.user"
        raise SlurmUnavailable(said)


def submission(request: JobRequest, version: int) -> dict[str, Any]:
    """The body of a submit, in the shape of this version."""
    newer = version >= NAMES_NODES_FROM
    job: dict[str, Any] = {
        "name": request.name,
        "dependency": "singleton",
        "tasks": len(request.nodes),
        "tasks_per_node": 1,
        "cpus_per_task": request.cpus,
        "memory_per_node": {"number": request.memory_mib, "set": True} if newer else request.memory_mib,
        "time_limit": {"number": request.time_minutes, "set": True} if newer else request.time_minutes,
        "current_working_directory": request.folder,
        "standard_output": request.output,
        "standard_error": request.output,
        "comment": request.comment,
        "environment": [f"{name}={value}" for name, value in request.environment]
        if newer
        else dict(request.environment),
    }
    if newer:
        job |= {
            "requeue": False,
            "nodes": str(len(request.nodes)),
            "required_nodes": list(request.nodes),
            "open_mode": ["APPEND"],
        }
    else:
        job |= {"nodes": [len(request.nodes)] * 2, "open_mode": "append", "constraints": _pin(request.nodes)}
    if request.partition:
        job["partition"] = request.partition
    if request.gres:
        key = "tres_per_node" if newer else "gres"
        job[key] = ",".join(f"gres/{part}" for part in request.gres.split(",")) if newer else request.gres
    if version > NAMES_NODES_FROM:
        return {"job": {**job, "script": request.script}}
    return {"script": request.script, "job": job}


def _pin(nodes: tuple[str, ...]) -> str:
    """One node of each of these features (sbatch(1), --constraint, multiple counts)."""
    return nodes[0] if len(nodes) == 1 else f"[{'&'.join(f'{node}*1' for node in nodes)}]"
