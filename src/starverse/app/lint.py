"""What a submission would do, option by option, where nothing is created."""

from __future__ import annotations

from collections.abc import Sequence

from starverse.app.views import EffectiveOption, OptionRemark, PriceView, SubmitResult
from starverse.domain.errors import FieldFault
from starverse.domain.sbatch.submission import Submission


def lint_result(
    understood: Submission, faults: Sequence[FieldFault], notices: tuple[str, ...], price: PriceView | None
) -> SubmitResult:
    """The answer to ``--lint``: every option that counts with its place, what is ignored, what is refused."""
    lines = {option.name: option.origin.line for option in understood.options}
    lines |= {fault.field_fault().field: fault.origin.line for fault in understood.faults}
    return SubmitResult(
        job=None,
        jobs_count=0,
        notices=notices,
        price=price,
        effective=tuple(EffectiveOption(o.name, o.value, str(o.origin)) for o in understood.options),
        ignored=tuple(OptionRemark(i.line, i.text, i.reason) for i in understood.ignored_lines),
        refused=tuple(
            OptionRemark(lines.get(fault.field), str(fault), f"expected {fault.expected}") for fault in faults
        ),
    )
