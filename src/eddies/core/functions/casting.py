"""Conversions between types, as Spark's CAST in ANSI mode does them.

A converter returns the converted array, NULL where a value does not fit, and the rows that do not.
A strict cast refuses if there is such a row; a lenient one (TRY_CAST) keeps the NULLs. Reading
text is in `parsing`.

*Known limitations.* Doubles print with the fewest digits that read back the same, as Java 19 and
later do; Java 17 prints a digit more for some (2E23 as 1.9999999999999998E23), and all Javas print
subnormal numbers with at least two digits. Bytes that are not UTF-8 cannot be cast to string;
Spark lets them pass. Years outside 0001-9999 are right, but Python cannot show them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as kinds

from eddies.core.functions import decimals, parsing
from eddies.core.functions.signature import Mask, Refusal, Value, is_timestamp, mapped, truth

__all__ = ["castable", "convert", "float_to_wide"]

Converter = Callable[[pa.Array, pa.DataType], tuple[pa.Array, Mask | None]]
_MICROS_PER_SECOND = 1_000_000
_MICROS_PER_DAY = 86_400 * _MICROS_PER_SECOND


def _kind(type_: pa.DataType) -> str:
    """The row or column of the conversion table a type is in."""
    tests: tuple[tuple[str, Callable[[pa.DataType], bool]], ...] = (
        ("bool", kinds.is_boolean),
        ("int", kinds.is_integer),
        ("float", lambda t: kinds.is_float32(t) or kinds.is_float64(t)),
        ("decimal", kinds.is_decimal128),
        ("text", lambda t: kinds.is_string(t) or kinds.is_large_string(t)),
        ("binary", lambda t: kinds.is_binary(t) or kinds.is_large_binary(t)),
        ("date", kinds.is_date32),
        ("milliseconds date", kinds.is_date64),
        ("instant", lambda t: is_timestamp(t) and t.tz is not None),
        ("local", lambda t: is_timestamp(t) and t.tz is None),
        ("null", kinds.is_null),
    )
    return next((name for name, test in tests if test(type_)), "other")


def castable(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether a `Cast` from `source` to `target` exists."""
    if source == target:
        return True
    return _kind(source) == "null" or (_kind(source), _kind(target)) in _CONVERTERS


def convert(value: Value, type_: pa.DataType, lenient: bool) -> Value:
    """`value` as `type_`. `castable` must hold. A strict cast raises `Refusal` on a bad value."""
    source = value.type
    if source == type_:
        return value
    if kinds.is_null(source):
        missing = pa.scalar(None, type_)
        return missing if isinstance(value, pa.Scalar) else pa.repeat(missing, len(value))
    converter = _CONVERTERS[_kind(source), _kind(type_)]

    def change(array: pa.Array) -> pa.Array:
        converted, bad = converter(array, type_)
        if bad is not None and not lenient and bad.any():
            sample = array[int(np.argmax(bad))].as_py()
            raise Refusal(f"{sample!r} of type {source} cannot be cast to {type_}")
        return converted

    return mapped(change, value)


def _plain(array: pa.Array, type_: pa.DataType) -> tuple[pa.Array, None]:
    """Arrow's own cast, where it cannot lose anything Spark would keep or refuse."""
    return array.cast(type_, safe=False), None


def _blank(array: pa.Array, bad: Mask) -> pa.Array:
    """`array` with NULL on the `bad` rows."""
    if not bad.any():
        return array
    return pc.if_else(pa.array(bad), pa.scalar(None, array.type), array)


def _int_to_int(array: pa.Array, type_: pa.DataType) -> tuple[pa.Array, Mask | None]:
    try:
        return array.cast(type_), None
    except pa.ArrowInvalid:
        bounds = np.iinfo(type_.to_pandas_dtype())
        wide = array.cast(pa.int64())
        outside = pc.or_(pc.less(wide, int(bounds.min)), pc.greater(wide, int(bounds.max)))
        bad = truth(outside, len(array))
        return _blank(array, bad).cast(type_), bad


