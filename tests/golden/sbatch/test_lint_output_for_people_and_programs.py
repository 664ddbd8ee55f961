"""What ``--lint`` answers, whole; what commands print of it is beside the other commands."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from starverse.app.lint import lint_result
from starverse.domain.sbatch.cards import Vocabulary
from starverse.domain.sbatch.submission import Submission, SubmitRequest, build
from starverse.testing.golden import check_golden

HERE = Path(__file__).parent

SCRIPTS = {
    "sound": (
        '#!/bin/bash\r\n#SBATCH --job-name="训练 resnet"\r\n#SBATCH --gres=gpu:rtx4090:2 --time=4:00:00\r\n'
        "#SBATCH --export=ALL --mail-type=END\r\n #SBATCH --mem=64G\r\n##SBATCH -n 8\r\n"
        "#SBATCH --time=1:00\r\n"
        "python train.py\r\n#SBATCH --requeue\r\n"
    ),
    "faulty": (
        "#!/bin/bash\n#SBATCH --job-name=two words\n#SBATCH --gres=\n#SBATCH --recipe=data --gpuss=2\n"
        "SBATCH --nodes=2\n#SBATCH --time=10\n"
    ),
}


def submission(name: str) -> Submission:
    request = SubmitRequest(
        SCRIPTS[name],
        f"jobs/{name}.sh",
        command_line=("--tariff=spot", "--price-max=1.20"),
        environment={"SBATCH_TIMELIMIT": "2:00:00"},
    )
    now = datetime(2026, 3, 10, 2, 0, tzinfo=UTC)
    return build(request, now, ZoneInfo("Asia/Shanghai"), Vocabulary(("rtx4090",), ("bj1",)))


@pytest.mark.parametrize("name", SCRIPTS)
def test_what_lint_answers(name: str) -> None:
    understood = submission(name)
    faults = [fault.field_fault() for fault in understood.faults]
    notices = tuple(str(notice) for notice in understood.notices)
    answer = asdict(lint_result(understood, faults, notices, None))
    check_golden(HERE / f"lint_{name}.json", f"{json.dumps(answer, ensure_ascii=False, indent=2)}\n")
