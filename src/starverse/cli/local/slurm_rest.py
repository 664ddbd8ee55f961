"""Whether slurmrestd lets the platform in with a token that it makes from the key."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from pathlib import Path

from starverse.domain.slurm_cluster.facts import Finding, Verdict
from starverse.engines.slurm.tokens import mint

API_VERSIONS = ("v0.0.38", "v0.0.39", "v0.0.40", "v0.0.41", "v0.0.42")
CALL_SECONDS = 10.0
TOKEN_SECONDS = 60


def ask_rest(url: str, key: Path | None, user: str) -> tuple[Finding, str]:
    """Let in, refused, silent, or not asked for; and the version that answered, ``""`` for none.

    ``url`` ``""``: commands are used instead.
    """
    needs = "lets the platform in with a token"
    if not url:
        why = "sbatch and squeue are used instead: slower by some milliseconds a job, otherwise the same"
        return Finding(
            "slurmrestd", Verdict.WISH, "slurm.rest_url is not set", needs, why, "[slurm] rest_url"
        ), ""
    try:
        token = mint(key.read_bytes(), user, int(time.time()), TOKEN_SECONDS) if key else ""
    except OSError as error:
        has = f"{error.filename}: {error.strerror}"
        why = "tokens are made from this key (AuthAltParameters=jwt_key=)"
        return Finding("jwt key", Verdict.BLOCKS, has, "readable for the platform", why, "slurm.jwt_key"), ""
    answers = {}
    for version in API_VERSIONS:
        answers[version] = _answer(f"{url.rstrip('/')}/slurm/{version}/ping", user, token)
        if answers[version] == 200:
            return Finding("slurmrestd", Verdict.OK, f"{url} {version} lets {user} in", needs), version
    told = ", ".join(f"{version}: {answer}" for version, answer in answers.items())
    if all(answer == 404 for answer in answers.values()):
        return Finding(
            "slurmrestd", Verdict.BLOCKS, "none of its versions is known", ", ".join(API_VERSIONS)
        ), ""
    why = "a wrong token is answered with 401 or 500 (22.05); the key must be the one of slurmctld"
    remedy = "slurm.jwt_key, slurm.user, slurm.rest_url"
    return Finding("slurmrestd", Verdict.BLOCKS, told, needs, why, remedy), ""


def _answer(url: str, user: str, token: str) -> int | str:
    """The status, or why there is none."""
    headers = {"X-SLURM-USER-NAME": user, "X-SLURM-USER-TOKEN": token}
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(urllib.request.Request(url, headers=headers), timeout=CALL_SECONDS) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except (OSError, ValueError) as error:
        return str(getattr(error, "reason", error))