def _float_to_int(array: pa.Array, type_: pa.DataType) -> tuple[pa.Array, Mask | None]:
    """Cut off towards zero. 2**63 itself becomes the largest bigint, as in Java."""
    numbers = array.cast(pa.float64()).to_numpy(zero_copy_only=False)
    bounds = np.iinfo(type_.to_pandas_dtype())
    valid = truth(array.is_valid(), len(array))
    fits = (np.floor(numbers) <= float(bounds.max)) & (np.ceil(numbers) >= float(bounds.min))
    top = numbers >= 2.0**63
    whole = np.where(fits & valid & ~top, numbers, 0.0).astype(np.int64)
    whole[top & fits] = bounds.max
    return pa.array(whole, mask=~(fits & valid)).cast(type_), valid & ~fits


def _number_to_bool(array: pa.Array, type_: pa.DataType) -> tuple[pa.Array, None]:
    return pc.not_equal(array, pa.scalar(0, pa.int8()).cast(array.type)), None


def _bool_to_decimal(array: pa.Array, type_: pa.DataType) -> tuple[pa.Array, Mask | None]:
    return _int_to_decimal(array.cast(pa.int8()), type_)


def _int_to_decimal(array: pa.Array, type_: pa.DataType) -> tuple[pa.Array, Mask | None]:
    return _fit(array.cast(pa.decimal128(20, 0)).cast(pa.decimal256(76, 0)), type_)


def _decimal_to_decimal(array: pa.Array, type_: pa.DataType) -> tuple[pa.Array, Mask | None]:
    n_whole = array.type.precision - array.type.scale
    if type_.scale >= array.type.scale and type_.precision - type_.scale >= n_whole:
        return array.cast(type_), None
    return _fit(array.cast(pa.decimal256(76, array.type.scale)), type_)


def _fit(wide: pa.Array, type_: pa.DataType) -> tuple[pa.Array, Mask | None]:
    """decimal256 rounded HALF_UP to a decimal128 type, and the rows with too many digits."""
    if wide.type.scale > type_.scale:
        wide = pc.round(wide, type_.scale, round_mode=decimals.HALF_UP)
    n_whole = type_.precision - type_.scale
    if n_whole >= 76 - wide.type.scale:
        return wide.cast(type_), None
    limit = pa.scalar(10**n_whole, pa.decimal256(76, 0)).cast(wide.type)
    bad = truth(pc.greater_equal(pc.abs(wide), limit), len(wide))
    return _blank(wide, bad).cast(type_), bad


def _decimal_to_int(array: pa.Array, type_: pa.DataType) -> tuple[pa.Array, Mask | None]:
    whole = pc.trunc(array.cast(pa.decimal256(76, array.type.scale)))
    narrowed, bad = _fit(whole, pa.decimal128(19, 0))
    bounds = np.iinfo(type_.to_pandas_dtype())
    low, high = (pa.scalar(int(end), pa.decimal128(19, 0)) for end in (bounds.min, bounds.max))
    outside = truth(pc.or_(pc.less(narrowed, low), pc.greater(narrowed, high)), len(array))
    bad = outside if bad is None else bad | outside
    return _blank(narrowed, outside).cast(type_), bad


def _decimal_to_float(array: pa.Array, type_: pa.DataType) -> tuple[pa.Array, None]:
    # Through text: Arrow's direct conversion multiplies by a rounded power of ten.
    return array.cast(pa.string()).cast(type_), None


def float_to_wide(array: pa.Array) -> tuple[pa.Array, Mask]:
    """float64 as decimal256, reading each number as its shortest decimal text, as Spark does.

    The mask marks what is lost, and NULL in the result: NaN, infinities, and 10**38 and beyond.
    All digits are kept while numbers are below 10**15, otherwise 38 after the point.
    """
    numbers = array.to_numpy(zero_copy_only=False)
    valid = truth(array.is_valid(), len(array))
    magnitude = np.abs(numbers)
    lost = valid & ~(magnitude < 1e38)
    kept = pa.array(np.where(magnitude < 1e-40, 0.0, numbers), mask=lost | ~valid)
    small = magnitude < 1e15
    fine = _blank(kept, ~small).cast(pa.string()).cast(pa.decimal256(76, 60))
    if not (valid & ~lost & ~small).any():
        return fine, lost
    coarse = _blank(kept, small).cast(pa.string()).cast(pa.decimal256(76, 38))
    cut = pc.round(fine, 38, round_mode="towards_zero").cast(pa.decimal256(76, 38))
    return pc.coalesce(cut, coarse), lost


