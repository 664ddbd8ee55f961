"""What a submit says: the price, what was ignored and refused, the effective options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starverse.cli.remote.tables import columns, render_table, visible
from starverse.cli.remote.wording import when, yuan
from starverse.client.shapes import Lint


def price_line(price: dict[str, Any]) -> str:
    """One line that says what a job costs."""
    if price.get("text"):
        return f"price: {price['text']}"
    hour = price.get("hour") or yuan(price.get("hour_micro"))
    line = f"price: CNY {hour} per hour"
    if price.get("tariff"):
        line += f" ({price['tariff']})"
    limit = price.get("time_limit_cost") or yuan(price.get("time_limit_cost_micro"))
    return line + (f", at most CNY {limit} up to the time limit" if limit else "")


def cheaper_text(way: object) -> str:
    """One cheaper way to run the job."""
    if isinstance(way, dict):
        return f"{way.get('tariff')} CNY {way.get('hour') or yuan(way.get('hour_micro'))} per hour"
    return str(way)


def remark(kind: str, found: dict[str, Any]) -> str:
    """An option or line that is ignored or refused, and why."""
    line = found.get("line")
    place = f"line {line}: " if line else ""
    text, reason = str(found.get("text", "")), str(found.get("reason", ""))
    return f"{kind}: {place}{visible(text)}" + ("" if reason in text else f": {visible(reason)}")


def estimate_line(estimate: Mapping[str, str]) -> str:
    """About when a job will start."""
    first, expected, last = (when(estimate[f"{name}_at"]) for name in ("earliest", "expected", "latest"))
    return f"would start about {expected}, between {first} and {last} (by how long jobs ran lately)"


def lint_text(found: Lint) -> str:
    """What ``--lint`` prints."""
    parts = []
    effective = found.get("effective") or []
    if effective:
        rows = [(option["name"], option["value"], option["origin"]) for option in effective]
        parts.append(render_table(columns("OPTION", "VALUE", "FROM"), rows))
    remarks = [remark("ignored", one) for one in found.get("ignored") or ()]
    remarks += [remark("refused", one) for one in found.get("refused") or ()]
    remarks += [f"notice: {visible(notice)}" for notice in found.get("notices") or ()]
    if remarks:
        parts.append("\n".join(remarks))
    price = found.get("price")
    if price:
        lines = [price_line(price), *(f"cheaper: {cheaper_text(way)}" for way in price.get("cheaper") or ())]
        estimate = found.get("start_estimate")
        if estimate:
            lines.append(estimate_line(estimate))
        parts.append("\n".join(lines))
    return "\n\n".join(parts)
