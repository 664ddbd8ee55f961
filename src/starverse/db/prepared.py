"""Statements that are compiled once and handed to the driver as they are.

SQLAlchemy builds, keys and looks up a statement each time it is executed, which costs several times what
the database does for a small one; a job's way from submit to start is dozens of them. A :class:`Prepared`
is written with the same tables and types, and compiled at its first use per dialect. It runs inside the
connection's transaction; its errors are SQLAlchemy's, so that what retries a lost race sees them.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, cast

from sqlalchemy import ColumnElement, Connection, Dialect, Text, bindparam
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.dml import UpdateBase
from sqlalchemy.sql.selectable import Select
from sqlalchemy.types import TypeDecorator, TypeEngine

from starverse.db.session import traits_of

Convert = Callable[[Any], Any]


class Prepared:
    """A statement whose values come by the names of its ``bindparam``s.

    ``columns``: the columns that an INSERT fills or an UPDATE sets, each from the value of its own name.
    Rows are named tuples of the statement's columns.
    """

    __slots__ = ("_by_dialect", "_columns", "_statement")

    def __init__(self, statement: Select[*tuple[Any, ...]] | UpdateBase, columns: Iterable[str] = ()) -> None:
        self._statement = statement
        self._columns = list(columns) or None
        self._by_dialect: dict[type[Dialect], _Compiled] = {}

    def rows(self, connection: Connection, **values: Any) -> list[Any]:
        """Execute it; all its rows."""
        compiled = self._compiled(connection.dialect)
        with closing(compiled.cursor(connection)) as cursor:
            _execute(connection, cursor, compiled.text, compiled.parameters(values))
            return compiled.convert(cursor.fetchall())

    def first(self, connection: Connection, **values: Any) -> Any:
        """Execute it; its first row, ``None`` for none."""
        found = self.rows(connection, **values)
        return found[0] if found else None

    def run(self, connection: Connection, **values: Any) -> int:
        """Execute it; how many rows it changed."""
        compiled = self._compiled(connection.dialect)
        with closing(compiled.cursor(connection)) as cursor:
            _execute(connection, cursor, compiled.text, compiled.parameters(values))
            return int(cursor.rowcount)

    def run_many(self, connection: Connection, rows: Iterable[Mapping[str, Any]]) -> int:
        """Execute it for every row of values; how many rows it changed in all."""
        compiled = self._compiled(connection.dialect)
        parameters = [compiled.parameters(values) for values in rows]
        if not parameters:
            return 0
        with closing(compiled.cursor(connection)) as cursor:
            _execute(connection, cursor, compiled.text, parameters, many=True)
            return int(cursor.rowcount)

    def _compiled(self, dialect: Dialect) -> _Compiled:
        found = self._by_dialect.get(type(dialect))
        if found is None:
            found = self._by_dialect[type(dialect)] = _compile(self._statement, self._columns, dialect)
        return found


@dataclass(slots=True)
class _Compiled:
    """``taken`` are the names of its values and how each becomes the driver's, in order; ``by_name``: the
    driver takes them by name. ``fixed`` are the values that the statement itself holds, the driver's
    already."""

    text: str
    taken: tuple[tuple[str, Convert | None], ...]
    by_name: bool
    fixed: dict[str, Any]
    make_row: Callable[[Iterable[Any]], Any]
    converters: tuple[tuple[int, Convert], ...]

    def cursor(self, connection: Connection) -> Any:
        return connection.connection.cursor()

    def parameters(self, values: Mapping[str, Any]) -> Any:
        given = {**self.fixed, **values}
        if self.by_name:
            return {name: bind(given[name]) if bind else given[name] for name, bind in self.taken}
        return tuple([bind(given[name]) if bind else given[name] for name, bind in self.taken])

    def convert(self, raw: Sequence[Sequence[Any]]) -> list[Any]:
        if not self.converters:
            return [self.make_row(row) for row in raw]
        found = []
        for row in raw:
            values = list(row)
            for place, convert in self.converters:
                values[place] = convert(values[place])
            found.append(self.make_row(values))
        return found


def _compile(
    statement: Select[*tuple[Any, ...]] | UpdateBase, columns: list[str] | None, dialect: Dialect
) -> _Compiled:
    compiled = cast(Any, statement.compile(dialect=dialect, column_keys=columns))
    asked = {name: bind for name, bind in compiled.binds.items() if bind.required}
    state = compiled.construct_expanded_state(dict.fromkeys(asked))
    fixed = {
        name: _bound(compiled, name, value, state.processors, dialect)
        for name, value in state.parameters.items()
        if name not in asked
    }
    order = [*fixed, *asked] if state.positiontup is None else state.positiontup
    taken = tuple((name, _binder(asked[name].type, dialect) if name in asked else None) for name in order)
    shown = list(statement.exported_columns)
    names = [column.key or f"column_{place}" for place, column in enumerate(shown)]
    converters = [
        (place, convert)
        for place, column in enumerate(shown)
        if (convert := column.type.dialect_impl(dialect).result_processor(dialect, None)) is not None
    ]
    row = namedtuple("Row", names, rename=True)  # type: ignore[misc]
    by_name = state.positiontup is None
    return _Compiled(state.statement, taken, by_name, fixed, row._make, tuple(converters))


def _bound(compiled: Any, name: str, value: Any, processors: Mapping[str, Convert], dialect: Dialect) -> Any:
    convert = processors.get(name)
    if convert is None and name in compiled.binds:
        convert = _binder(compiled.binds[name].type, dialect)
    return value if convert is None else convert(value)


def _binder(kind: TypeEngine[Any], dialect: Dialect) -> Convert | None:
    return kind.dialect_impl(dialect).bind_processor(dialect)


def _execute(connection: Connection, cursor: Any, text: str, parameters: Any, *, many: bool = False) -> None:
    for listen in connection.dispatch.before_cursor_execute:
        listen(connection, cursor, text, parameters, None, many)
    try:
        if many:
            cursor.executemany(text, parameters)
        else:
            cursor.execute(text, parameters)
    except Exception as error:
        dialect = connection.dialect
        base = cast(type[Exception], dialect.loaded_dbapi.Error)
        if not isinstance(error, base):
            raise
        lost = dialect.is_disconnect(cast(Any, error), connection.connection.driver_connection, cursor)
        if lost:
            connection.invalidate(error)
        raise DBAPIError.instance(
            text, None, error, base, connection_invalidated=lost, dialect=dialect
        ) from error


class _TextList(TypeDecorator[list[str]]):
    """A list of texts as one parameter: JSON for SQLite, an array for PostgreSQL."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(traits_of(dialect).list_type)

    def process_bind_param(self, value: Iterable[str] | None, dialect: Dialect) -> Any:
        return traits_of(dialect).bind_list(list(value or ()))


class among(ColumnElement[bool]):  # noqa: N801 (reads like ``column.in_``)
    """Whether a text column is in the list that comes as the value ``name``: one parameter, however long."""

    inherit_cache = False

    def __init__(self, column: ColumnElement[Any], name: str) -> None:
        self.column = column
        self.listed = bindparam(name, type_=_TextList())


@compiles(among)
def _compile_among(element: among, compiler: Any, **words: Any) -> str:
    column, listed = (compiler.process(part, **words) for part in (element.column, element.listed))
    return f"{column} {traits_of(compiler.dialect).one_of.format(listed)}"
