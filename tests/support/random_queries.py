"""Random queries over small random tables, each with the same question as SQL text for an oracle.

`make_case(seed)` is a pure function of its seed: a failure is repeated by its number. Tables are
tiny and their values come from small pools, so that joins hit, miss, and multiply; pools hold the
values that go wrong (extremes, zeros of both signs, NaN, empty strings, strings around the border
of eight bytes). Every predicate is made twice, side by side: as an expression and as SQL.
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from eddies.core.expr import Call, Cast, Column, Expr, Literal
from eddies.core.query import (
    Aggregate,
    Aggregation,
    Equality,
    Filter,
    Output,
    Query,
    Selection,
    Source,
    UserFunction,
)

__all__ = ["KINDS", "SHAPES", "Case", "aggregated", "make_case"]

SHAPES = ("chain", "star", "cycle", "clique", "tree", "class", "cross", "band", "self")
_MOST_ROWS = {1: 60, 2: 60, 3: 30, 4: 16, 5: 11, 6: 9, 7: 7, 8: 6}
_NAN, _INF = float("nan"), float("inf")
_DAY = datetime.date(2024, 2, 28)
_NOON = datetime.datetime(2024, 2, 28, 12, 0, 0, 1)


def _integers(bits: int, signed: bool) -> list[object]:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return [0, 1, 2, 3, 100, low, high, high - 1, high // 2]


KINDS: dict[str, tuple[pa.DataType, list[object]]] = {
    "int8": (pa.int8(), _integers(8, True)),
    "int16": (pa.int16(), _integers(16, True)),
    "int32": (pa.int32(), _integers(32, True)),
    "int64": (pa.int64(), [*_integers(64, True), -0x18FC812E5F4BD725]),
    "uint8": (pa.uint8(), _integers(8, False)),
    "uint16": (pa.uint16(), _integers(16, False)),
    "uint32": (pa.uint32(), _integers(32, False)),
    "uint64": (pa.uint64(), _integers(64, False)),
    "float32": (pa.float32(), [0.0, -0.0, _NAN, _INF, -_INF, 1.5, -1.5, 1e-45]),
    "float64": (pa.float64(), [0.0, -0.0, _NAN, _INF, -_INF, 1.5, 0.1, 5e-324, 1.7e308]),
    "bool": (pa.bool_(), [True, False]),
    "short": (pa.string(), ["", "a", "b", "ab", "ba", "seven77", "seven78", "é", "a\0"]),
    "long": (
        pa.string(),
        ["eight888", "eight889", "x" * 40, "x" * 39 + "y", "y" + "x" * 39, "", "a"],
    ),
    "binary": (pa.binary(), [b"", b"\0", b"\0\0", b"\xff" * 7, b"\xff" * 8, b"\xff" * 9, b"a"]),
    "date": (pa.date32(), [_DAY + datetime.timedelta(n) for n in (0, 1, 2, -20000, 30000)]),
    "timestamp": (
        pa.timestamp("us"),
        [_NOON + datetime.timedelta(microseconds=n) for n in (0, 1, -1, 10**15, -(10**15))],
    ),
    "decimal": (pa.decimal128(9, 2), [Decimal(n) / 100 for n in (0, 1, -1, 999999999, -999999999)]),
    "wide": (
        pa.decimal128(38, 4),
        [Decimal(n).scaleb(-4) for n in (0, 1, -1, 2**64, 2**64 + 1, 10**37, -(10**37), 2**65)],
    ),
}
_BAND_DOUBLES: list[object] = [0.0, -0.0, 1.0, 1.5, -2.0, 3.25, _INF, -_INF, _NAN]
_BAND_FLOATS: list[object] = [0.0, 0.1, 0.2, 0.3, 1.1, 16777216.0, -0.3, _NAN]


@dataclass(frozen=True, slots=True)
class Case:
    """One random question: for the core, for the oracle, and the data."""

    seed: int
    shape: str
    query: Query
    sql: str
    tables: dict[str, pa.Table]

    def __str__(self) -> str:
        sizes = ", ".join(f"{name}={table.num_rows}" for name, table in self.tables.items())
        return f"seed {self.seed} ({self.shape}; {sizes}): {self.sql}"

    def halved(self) -> Case:
        """The same question about the first half of every table."""
        return replace(
            self, tables={n: t.slice(0, t.num_rows // 2) for n, t in self.tables.items()}
        )


def _odd(value: int | None) -> bool | None:
    return None if value is None else value % 2 == 1


def _near(left: pa.Array, right: pa.Array) -> pa.Array:
    return pc.less_equal(pc.abs(pc.subtract(left, right)), 1)


FUNCTIONS = (
    UserFunction("is_odd", _odd, pa.bool_()),
    UserFunction("is_near", _near, pa.bool_(), arrow=True),
)

Predicate = tuple[Expr, str]


class _Maker:
    def __init__(self, seed: int, shape: str | None, functions: bool) -> None:
        self.rng = random.Random(f"query {seed}")
        self.seed = seed
        self.shape = shape or self.rng.choice(SHAPES)
        self.functions = functions
        self.n = self._count()
        self.kinds = [self.rng.choice(list(KINDS)) for _ in range(3)]
        self.equalities: list[tuple[Equality, str]] = []
        self.filters: list[tuple[Filter, str]] = []
        self.selections: list[tuple[Selection, str]] = []

    def _count(self) -> int:
        few = {"cross": 4, "clique": 6, "band": 5}
        lowest = 3 if self.shape == "cycle" else 2
        return (
            min(self.rng.choice((2, 3, 3, 4, 4, 5, 5, 6, 7, 8)), few.get(self.shape, 8))
            if (lowest == 2)
            else self.rng.randint(3, 7)
        )

    # Data

    def table(self) -> pa.Table:
        """Random rows and, mostly, a few copies of the witness, for which most joins hold."""
        rng = self.rng
        n = rng.randint(1, _MOST_ROWS[self.n])
        n_copies = rng.randint(1, 2) if rng.random() < 0.9 else 0
        if rng.random() < 0.04:
            n = n_copies = 0
        nulls = rng.choice((0.0, 0.0, 0.15, 0.4))
        order = list(range(n + n_copies))
        rng.shuffle(order)

        def column(name: str, type_: pa.DataType, pool: list[object]) -> pa.Array:
            values = [None if rng.random() < nulls else rng.choice(pool) for _ in range(n)]
            values += [self.witness[name]] * n_copies
            return pa.array([values[i] for i in order], type_)

        columns = {"id": pa.array(range(n + n_copies), pa.int32())}
        for i, kind in enumerate(self.kinds):
            type_, _ = KINDS[kind]
            columns[f"k{i}"] = column(f"k{i}", type_, self.pools[i])
            columns[f"m{i}"] = column(f"m{i}", type_, self.pools[i])
        columns["v"] = column("v", pa.int64(), list(range(rng.randint(2, 10))))
        columns["f"] = column("f", pa.float64(), _BAND_DOUBLES)
        columns["g"] = column("g", pa.float32(), _BAND_FLOATS)
        columns["d"] = column("d", pa.date32(), [_DAY + datetime.timedelta(n) for n in range(4)])
        return pa.table(columns)

    def choose_witness(self) -> None:
        """One value for each key, the same in all tables, and the same in `k` and `m`."""
        self.witness: dict[str, object] = {"v": 3, "f": 1.5, "g": 0.1, "d": _DAY}
        for i, pool in enumerate(self.pools):
            self.witness[f"k{i}"] = self.witness[f"m{i}"] = self.rng.choice(pool)

    # Predicates

    def edge(self, i: int, j: int) -> None:
        if self.rng.random() < 0.5:
            i, j = j, i
        for _ in range(self.rng.choice((1, 1, 1, 2, 3))):
            self.equality(i, j)

    def equality(self, i: int, j: int) -> None:
        rng = self.rng
        draw = rng.random()
        if draw < 0.06:
            self.shifted_equality(i, j)
            return
        k = 0 if self.shape == "class" else rng.randrange(3)
        left = f"k{k}" if rng.random() < 0.85 else f"m{k}"
        right = f"k{k}" if rng.random() < 0.85 else f"m{k}"
        type_ = KINDS[self.kinds[k]][0]
        sides = Column(f"a{i}", left), Column(f"a{j}", right)
        if pa.types.is_string(type_) and draw < 0.2:
            uppers = tuple(Call("upper", (side,)) for side in sides)
            text = f"upper(a{i}.{left}) = upper(a{j}.{right})"
            self.equalities.append((Equality(*uppers, type_), text))
            return
        self.equalities.append((Equality(*sides, type_), f"a{i}.{left} = a{j}.{right}"))

    def shifted_equality(self, i: int, j: int) -> None:
        function, sign = self.rng.choice((("add", "+"), ("subtract", "-"), ("multiply", "*")))
        by = self.rng.randint(1, 2)
        left = Call(function, (Column(f"a{i}", "v"), Literal(by, pa.int64())))
        text = f"a{i}.v {sign} {by} = a{j}.v"
        self.equalities.append((Equality(left, Column(f"a{j}", "v"), pa.int64()), text))

    def band(self, i: int, j: int) -> None:
        rng = self.rng
        name, type_ = rng.choice(
            (("v", pa.int64()), ("f", pa.float64()), ("g", pa.float32()), ("d", pa.date32()))
        )
        left, right = Column(f"a{i}", name), Column(f"a{j}", name)
        names = f"a{i}.{name}", f"a{j}.{name}"
        if name == "d" or rng.random() < 0.5:
            function, sign = rng.choice((("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">=")))
            self.filter(Call(function, (left, right)), f"{names[0]} {sign} {names[1]}")
            return
        width = {"v": 1, "f": 0.5, "g": 0.1}[name]
        shown = {"v": "1", "f": "CAST(0.5 AS DOUBLE)", "g": "CAST(0.1 AS FLOAT)"}[name]
        literal = Literal(width, type_)
        low = Call("ge", (left, Call("subtract", (right, literal))))
        high = Call("le", (left, Call("add", (right, literal))))
        text = f"{names[0]} >= {names[1]} - {shown} AND {names[0]} <= {names[1]} + {shown}"
        self.filter(Call("and", (low, high)), text)

    def filter(self, expr: Expr, text: str, expensive: bool = False) -> None:
        self.filters.append((Filter(expr, expensive), text))

    def multi_filter(self) -> None:
        rng = self.rng
        i, j = rng.sample(range(self.n), 2)
        a, b = Column(f"a{i}", "v"), Column(f"a{j}", "v")
        choice = rng.randrange(5)
        if choice == 0:
            self.filter(Call("ne", (a, b)), f"a{i}.v <> a{j}.v", rng.random() < 0.2)
        elif choice == 1:
            total = Call("add", (a, b))
            self.filter(Call("lt", (total, Literal(9, pa.int64()))), f"a{i}.v + a{j}.v < 9")
        elif choice == 2 and self.n >= 3:
            k = rng.choice([s for s in range(self.n) if s not in (i, j)])
            total = Call("add", (a, b))
            text = f"a{i}.v + a{j}.v >= a{k}.v"
            self.filter(Call("ge", (total, Column(f"a{k}", "v"))), text, rng.random() < 0.2)
        elif choice == 3:
            first = Call("eq", (a, Literal(1, pa.int64())))
            second = Call("is_null", (b,))
            self.filter(
                Call("or", (first, Call("not", (second,)))), f"(a{i}.v = 1 OR NOT a{j}.v IS NULL)"
            )
        elif self.functions:
            self.filter(Call("is_near", (a, b)), f"abs(a{i}.v - a{j}.v) <= 1", rng.random() < 0.7)

    def selection(self, i: int) -> None:
        rng = self.rng
        v = Column(f"a{i}", "v")
        if self.functions and rng.random() < 0.4:
            self.selections.append((Selection(Call("is_odd", (v,)), True), f"a{i}.v % 2 = 1"))
            return
        two = Literal(2, pa.int64())
        choices: list[Predicate] = [
            (Call("gt", (v, two)), f"a{i}.v > 2"),
            (Call("ne", (v, two)), f"a{i}.v <> 2"),
            (Call("is_null", (Column(f"a{i}", "k0"),)), f"a{i}.k0 IS NULL"),
            (Call("is_not_null", (Column(f"a{i}", "k1"),)), f"a{i}.k1 IS NOT NULL"),
            (
                Call("lt", (Column(f"a{i}", "f"), Literal(2.0, pa.float64()))),
                f"a{i}.f < CAST(2 AS DOUBLE)",
            ),
            (
                Call("le", (Cast(Column(f"a{i}", "id"), pa.int64()), Call("add", (v, two)))),
                f"CAST(a{i}.id AS BIGINT) <= a{i}.v + 2",
            ),
        ]
        expr, text = rng.choice(choices)
        self.selections.append((Selection(expr, rng.random() < 0.25), text))

    # All of it

    def edges(self) -> list[tuple[int, int]]:
        n, rng = self.n, self.rng
        chain = [(i, i + 1) for i in range(n - 1)]
        tree = [(rng.randrange(i), i) for i in range(1, n)]
        match self.shape:
            case "chain":
                return chain
            case "star":
                return [(0, i) for i in range(1, n)]
            case "cycle":
                return [*chain, (n - 1, 0)]
            case "clique":
                return [(i, j) for j in range(n) for i in range(j)]
            case "cross":
                return [edge for edge in tree if rng.random() < 0.4]
        return tree

    def case(self) -> Case:
        rng = self.rng
        self.pools = [
            rng.sample(KINDS[k][1], min(len(KINDS[k][1]), rng.randint(2, 6))) for k in self.kinds
        ]
        self.choose_witness()
        for i, j in self.edges():
            if self.shape == "band" and rng.random() < 0.7:
                self.band(i, j)
            else:
                self.edge(i, j)
        for i in range(self.n):
            if rng.random() < 0.25:
                self.selection(i)
        if rng.random() < 0.3:
            self.multi_filter()
        n_tables = rng.randint(1, max(1, self.n - 1)) if self.shape == "self" else self.n
        tables = {f"t{t}": self.table() for t in range(n_tables)}
        of_role = [f"t{i % n_tables}" for i in range(self.n)]
        if self.shape != "self" and rng.random() < 0.1:
            of_role[rng.randrange(self.n)] = "t0"
        tables = {name: table for name, table in tables.items() if name in of_role}
        rng.shuffle(self.equalities)
        output = self.output()
        query = Query(
            sources=tuple(
                Source(f"a{i}", of_role[i], tables[of_role[i]].schema) for i in range(self.n)
            ),
            selections=tuple(s for s, _ in self.selections),
            equalities=tuple(e for e, _ in self.equalities),
            filters=tuple(f for f, _ in self.filters),
            output=tuple(o for o, _ in output),
            functions=FUNCTIONS if self.functions else (),
        )
        texts = [t for _, t in (*self.selections, *self.equalities, *self.filters)]
        columns = ", ".join(f"{text} AS {o.name}" for o, text in output)
        froms = ", ".join(f"{table} AS a{i}" for i, table in enumerate(of_role))
        where = f" WHERE {' AND '.join(texts)}" if texts else ""
        sql = f"SELECT {columns} FROM {froms}{where}"
        return Case(self.seed, self.shape, query, sql, tables)

    def output(self) -> list[tuple[Output, str]]:
        """Mostly every row's number, so that no mistake can hide; else values, with duplicates."""
        rng = self.rng
        chosen: list[tuple[Output, str]] = []

        def add(i: int, name: str, type_: pa.DataType) -> None:
            output = Output(f"c{len(chosen)}", Column(f"a{i}", name), type_)
            chosen.append((output, f"a{i}.{name}"))

        if rng.random() < 0.75:
            for i in range(self.n):
                add(i, "id", pa.int32())
        for _ in range(rng.randint(0 if chosen else 1, 3)):
            i, k = rng.randrange(self.n), rng.randrange(3)
            add(i, f"k{k}", KINDS[self.kinds[k]][0])
        if rng.random() < 0.2:
            i = rng.randrange(self.n)
            doubled = Call("add", (Column(f"a{i}", "v"), Literal(1, pa.int64())))
            output = Output(f"c{len(chosen)}", doubled, pa.int64())
            chosen.append((output, f"a{i}.v + 1"))
        return chosen