def _float_to_decimal(array: pa.Array, type_: pa.DataType) -> tuple[pa.Array, Mask | None]:
    """NaN and infinities are NULL, even where a number with too many digits has to fail."""
    wide, lost = float_to_wide(array.cast(pa.float64()))
    narrowed, bad = _fit(wide, type_)
    lost &= np.isfinite(array.to_numpy(zero_copy_only=False))
    return narrowed, lost if bad is None else lost | bad


def _float_to_text(array: pa.Array, type_: pa.DataType) -> tuple[pa.Array, None]:
    """Java's form: 12.0, 1.0E10, 1.0E-4, NaN, Infinity. Arrow gives the shortest digits."""
    text = array.cast(pa.string())
    magnitude = np.abs(array.to_numpy(zero_copy_only=False))
    with np.errstate(invalid="ignore"):
        plain = ((magnitude >= 1e-3) & (magnitude < 1e7)) | (magnitude == 0)
    text = pc.replace_substring_regex(text, r"^(-?\d+)$", r"\1.0")
    if not plain.all():
        scientific = text.filter(pa.array(~plain))
        for pattern, form in _SCIENTIFIC_FORMS:
            scientific = pc.replace_substring_regex(scientific, pattern, form)
        text = pc.replace_with_mask(text, pa.array(~plain), scientific)
    return text.cast(type_), None


_SCIENTIFIC_FORMS = (
    ("^nan$|^-nan$", "NaN"),
    ("inf$", "Infinity"),
    *((rf"^(-?[1-9])(\d{{{n}}})\.(\d+)$", rf"\1.\2\3E{n}") for n in range(7, 22)),
    *((rf"^(-?)0\.0{{{n}}}([1-9])(\d*)$", rf"\1\2.\3E-{n + 1}") for n in range(2, 10)),
    (r"^(-?\d)e", r"\1.0e"),
    (r"e\+?(-?\d+)$", r"E\1"),
    (r"(\.\d*?)0+E", r"\1E"),
    (r"\.E", ".0E"),
)


def _decimal_to_text(array: pa.Array, type_: pa.DataType) -> tuple[pa.Array, None]:
    """All digits of the scale, never an exponent, which Arrow uses for small numbers."""
    scale = array.type.scale
    if scale <= 6:
        return array.cast(type_), None
    digits = array.view(pa.decimal128(38, 0)).cast(pa.string())
    negative = pc.starts_with(digits, "-")
    padded = pc.utf8_lpad(pc.utf8_ltrim(digits, "-"), scale + 1, "0")
    pointed = pc.replace_substring_regex(padded, rf"^(\d+)(\d{{{scale}}})$", r"\1.\2")
    minus = pc.binary_join_element_wise(pa.scalar("-"), pointed, "")
    return pc.if_else(negative, minus, pointed).cast(type_), None


def _date_to_text(array: pa.Array, type_: pa.DataType) -> tuple[pa.Array, None]:
    # Years above 9999 carry a plus sign in Java's form.
    text = pc.replace_substring_regex(array.cast(pa.string()), r"^(\d{5,})", r"+\1")
    return text.cast(type_), None


def _timestamp_to_text(array: pa.Array, type_: pa.DataType) -> tuple[pa.Array, None]:
    text = _local(array).cast(pa.string())
    text = pc.replace_substring_regex(text, r"\.?0+$", "")
    return pc.replace_substring_regex(text, r"^(\d{5,})", r"+\1").cast(type_), None


def _local(array: pa.Array) -> pa.Array:
    return array.view(pa.timestamp("us"))


def _retimed(array: pa.Array, type_: pa.DataType) -> tuple[pa.Array, None]:
    """TIMESTAMP to TIMESTAMP_NTZ and back: in session time zone UTC the same number."""
    return array.view(type_), None


