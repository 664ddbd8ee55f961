"""Price books as YAML text: the shipped one, and those an operator writes.

The one module of the domain that needs a library: it parses text, reads no file but the package's own, and
nothing else here imports it.
"""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from starverse.domain.errors import FieldFault, Invalid
from starverse.domain.pricing.price_book import PriceBook
from starverse.domain.pricing.price_book_reader import read_price_book

TEXT_BYTES_MAX = 256 * 1024
"""A book is a page or two; anything beyond this is not one."""


def load_price_book(text: str) -> PriceBook:
    """Read a price book from YAML.

    Raises ``Invalid`` with every fault: for text that is not YAML, where it stops being so. Repeated keys
    and aliases (``*name``) are faults too: a book says each thing once and in full.
    """
    if len(text) > TEXT_BYTES_MAX:
        raise Invalid(
            faults=[
                FieldFault("price book", f"{len(text)} characters", f"at most {TEXT_BYTES_MAX} characters")
            ]
        )
    loader = None
    try:
        loader = _Loader(text)
        document = loader.get_single_data()
    except yaml.MarkedYAMLError as error:
        where = f"line {error.problem_mark.line + 1}" if error.problem_mark else "price book"
        raise Invalid(
            faults=[FieldFault(where, error.problem or "unreadable", "YAML as in the shipped price book")]
        ) from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        first = str(error).partition("\n")[0] or type(error).__name__
        raise Invalid(
            faults=[FieldFault("price book", first[:120], "YAML as in the shipped price book")]
        ) from error
    finally:
        if loader is not None:
            loader.dispose()
    return read_price_book(document)


def shipped_price_book_text() -> str:
    """The text of the price book that a new platform starts with."""
    # importlib.resources would take a tenth of the time of a whole `starverse quote`
    return Path(__file__).with_name("shipped_price_book.yaml").read_text("utf-8")


def shipped_price_book() -> PriceBook:
    """The price book that a new platform starts with, in effect from 2026-03-01 00:00 +08:00."""
    return load_price_book(shipped_price_book_text())


class _Loader(yaml.SafeLoader):
    """Safe YAML without aliases and without repeated keys."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.composer.ComposerError(None, None, "an alias (*name)", self.get_mark())
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen if isinstance(key, yaml.ScalarNode) else True:
                problem = f"the key {key.value!r} again" if isinstance(key, yaml.ScalarNode) else "a key"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Dates stay text: the reader names one that cannot be by its field, beside all other faults."""
        if node.tag == "tag:yaml.org,2002:timestamp":
            node.tag = "tag:yaml.org,2002:str"
        return super().construct_object(node, deep=deep)
