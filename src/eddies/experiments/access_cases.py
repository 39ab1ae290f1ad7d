"""Random queries over random access methods, run in random interleavings (SteMs, theorems 1 and 2).

Chains, stars, triangles, four-cycles; sources with scans, mirrors, indexes, or indexes only; declared
keys, self-joins and constants; look-ups that are late, fail or never come back; scans that die; users
who change their mind; every kind of SteM; random legal routing. Everything follows from a seed.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from eddies.core.access import Access, IndexAccess, LookupRequest
from eddies.core.clock import VirtualClock
from eddies.core.eddy import Eddy
from eddies.core.expr import Call, Column, Literal
from eddies.core.options import Options, StemName
from eddies.core.query import Equality, Output, Query, Selection, Source
from eddies.errors import SourceError, UnreachableError
from eddies.hosts.lookups import Fate, VirtualLookups

__all__ = [
    "SHAPES",
    "Asked",
    "Case",
    "drive_access",
    "index_on",
    "naive_join",
    "random_case",
    "random_tables",
    "run_case",
]

SHAPES = {
    "chain": ("r.a = s.a", "s.b = t.b", "t.c = u.c"),
    "star": ("r.a = s.a", "r.b = t.b", "r.c = u.c"),
    "triangle": ("r.a = s.a", "s.b = t.b", "t.c = r.c"),
    "four-cycle": ("r.a = s.a", "s.b = t.b", "t.c = u.c", "u.d = r.d"),
}
_STEMS: tuple[StemName, ...] = ("hash", "hash", "hash", "list", "grace", "hybrid", "sort")
_NULL_SHARE = 0.05
_LONGEST_S = 0.45  # of a look-up that is answered; the shortest timeout is 0.5 s


class Asked:
    """Keys that an index was asked for."""

    def __init__(self) -> None:
        self.keys: list[tuple[object, ...]] = []


def index_on(
    name: str, table: pa.Table, bind: tuple[str, ...], asked: Asked | None = None, **settings: Any
) -> IndexAccess:
    """An index that answers from a table."""
    rows_by_key: dict[tuple[object, ...], list[int]] = {}
    for number, row in enumerate(table.select(list(bind)).to_pylist()):
        rows_by_key.setdefault(tuple(row.values()), []).append(number)
    whole = table.combine_chunks()

    def lookup(keys: pa.RecordBatch) -> pa.Table:
        wanted = [tuple(row.values()) for row in keys.to_pylist()]
        if asked is not None:
            asked.keys += wanted
        rows = [number for key in wanted for number in rows_by_key.get(key, ())]
        return whole.take(pa.array(rows, pa.int64()))

    return IndexAccess(name, bind, lookup, **settings)


@dataclass(frozen=True)
class Case:
    """A query over tables by access methods. `constants` are by column, such as "s.a"."""

    on: tuple[str, ...]
    roles: Mapping[str, str]
    tables: Mapping[str, pa.Table]
    access: Mapping[str, Access]
    constants: Mapping[str, object]

    def _type(self, column: Column) -> pa.DataType:
        return self.tables[self.roles[column.source]].schema.field(column.name).type

    def _columns(self) -> list[Column]:
        return [Column(r, c) for r, t in self.roles.items() for c in self.tables[t].column_names]

    @property
    def query(self) -> Query:
        equalities = []
        for text in self.on:
            left, right = (_column(side) for side in text.split("="))
            equalities.append(Equality(left, right, self._type(left)))
        selections = [
            Selection(Call("eq", (_column(c), Literal(value, self._type(_column(c))))))
            for c, value in self.constants.items()
        ]
        outputs = [Output(f"{c.source}_{c.name}", c, self._type(c)) for c in self._columns()]
        sources = tuple(Source(r, t, self.tables[t].schema) for r, t in self.roles.items())
        return Query(sources, tuple(selections), tuple(equalities), output=tuple(outputs))

    @property
    def sql(self) -> str:
        """The same for a database."""
        columns = ", ".join(f"{c.source}.{c.name}" for c in self._columns())
        froms = ", ".join(f"{table} AS {role}" for role, table in self.roles.items())
        where = [*self.on, *(f"{c} = {v!r}" for c, v in self.constants.items())]
        return f"SELECT {columns} FROM {froms} WHERE {' AND '.join(where)}"


def _column(text: str) -> Column:
    source, _, name = text.strip().partition(".")
    return Column(source, name)


def random_tables(
    rng: random.Random, on: tuple[str, ...], roles: Mapping[str, str], *, keyed: bool
) -> dict[str, pa.Table]:
    """Small tables with few values, NULLs and duplicates; with `keyed`, `id` is unique."""
    columns: dict[str, list[str]] = {}
    for text in on:
        for side in text.split("="):
            column = _column(side)
            names = columns.setdefault(roles[column.source], [])
            if column.name not in names:
                names.append(column.name)
    n_values = rng.choice((2, 4, 8))
    types = {c: rng.choice((pa.int64(), pa.string())) for c in "abcd"}

    def value(type_: pa.DataType) -> object:
        if rng.random() < _NULL_SHARE:
            return None
        number = rng.randrange(n_values)
        return f"value number {number}" if pa.types.is_string(type_) else number

    tables = {}
    for name, names in columns.items():
        n_rows = rng.randint(0 if rng.random() < 0.05 else 1, 14)
        arrays = {c: pa.array([value(types[c]) for _ in range(n_rows)], types[c]) for c in names}
        ids = [rng.randrange(3 if rng.random() < 0.3 else 99) for _ in range(n_rows)]
        arrays["id"] = pa.array(range(n_rows) if keyed else ids, pa.int64())
        tables[name] = pa.table(arrays)
    return tables


def _random_access(
    rng: random.Random, tables: Mapping[str, pa.Table], *, keyed: bool
) -> dict[str, Access]:
    access = {}
    for name, table in tables.items():
        columns = [c for c in table.column_names if c != "id"]
        scans = rng.choice(((), ("one",), ("one",), ("one", "two")))
        indexes = []
        for number in range(rng.randint(0 if scans else 1, 3)):
            bind = tuple(rng.sample(columns, rng.randint(1, len(columns))))
            indexes.append(
                index_on(
                    f"i{number}",
                    table,
                    bind,
                    keys_per_lookup=rng.choice((1, 2, 5)),
                    concurrency=rng.choice((1, 2, 8)),
                    timeout_s=rng.choice((0.5, 2.0)),
                    retries=rng.choice((1, 3)),
                    backoff_s=rng.choice((0.0, 0.3)),
                )
            )
        access[name] = Access(scans, tuple(indexes), ("id",) if keyed else ())
    return access


def random_case(rng: random.Random) -> Case:
    """Any shape, any access methods."""
    on = SHAPES[rng.choice(list(SHAPES))]
    names = sorted({_column(side).source for text in on for side in text.split("=")})
    roles = {name: name for name in names}
    if rng.random() < 0.2:
        roles[rng.choice(names[1:])] = names[0]
    keyed = rng.random() < 0.3
    tables = random_tables(rng, on, roles, keyed=keyed)
    constants: dict[str, object] = {}
    if rng.random() < 0.2:
        text = rng.choice(on).split("=")[0].strip()
        column = _column(text)
        values = tables[roles[column.source]].column(column.name).drop_null().to_pylist()
        constants = {text: rng.choice(values)} if values else {}
    return Case(on, roles, tables, _random_access(rng, tables, keyed=keyed), constants)


def _cut(table: pa.Table, rng: random.Random) -> list[pa.RecordBatch]:
    whole = table.combine_chunks()
    batches, start = [], 0
    most = rng.choice((1, 3, 20))
    while start < whole.num_rows:
        n_rows = rng.randint(1, most)
        batches += whole.slice(start, n_rows).to_batches()
        start += n_rows
    rng.shuffle(batches)
    return batches


def drive_access(
    case: Case,
    rng: random.Random,
    options: Options,
    *,
    fail_share: float = 0.0,
    lost_share: float = 0.0,
    change_share: float = 0.0,
    dying: frozenset[tuple[str, str]] = frozenset(),
    **settings: Any,
) -> pa.Table:
    """The answer of an eddy whose scans and look-ups come in a random interleaving.

    A share of look-ups fails, another is never answered; scans in `dying` fail half-way. In a share
    of the moments the user changes what is preferred.
    """
    clock = VirtualClock()

    def fate(request: LookupRequest) -> Fate:
        after_s = rng.random() * _LONGEST_S
        if request.attempt > request.index.retries:
            return Fate(after_s)
        draw = rng.random()
        if draw < fail_share:
            return Fate(after_s, "as asked")
        return Fate(None) if draw < fail_share + lost_share else Fate(after_s)

    lookups = VirtualLookups(clock, fate)
    eddy = Eddy(case.query, options, clock=clock, access=case.access, lookups=lookups, **settings)
    waiting: dict[tuple[str, str], list[pa.RecordBatch]] = {}
    for name, table in case.tables.items():
        for scan in case.access.get(name, Access()).scans:
            batches = _cut(table, rng)
            waiting[name, scan] = batches[: len(batches) // (2 if (name, scan) in dying else 1)]
    poll_share = rng.choice((0.1, 0.5, 0.9))
    found: list[pa.RecordBatch] = []
    while not eddy.is_done:
        if change_share and rng.random() < change_share:
            eddy.prefer(_random_preference(case, rng))
        if waiting and rng.random() > poll_share:
            name, scan = rng.choice(list(waiting))
            if waiting[name, scan]:
                eddy.push_by(name, scan, waiting[name, scan].pop(0))
            elif (name, scan) in dying:
                eddy.lose_scan(name, scan, "as asked")
                del waiting[name, scan]
            else:
                eddy.end(name)
                waiting = {key: rest for key, rest in waiting.items() if key[0] != name}
            continue
        for name in eddy.answered() if rng.random() < 0.5 else ():
            eddy.end(name)
            waiting = {key: rest for key, rest in waiting.items() if key[0] != name}
        rows = eddy.poll()
        if rows is not None:
            found.append(rows)
        elif not eddy.is_done and not eddy.await_lookups(None):
            assert waiting, (
                "nothing is under way and nothing will come, but the query has not ended"
            )
    assert eddy.n_in_flight == 0
    return pa.Table.from_batches(found, schema=eddy.output.schema)


def _random_preference(case: Case, rng: random.Random) -> Call | None:
    if rng.random() < 0.2:
        return None
    column = Column(rng.choice(list(case.roles)), "id")
    return Call("lt", (column, Literal(rng.randrange(20), pa.int64())))


def run_case(seed: int, **settings: Any) -> tuple[Case, pa.Table] | None:
    """One random case and what an eddy answers; None if a source cannot be reached."""
    rng = random.Random(seed)
    case = random_case(rng)
    options = Options(
        policy=rng.choice(("random", "random", "auto", "online")),
        stem=rng.choice(_STEMS),
        batch_rows=rng.choice((1, 3, 1000)),
        seed=seed,
    )
    doomed = [name for name, m in case.access.items() if m.indexes and rng.random() < 0.1]
    dying = frozenset(
        (name, scan)
        for name, methods in case.access.items()
        for number, scan in enumerate(methods.scans)
        if name in doomed or (number and rng.random() < 0.5)
    )
    failures = rng.choice((0.0, 0.3))
    try:
        found = drive_access(
            case,
            rng,
            options,
            change_share=rng.choice((0.0, 0.05)),
            fail_share=failures,
            lost_share=failures / 3,
            dying=dying,
            **settings,
        )
    except UnreachableError:
        return None
    except SourceError as error:
        if doomed and "no scan of" in str(error):
            return None
        raise
    return case, found


def naive_join(case: Case) -> Counter[tuple[object, ...]]:
    """The answer by nested loops, as a bag."""
    partial: list[dict[str, dict[str, object]]] = [{}]
    roles = list(case.roles)
    for number, role in enumerate(roles):
        here = set(roles[: number + 1])
        on = [tuple(_column(side) for side in text.split("=")) for text in case.on]
        checks = [(a, b) for a, b in on if role in (a.source, b.source)]
        checks = [(a, b) for a, b in checks if {a.source, b.source} <= here]
        extended = []
        for row in case.tables[case.roles[role]].to_pylist():
            if any(row[_column(c).name] != v for c, v in case.constants.items() if c[0] == role):
                continue
            for joined in partial:
                candidate = {**joined, role: row}
                values = (
                    (candidate[a.source][a.name], candidate[b.source][b.name]) for a, b in checks
                )
                if all(left is not None and left == right for left, right in values):
                    extended.append(candidate)
        partial = extended
    return Counter(tuple(v for role in roles for v in row[role].values()) for row in partial)
