"""What slurmrestd is told and how its answers count, against a wire whose answers are told."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from starverse.engines.slurm.back_off import BackOff
from starverse.engines.slurm.facts import SlurmRefused, SlurmUnavailable, SlurmUnreached
from starverse.engines.slurm.rest import Rest
from starverse.engines.slurm.tokens import Tokens
from starverse.testing.slurm_sites import build_request

REQUEST = build_request(nodes=("n1",), comment="starverse-1")


class Wire:
    """Answers by method and path; keeps what was asked."""

    def __init__(self, *versions: int) -> None:
        self.answers: dict[str, list[tuple[int, Any]]] = {
            "GET /openapi/v3": [(200, {"paths": {f"/slurm/v0.0.{v}/jobs": {} for v in versions}})]
        }
        self.asked: list[httpx2.Request] = []
        self.down = False

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        if self.down:
            raise httpx2.ConnectError("refused", request=request)
        self.asked.append(request)
        known = self.answers[f"{request.method} {request.url.path}"]
        status, body = known.pop(0) if len(known) > 1 else known[0]
        return (
            httpx2.Response(status, json=body)
            if not isinstance(body, str)
            else httpx2.Response(status, text=body)
        )

    def paths(self, method: str) -> list[str]:
        return [request.url.path for request in self.asked if request.method == method]


@pytest.fixture
def make(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[Wire], Rest]:
    key = tmp_path / "key"
    key.write_bytes(b"secret")

    def make(wire: Wire) -> Rest:
        rest = Rest("http://slurm", Tokens(key, "ann"), wire=httpx2.MockTransport(wire))
        request.addfinalizer(rest.close)
        return rest

    return make


def test_the_newest_version_is_spoken_and_asked_for_once(make: Callable[[Wire], Rest]) -> None:
    wire = Wire(38, 40, 39)
    wire.answers["GET /slurm/v0.0.40/jobs"] = [(200, {"jobs": [], "errors": []})]
    rest = make(wire)
    assert rest.jobs(()) == rest.find("x") == ()
    assert wire.paths("GET").count("/openapi/v3") == 1
    assert wire.asked[-1].headers["X-SLURM-USER-NAME"] == "ann"
    assert wire.asked[-1].headers["X-SLURM-USER-TOKEN"].count(".") == 2


@pytest.mark.parametrize("answer", [{"job_id": 7}, {"result": {"job_id": 7}}, {"job_id": 7, "errors": []}])
def test_a_new_jobs_number_is_found_in_each_shape(make: Callable[[Wire], Rest], answer: Any) -> None:
    wire = Wire(40)
    wire.answers["POST /slurm/v0.0.40/job/submit"] = [(200, answer)]
    assert make(wire).submit(REQUEST) == "7"
    assert json.loads(wire.asked[-1].content)["job"]["required_nodes"] == ["n1"]


@pytest.mark.parametrize(("requeues", "stays"), [(True, False), (False, True)])
def test_where_slurmrestd_cannot_forbid_it_a_job_that_slurm_would_requeue_does_not_stay(
    make: Callable[[Wire], Rest], requeues: bool, stays: bool
) -> None:
    wire = Wire(38)
    job = {"job_id": 7, "name": "a-1", "job_state": "PENDING", "requeue": requeues}
    wire.answers["POST /slurm/v0.0.38/job/submit"] = [(200, {"job_id": 7})]
    wire.answers["GET /slurm/v0.0.38/job/7"] = wire.answers["GET /slurm/v0.0.38/jobs"] = [
        (200, {"jobs": [job]})
    ]
    wire.answers["DELETE /slurm/v0.0.38/job/7"] = [(200, {})]
    request = replace(REQUEST, pins_by_feature=True)
    if stays:
        assert make(wire).submit(request) == "7"
    else:
        with pytest.raises(SlurmRefused, match="requeueing"):
            make(wire).submit(request)
    sent = next(asked for asked in wire.asked if asked.method == "POST")
    assert "requeue" not in json.loads(sent.content)["job"]
    assert bool(wire.paths("DELETE")) is not stays


def test_without_names_of_nodes_and_features_nothing_is_submitted(make: Callable[[Wire], Rest]) -> None:
    wire = Wire(38)
    with pytest.raises(SlurmRefused, match="cannot pin a job to n1"):
        make(wire).submit(REQUEST)
    assert wire.paths("POST") == []


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (500, {"errors": [{"error": "Requested node configuration is not available"}]}, SlurmRefused),
        (500, {"errors": [{"error": "Invalid feature specification"}]}, SlurmRefused),
        (500, {"errors": [{"error": "Required node not available (down, drained)"}]}, SlurmUnavailable),
        (500, {"errors": [{"error": "Unspecified error", "description": "Failed"}]}, SlurmUnavailable),
        (500, {"errors": [{"error": "Invalid authentication credential"}]}, SlurmUnavailable),
        (502, "<html>bad gateway</html>", SlurmUnavailable),
        (200, {"errors": []}, SlurmUnavailable),
    ],
    ids=[
        "no such node",
        "no such feature",
        "a node not heard yet",
        "unspecified",
        "credential",
        "a proxy",
        "no number",
    ],
)
def test_a_submit_is_sent_once_whatever_comes_back(
    make: Callable[[Wire], Rest], status: int, body: Any, kind: type[Exception]
) -> None:
    wire = Wire(40)
    wire.answers["POST /slurm/v0.0.40/job/submit"] = [(status, body)]
    wire.answers["GET /slurm/v0.0.40/jobs"] = [(200, {"jobs": []})]
    with pytest.raises(kind):
        make(wire).submit(REQUEST)
    assert len(wire.paths("POST")) == 1


def test_a_job_that_is_complained_of_and_queued_all_the_same_is_submitted(
    make: Callable[[Wire], Rest],
) -> None:
    wire = Wire(40)
    error = {"errors": [{"error": "Required node not available (down, drained or reserved)"}]}
    wire.answers["POST /slurm/v0.0.40/job/submit"] = [(500, error)]
    wire.answers["GET /slurm/v0.0.40/jobs"] = [
        (200, {"jobs": [{"job_id": 8, "name": "a-1", "job_state": ["PENDING"]}]})
    ]
    assert make(wire).submit(REQUEST) == "8"


def test_a_job_that_is_forgotten_right_after_its_submit_is_asked_for_again(
    make: Callable[[Wire], Rest],
) -> None:
    wire = Wire(38)
    wire.answers["POST /slurm/v0.0.38/job/submit"] = [(200, {"job_id": 7})]
    wire.answers["GET /slurm/v0.0.38/job/7"] = [(500, {"errors": [{"error": "Invalid job id specified"}]})]
    with pytest.raises(SlurmUnavailable, match="Invalid job id"):
        make(wire).submit(replace(REQUEST, pins_by_feature=True))


@pytest.mark.parametrize(
    ("status", "body", "hint"),
    [
        (500, {"errors": [{"error": "Unspecified error", "errno": -1}]}, True),
        (401, "Authentication failure", True),
        (500, {"errors": [{"error": "Zero Bytes were transmitted or received"}]}, False),
    ],
)
def test_where_it_may_be_the_token_the_settings_to_check_are_named(
    make: Callable[[Wire], Rest], status: int, body: Any, hint: bool
) -> None:
    wire = Wire(38)
    wire.answers["GET /slurm/v0.0.38/nodes"] = [(status, body)]
    with pytest.raises(SlurmUnavailable) as raised:
        make(wire).nodes()
    assert ("slurm.jwt_key" in raised.value.detail) is hint


def test_who_was_not_let_in_comes_again_with_a_new_token(make: Callable[[Wire], Rest]) -> None:
    wire = Wire(40)
    wire.answers["POST /slurm/v0.0.40/job/submit"] = [(401, {}), (200, {"job_id": 7})]
    assert make(wire).submit(REQUEST) == "7"
    assert len(wire.paths("POST")) == 2


def test_a_slurmrestd_that_is_not_there_was_asked_nothing(make: Callable[[Wire], Rest]) -> None:
    wire = Wire(40)
    wire.down = True
    with pytest.raises(SlurmUnreached):
        make(wire).submit(REQUEST)


def test_a_cancel_of_what_is_gone_meanwhile_is_done(make: Callable[[Wire], Rest]) -> None:
    wire = Wire(38)
    jobs = [
        {"job_id": 1, "name": "a-1", "job_state": "RUNNING"},
        {"job_id": 2, "name": "a-1", "job_state": "COMPLETED"},
        {"job_id": 3, "name": "other", "job_state": "RUNNING"},
    ]
    wire.answers["GET /slurm/v0.0.38/jobs"] = [(200, {"jobs": jobs})]
    wire.answers["DELETE /slurm/v0.0.38/job/1"] = [(500, {"errors": [{"error": "Invalid job id specified"}]})]
    make(wire).cancel("a-1")
    assert wire.paths("DELETE") == ["/slurm/v0.0.38/job/1"]


def test_a_server_that_speaks_no_version_of_ours_is_refused(make: Callable[[Wire], Rest]) -> None:
    with pytest.raises(SlurmRefused, match="no version that we know"):
        make(Wire(35)).nodes()


def test_after_failures_there_are_longer_and_longer_pauses() -> None:
    now = [0.0]
    back_off = BackOff(1.0, elapsed=lambda: now[0])
    asked = []
    for second in range(100):
        now[0] = float(second)
        with pytest.raises(SlurmUnavailable, match="it is away"), back_off:
            asked.append(second)
            raise SlurmUnavailable("it is away")
    assert asked == [0, 2, 6, 14, 30, 60, 90]
    now[0] = 200.0
    with pytest.raises(SlurmRefused), back_off:
        raise SlurmRefused("an answer")
    with back_off:
        asked.append(200)
    assert asked[-1] == 200
