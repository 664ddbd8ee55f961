"""Our names of card models: from the product names that drivers report, with their memory."""

from __future__ import annotations

import re

GIB = 1024**3

MEMORY_BYTES = {
    "rtx2080ti": 11 * GIB,
    "rtx3080": 10 * GIB,
    "rtx3090": 24 * GIB,
    "rtx4090": 24 * GIB,
    "rtx4090d": 24 * GIB,
    "rtx5090": 32 * GIB,
    "v100-16g": 16 * GIB,
    "v100-32g": 32 * GIB,
    "t4": 16 * GIB,
    "a10": 24 * GIB,
    "a40": 48 * GIB,
    "a100-40g": 40 * GIB,
    "a100-80g": 80 * GIB,
    "a800-80g": 80 * GIB,
    "l4": 24 * GIB,
    "l20": 48 * GIB,
    "l40": 48 * GIB,
    "l40s": 48 * GIB,
    "h20": 96 * GIB,
    "h100": 80 * GIB,
    "h800": 80 * GIB,
    "h200": 141 * GIB,
    "b200": 180 * GIB,
}
"""Nominal memory by model, for declared cards; a driver reports what really is there."""

_SOLD_IN_SIZES = frozenset({"v100", "a100", "a800"})


def model_of(product: str, memory_bytes: int) -> str:
    """Our name for a driver's product name, such as ``rtx4090`` for "NVIDIA GeForce RTX 4090".

    Models sold with several sizes of memory carry it (``a100-40g``). An unknown product becomes its own
    name in lower case, so that a new card is a new model and never passes for another.
    """
    text = re.sub(r"\b(nvidia|geforce|tesla|graphics|device)\b", " ", product.lower())
    words = re.split(r"[\s_-]+", text.strip())
    if words and words[0] in ("rtx", "gtx", "quadro") and len(words) > 1:
        words = ["".join(words[:2]), *words[2:]]
    if len(words) > 1 and words[1] in ("d", "ti", "super"):
        words = ["".join(words[:2]), *words[2:]]
    name = words[0] if words else "unknown"
    if name in _SOLD_IN_SIZES:
        sizes = [
            size for model, size in MEMORY_BYTES.items() if model.startswith(f"{name}-") or model == name
        ]
        nearest = min(sizes, key=lambda size: abs(size - memory_bytes))
        return f"{name}-{nearest // GIB}g"
    if name in MEMORY_BYTES:
        return name
    return re.sub(r"[^a-z0-9]+", "-", "-".join(words)).strip("-") or "unknown"
