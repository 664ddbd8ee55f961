"""The import-linter contract behind the table of import directions in ARCHITECTURE.md.

``areas`` in pyproject.toml has a line ``area -> what it may import`` for every area of the package. A module
belongs to the longest area that holds it. An import is allowed inside its area and into what the line names,
modules below included; ``*`` allows all. A module in no area is a fault, so a new folder needs a line of its
own. ``word = a, b`` makes one area of several modules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output

ALL = "*"


@dataclass(frozen=True, slots=True)
class Directions:
    """Which area may import which; names are relative to the root package.

    ``members`` maps each listed module to its area, ``may_import`` each area to the modules it may import.
    """

    members: Mapping[str, str]
    may_import: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, lines: Sequence[str]) -> Directions:
        """Read the lines; raises ``ValueError`` for another form, or an area listed twice."""
        groups: dict[str, tuple[str, ...]] = {}
        table: dict[str, tuple[str, ...]] = {}
        for line in lines:
            arrow = "->" if "->" in line else "="
            area, found, rest = line.partition(arrow)
            target = table if arrow == "->" else groups
            if not found or area.strip() in target:
                raise ValueError(f"{line!r}: expected `area -> areas` or `area = modules`, each area once")
            target[area.strip()] = tuple(word.strip() for word in rest.split(",") if word.strip())
        members = {module: area for area in table for module in groups.get(area, (area,))}
        expanded = {
            area: tuple(module for word in words for module in groups.get(word, (word,)))
            for area, words in table.items()
        }
        return cls(members, expanded)

    def area_of(self, module: str) -> str | None:
        """The area of the longest listed name that is ``module`` or above it."""
        words = module.split(".")
        tries = (".".join(words[:length]) for length in range(len(words), 0, -1))
        return next((self.members[name] for name in tries if name in self.members), None)

    def allows(self, importer: str, imported: str) -> bool:
        """Whether a module may import another; the importer has to belong to an area."""
        source = self.area_of(importer)
        if source is None:
            return False
        return source == self.area_of(imported) or any(
            name in (ALL, imported) or imported.startswith(f"{name}.") for name in self.may_import[source]
        )


class ImportDirections(Contract):
    """``type = "import_directions"`` in pyproject.toml."""

    areas = fields.ListField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        directions = Directions.of(list(self.areas))  # type: ignore[call-overload]
        root = self.session_options["root_packages"][0]
        faults = []
        for module in sorted(graph.modules):
            name = module.removeprefix(f"{root}.")
            if name == root:
                continue
            if directions.area_of(name) is None:
                faults.append(f"{module} is in no area")
            for imported in sorted(graph.find_modules_directly_imported_by(module)):
                other = imported.removeprefix(f"{root}.")
                if other != root and not directions.allows(name, other):
                    line = graph.get_import_details(importer=module, imported=imported)[0]["line_number"]
                    faults.append(f"{module} imports {imported} (line {line})")
        return ContractCheck(kept=not faults, metadata={"faults": faults})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for fault in check.metadata["faults"]:
            output.print_error(fault, bold=False)
        output.new_line()
