"""The DataFrames of a block as they leave Spark: without rows that can be in no result.

`semi_joins` decides whose keys thin out whom; here that becomes conditions and left semi joins with
broadcast keys. Keys that several relations are asked for are computed once.

What is broadcast takes few bytes, whatever it is made of: a text, or a key of several columns, is
compared by a hash of 64 bits. Keys that differ may have the same one; then a row comes to its cell for
nothing, and finds no partner there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import broadcast, expr

from eddies.core.graph import Graph
from eddies.spark.inputs import Input, quoted
from eddies.spark.semi_joins import Reducer
from eddies.spark.spark_hash import spark_hash, spark_types

__all__ = ["ReducedFrames"]

_PARTNERS = "__eddies_keys_of_partners__"


class ReducedFrames:
    """Rows by relation; `pushdown` are conditions in Spark SQL."""

    def __init__(
        self,
        graph: Graph,
        inputs: Mapping[str, Input],
        pushdown: Mapping[str, str],
        semi_joins: Mapping[str, tuple[Reducer, ...]],
        spark: SparkSession,
    ) -> None:
        self._graph = graph
        self._inputs = inputs
        self._pushdown = pushdown
        self._semi_joins = semi_joins
        self._spark = spark
        self._keys: dict[Reducer, DataFrame] = {}

    def rows(self, name: str, not_null: Sequence[str] = ()) -> DataFrame:
        """The rows of a relation that may be in a result, with all columns, none of which is NULL in
        those of `not_null`.
        """
        conditions = [self._pushdown[name]] if name in self._pushdown else []
        filled = dict.fromkeys((*self._given_keys(name), *not_null))
        return self._reduced(name, conditions, list(filled), self._semi_joins.get(name, ()))

    def _given_keys(self, name: str) -> list[str]:
        """Columns of a relation, joined in one role, whose keys are broadcast. NULL is not among these;
        if it is left out here as well, Spark can use what both have in common, such as groups, twice.

        Only where the relation is joined by the column: who merely asks by it may have NULL there, and
        be in the result, for NOT EXISTS is then true.
        """
        roles = next(r for r in self._graph.relations if r.name == name).roles
        if len(roles) > 1 or self._graph.asked >> roles[0] & 1:
            return []
        found = [r for reducers in self._semi_joins.values() for r in reducers]
        given = {key for r in found if r.source == roles[0] for _, key in r.on}
        joined = {c.column_by_source.get(roles[0]) for c in self._graph.classes}
        return sorted(given & joined)

    def _reduced(
        self,
        name: str,
        conditions: Sequence[str],
        not_null: Sequence[str],
        reducers: Sequence[Reducer],
    ) -> DataFrame:
        """The rows that fulfil all `conditions`, and whose keys all `reducers` have."""
        frame = self._inputs[name].dataframe(self._spark)
        types = spark_types(frame) if reducers else {}
        wanted = [*conditions, *(f"{quoted(column)} IS NOT NULL" for column in not_null)]
        if wanted:
            frame = frame.where(" AND ".join(f"({condition})" for condition in wanted))
        for reducer in reducers:
            key = _key(types, [column for column, _ in reducer.on])
            frame = frame.join(self._keys_of(reducer), expr(f"{key} = {_PARTNERS}"), "left_semi")
        return frame

    def _keys_of(self, reducer: Reducer) -> DataFrame:
        if reducer.keys not in self._keys:
            name = self._graph.relation_of(reducer.source).name
            columns = [key for _, key in reducer.on]
            rows = self._reduced(name, reducer.where, columns, reducer.reducers)
            key = _key(spark_types(self._inputs[name].dataframe(self._spark)), columns)
            self._keys[reducer.keys] = broadcast(rows.selectExpr(f"{key} AS {_PARTNERS}"))
        return self._keys[reducer.keys]


def _key(types: Mapping[str, str], columns: Sequence[str]) -> str:
    """What is compared with keys of others, in Spark SQL."""
    if len(columns) == 1 and types[columns[0]] != "string":
        return quoted(columns[0])
    return spark_hash(types, columns)