def _date_to_timestamp(array: pa.Array, type_: pa.DataType) -> tuple[pa.Array, None]:
    days = array.view(pa.int32()).cast(pa.int64())
    return pc.multiply_checked(days, _MICROS_PER_DAY).view(type_), None


def _floor_div(array: pa.Array, by: int) -> pa.Array:
    micros = array.view(pa.int64())
    return pc.divide(pc.subtract(micros, pc.modulo(micros, by)), by)


def _timestamp_to_date(array: pa.Array, type_: pa.DataType) -> tuple[pa.Array, None]:
    return _floor_div(array, _MICROS_PER_DAY).cast(pa.int32()).view(type_), None


def _instant_to_int(array: pa.Array, type_: pa.DataType) -> tuple[pa.Array, Mask | None]:
    return _int_to_int(_floor_div(array, _MICROS_PER_SECOND), type_)


def _instant_to_float(array: pa.Array, type_: pa.DataType) -> tuple[pa.Array, None]:
    micros = array.view(pa.int64()).cast(pa.float64(), safe=False)
    return pc.divide(micros, float(_MICROS_PER_SECOND)).cast(type_, safe=False), None


def _int_to_instant(array: pa.Array, type_: pa.DataType) -> tuple[pa.Array, None]:
    seconds = array.cast(pa.int64())
    return pc.multiply_checked(seconds, _MICROS_PER_SECOND).view(type_), None


def _text_to_decimal(array: pa.Array, type_: pa.DataType) -> tuple[pa.Array, Mask | None]:
    wide, malformed = parsing.to_wide_decimal(array)
    narrowed, bad = _fit(wide, type_)
    return narrowed, malformed if bad is None else malformed | bad


def _binary_to_text(array: pa.Array, type_: pa.DataType) -> tuple[pa.Array, None]:
    """The bytes as they are. Spark does not ask whether they are UTF-8."""
    kind = pa.large_binary() if kinds.is_large_string(type_) else pa.binary()
    return array.cast(kind).view(type_), None


_CONVERTERS: dict[tuple[str, str], Converter] = {
    ("bool", "int"): _plain,
    ("bool", "float"): lambda array, type_: _plain(array.cast(pa.int8()), type_),
    ("bool", "decimal"): _bool_to_decimal,
    ("bool", "text"): _plain,
    ("int", "bool"): _number_to_bool,
    ("int", "int"): _int_to_int,
    ("int", "float"): _plain,
    ("int", "decimal"): _int_to_decimal,
    ("int", "text"): _plain,
    ("int", "instant"): _int_to_instant,
    ("float", "bool"): _number_to_bool,
    ("float", "int"): _float_to_int,
    ("float", "float"): _plain,
    ("float", "decimal"): _float_to_decimal,
    ("float", "text"): _float_to_text,
    ("decimal", "bool"): _number_to_bool,
    ("decimal", "int"): _decimal_to_int,
    ("decimal", "float"): _decimal_to_float,
    ("decimal", "decimal"): _decimal_to_decimal,
    ("decimal", "text"): _decimal_to_text,
    ("text", "bool"): parsing.to_bool,
    ("text", "int"): parsing.to_int,
    ("text", "float"): parsing.to_float,
    ("text", "decimal"): _text_to_decimal,
    ("text", "binary"): _plain,
    ("text", "text"): _plain,
    ("text", "date"): parsing.to_date,
    ("text", "instant"): parsing.to_timestamp,
    ("text", "local"): parsing.to_timestamp,
    ("binary", "text"): _binary_to_text,
    ("binary", "binary"): _plain,
    ("milliseconds date", "date"): _plain,
    ("date", "text"): _date_to_text,
    ("date", "instant"): _date_to_timestamp,
    ("date", "local"): _date_to_timestamp,
    ("instant", "text"): _timestamp_to_text,
    ("instant", "date"): _timestamp_to_date,
    ("instant", "local"): _retimed,
    ("instant", "int"): _instant_to_int,
    ("instant", "float"): _instant_to_float,
    ("local", "text"): _timestamp_to_text,
    ("local", "date"): _timestamp_to_date,
    ("local", "instant"): _retimed,
}
