"""Columns that are not in the files but in the names of their folders (`year=2024/month=1/...`).

Types are inferred as Spark does it: the narrowest of int, bigint, decimal, double, timestamp, date and
string that fits every value of a key; `__HIVE_DEFAULT_PARTITION__` is NULL, and a key that has no
other value has the type of NULL.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable
from decimal import Decimal

import pyarrow as pa

from eddies.errors import SourceError
from eddies.sources.paths import DataFile

__all__ = ["partition_schema", "partition_values"]

_INTEGER = re.compile(r"[+-]?\d+")
_WHOLE = re.compile(r"[+-]?\d+(?:[eE]\+?\d+)?")
_NUMBER = re.compile(r"[+-]?(?:NaN|Infinity|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fFdD]?)", re.ASCII)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_STAMP = re.compile(r"\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}(?:\.\d)?", re.ASCII)
_STAMP_TYPE = pa.timestamp("us", "UTC")


def partition_schema(files: Iterable[DataFile], label: str) -> pa.Schema:
    """The partition columns of `files`. Raises `SourceError` if their folders name different keys."""
    files = list(files)
    first = files[0]
    keys = [key for key, _ in first.partition]
    for file in files:
        if [key for key, _ in file.partition] != keys:
            raise SourceError(
                f"the folders of {label} do not agree on partition keys: {first.path} has "
                f"{keys or 'none'}, {file.path} has {[key for key, _ in file.partition] or 'none'}"
            )
    if len(set(keys)) < len(keys):
        raise SourceError(f"{first.path} names a partition key twice: {keys}")
    texts = [{file.partition[i][1] for file in files} for i in range(len(keys))]
    return pa.schema([(key, _common_type(seen)) for key, seen in zip(keys, texts, strict=True)])


def partition_values(file: DataFile, schema: pa.Schema) -> dict[str, pa.Scalar]:
    """What the folders of `file` say, by column, for the partition columns in `schema`."""
    found = {}
    for key, text in file.partition:
        type_ = schema.field(key).type
        try:
            found[key] = pa.scalar(_value(text, type_), type_)
        except (ValueError, ArithmeticError, pa.ArrowException) as error:
            raise SourceError(
                f"{file.path}: partition value {text!r} of {key!r} is no {type_}"
            ) from error
    return found


def _common_type(texts: set[str | None]) -> pa.DataType:
    common: pa.DataType | None = None
    for text in sorted(text for text in texts if text is not None):
        type_ = _type_of(text)
        common = type_ if common is None else _wider(common, type_)
    return pa.null() if common is None else common


def _type_of(text: str) -> pa.DataType:
    if _INTEGER.fullmatch(text):
        number = int(text)
        if -(2**31) <= number < 2**31:
            return pa.int32()
        if -(2**63) <= number < 2**63:
            return pa.int64()
    if _WHOLE.fullmatch(text):
        digits = len(f"{abs(Decimal(text)):f}")
        if digits <= 38:
            return pa.decimal128(digits, 0)
    if _NUMBER.fullmatch(text):
        return pa.float64()
    try:
        if _STAMP.fullmatch(text):
            _moment(text)
            return _STAMP_TYPE
        if _DATE.fullmatch(text):
            dt.date.fromisoformat(text)
            return pa.date32()
    except ValueError:
        pass
    return pa.string()


def _digits(type_: pa.DataType) -> int | None:
    if type_ == pa.int32():
        return 10
    if type_ == pa.int64():
        return 20
    return type_.precision if pa.types.is_decimal(type_) else None


def _wider(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """The type that both become. Where doubles would lose digits of whole numbers: text."""
    if one == other:
        return one
    types = {one, other}
    if types == {pa.int32(), pa.int64()}:
        return pa.int64()
    if types == {pa.int32(), pa.float64()}:
        return pa.float64()
    if types == {pa.date32(), _STAMP_TYPE}:
        return _STAMP_TYPE
    digits = [_digits(one), _digits(other)]
    if None not in digits:
        return pa.decimal128(min(38, max(d for d in digits if d is not None)), 0)
    return pa.string()


def _value(text: str | None, type_: pa.DataType) -> object:
    if text is None or pa.types.is_string(type_):
        return text
    if pa.types.is_integer(type_):
        return int(text)
    if pa.types.is_decimal(type_):
        return Decimal(text)
    if pa.types.is_floating(type_):
        return float(text.rstrip("fFdD") if text[-1:] in "fFdD" else text)
    if pa.types.is_date(type_):
        return dt.date.fromisoformat(text)
    if pa.types.is_timestamp(type_):
        return _moment(text)
    raise ValueError(text)


def _moment(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)
