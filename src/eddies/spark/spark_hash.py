"""Equality and hashes of values inside Spark, where eddies have to agree with them.

Who drops a row in Spark because its key is not there, or sends it to a cell by its hash, must find two
values equal whenever an eddy does. That is sure of whole numbers of any width, and of values of just
the same type among those that are compared bit by bit. Of others it is not: floats have two zeros, and
text may have a collation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame

from eddies.spark.inputs import quoted

__all__ = ["comparable", "is_exact", "is_whole", "same_hash", "spark_hash", "spark_types"]

_WHOLE = frozenset(("tinyint", "smallint", "int", "bigint"))
_EXACT = frozenset(("boolean", "date", "string", "timestamp", "timestamp_ntz"))


def spark_types(frame: DataFrame) -> dict[str, str]:
    """By column, its type as Spark writes it."""
    return {field.name: field.dataType.simpleString() for field in frame.schema.fields}


def is_whole(type_: str) -> bool:
    """Whether values of this type, as Spark writes it, are whole numbers."""
    return type_ in _WHOLE


def is_exact(type_: str) -> bool:
    """Whether values of this type are equal to others of the same type if all their bits are."""
    return type_ in _EXACT or type_.startswith("decimal")


def comparable(one: str, other: str) -> bool:
    """Whether Spark finds values of these types equal when eddies do."""
    if is_whole(one):
        return is_whole(other)
    return one == other and is_exact(one)


def same_hash(types: Sequence[str]) -> bool:
    """Whether equal values of these types have the same `spark_hash`."""
    return all(comparable(types[0], type_) for type_ in types)


def spark_hash(types: Mapping[str, str], columns: Sequence[str]) -> str:
    """A number of 64 bits from the values of `columns`, in Spark SQL; of NULL too."""
    wide = (f"CAST({quoted(c)} AS bigint)" if is_whole(types[c]) else quoted(c) for c in columns)
    return f"xxhash64({', '.join(wide)})"