def make_case(seed: int, shape: str | None = None, *, functions: bool = True) -> Case:
    """The case of this number; without `functions` its SQL is all there is to know about it."""
    return _Maker(seed, shape, functions).case()


def aggregated(case: Case) -> Case:
    """The same join, with groups and aggregates on top, chosen by the case's seed."""
    rng = random.Random(f"aggregates {case.seed}")
    n = len(case.query.sources)
    schema = case.query.sources[0].schema
    groups: list[tuple[Output, str]] = []
    for number in range(rng.choice((0, 1, 1, 2))):
        i, name = rng.randrange(n), rng.choice(("k0", "k1", "v", "f"))
        output = Output(f"g{number}", Column(f"a{i}", name), schema.field(name).type)
        groups.append((output, f"a{i}.{name}"))
    aggregates: list[tuple[Aggregate, str]] = []
    makers: list[Callable[[int], tuple[Aggregate, str]]] = [
        lambda i: (Aggregate("", "count_star", None, pa.int64()), "count(*)"),
        lambda i: (Aggregate("", "count", Column(f"a{i}", "k2"), pa.int64()), f"count(a{i}.k2)"),
        lambda i: (
            Aggregate("", "sum", Column(f"a{i}", "v"), pa.int64()),
            f"CAST(sum(a{i}.v) AS BIGINT)",
        ),
        lambda i: (Aggregate("", "min", Column(f"a{i}", "f"), pa.float64()), f"min(a{i}.f)"),
        lambda i: (Aggregate("", "max", Column(f"a{i}", "f"), pa.float64()), f"max(a{i}.f)"),
        lambda i: (Aggregate("", "min", Column(f"a{i}", "g"), pa.float32()), f"min(a{i}.g)"),
        lambda i: (
            Aggregate("", "max", Column(f"a{i}", "k0"), schema.field("k0").type),
            f"max(a{i}.k0)",
        ),
        lambda i: (
            Aggregate("", "min", Column(f"a{i}", "k1"), schema.field("k1").type),
            f"min(a{i}.k1)",
        ),
    ]
    for number in range(rng.randint(1, 4)):
        aggregate, text = rng.choice(makers)(rng.randrange(n))
        aggregates.append((replace(aggregate, name=f"s{number}"), text))
    aggregation = Aggregation(tuple(o for o, _ in groups), tuple(a for a, _ in aggregates))
    named = [f"{text} AS {fact.name}" for fact, text in (*groups, *aggregates)]
    select = ", ".join(named)
    rest = case.sql[case.sql.index(" FROM ") :]
    grouping = " GROUP BY " + ", ".join(text for _, text in groups) if groups else ""
    query = replace(case.query, aggregation=aggregation, output=())
    return replace(case, query=query, sql=f"SELECT {select}{rest}{grouping}")
