"""Reading numbers, booleans, dates and timestamps from text, in the forms Spark accepts.

Each function returns the parsed array, NULL where the text is malformed or out of range, and a
mask of those rows. All work is done by Arrow's regular expressions and casts on whole columns.
White space and control characters around a value are ignored.

*Known limitations.* Hexadecimal floats and region names as time zones (`America/New_York`) are
refused; offsets, `Z`, `UTC`, `GMT` and `UT` are read. A time without a date is refused: it would
depend on today.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eddies.core.functions.signature import Mask, truth
from eddies.core.functions.slices import slice_characters

__all__ = ["to_bool", "to_date", "to_float", "to_int", "to_timestamp", "to_wide_decimal"]

Parsed = tuple[pa.Array, Mask]
Int64s = npt.NDArray[np.int64]

_BLANKS = "".join(map(chr, range(33))) + "\x7f"
_TRUE = pa.array(["t", "true", "y", "yes", "1"])
_FALSE = pa.array(["f", "false", "n", "no", "0"])
_INTEGER = r"^[+-]?[0-9]+$"
_DECIMAL = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$"
_FLOAT = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[dDfF]?$"
_SPECIAL = r"(?i)^(?:nan|[+-]?inf|[+-]?infinity)$"
_DATE = (
    r"(?s)^(?P<year>[+-]?[0-9]{4,7})"
    r"(?:-(?P<month>[0-9]{1,2})(?:-(?P<day>[0-9]{1,2})(?:[ T].*)?)?)?$"
)
_TIMESTAMP = (
    r"^(?P<year>[+-]?[0-9]{4,6})(?:-(?P<month>[0-9]{1,2})(?:-(?P<day>[0-9]{1,2})"
    r"(?:[ T](?P<hour>[0-9]{1,2})(?::(?P<minute>[0-9]{1,2})"
    r"(?::(?P<second>[0-9]{1,2})(?:\.(?P<fraction>[0-9]*))?)?)?"
    r" *(?:Z|(?:UTC|GMT|UT)?(?:(?P<sign>[+-])(?P<off_hour>[0-9]{1,2})"
    r"(?::?(?P<off_minute>[0-9]{2})(?::?(?P<off_second>[0-9]{2}))?)?)?)?)?)?)?$"
)
_LAST_YEAR = 290_000  # microseconds in 64 bits reach a little further, to 294247
_MAX_DIGITS = 38
_MAX_OFFSET_SECONDS = 18 * 3600


def _trimmed(text: pa.Array) -> pa.Array:
    return pc.utf8_trim(text.cast(pa.string()), _BLANKS)


def _split(text: pa.Array, pattern: str) -> tuple[pa.Array, Mask]:
    """`text` with NULL where `pattern` does not match, and the rows where it does not."""
    matches = pc.match_substring_regex(text, pattern)
    bad = truth(pc.invert(matches), len(text))
    return _blank(text, bad), bad


def _blank(array: pa.Array, bad: Mask) -> pa.Array:
    return pc.if_else(pa.array(bad), pa.scalar(None, array.type), array) if bad.any() else array


def to_bool(text: pa.Array, type_: pa.DataType) -> Parsed:
    """t, true, y, yes, 1 and f, false, n, no, 0 in any case."""
    word = pc.utf8_lower(_trimmed(text))
    yes, no = pc.is_in(word, value_set=_TRUE), pc.is_in(word, value_set=_FALSE)
    known = pc.or_(yes, no)
    bad = truth(pc.and_not(pc.is_valid(text), known), len(text))
    return pc.if_else(known, yes, pa.scalar(None, pa.bool_())), bad


def to_int(text: pa.Array, type_: pa.DataType) -> Parsed:
    """An optional sign and digits."""
    digits, bad = _split(_trimmed(text), _INTEGER)
    digits = pc.replace_substring_regex(digits, r"^\+", "")
    try:
        return digits.cast(type_), bad
    except pa.ArrowInvalid:  # some are out of range: find which
        digits = pc.replace_substring_regex(digits, "^(-?)0+([0-9])", r"\1\2")
        too_long = truth(pc.greater(pc.utf8_length(digits), 20), len(text))
        numbers = _blank(digits, too_long).cast(pa.decimal128(20, 0))
        bounds = np.iinfo(type_.to_pandas_dtype())
        low, high = (pa.scalar(int(end), pa.decimal128(20, 0)) for end in (bounds.min, bounds.max))
        outside = truth(pc.or_(pc.less(numbers, low), pc.greater(numbers, high)), len(text))
        return _blank(numbers, outside).cast(type_), bad | too_long | outside


def to_float(text: pa.Array, type_: pa.DataType) -> Parsed:
    """Decimal notation, optionally an exponent and Java's suffix; or NaN or an infinity."""
    word = _trimmed(text)
    special = pc.match_substring_regex(word, _SPECIAL)
    fits = pc.or_(special, pc.match_substring_regex(word, _FLOAT))
    bad = truth(pc.invert(fits), len(text))
    plain = pc.replace_substring_regex(pc.replace_substring_regex(word, r"^\+", ""), "[dDfF]$", "")
    number = pc.if_else(special, pc.replace_substring_regex(pc.utf8_lower(word), r"^\+", ""), plain)
    return _blank(number, bad).cast(type_), bad


def to_wide_decimal(text: pa.Array) -> Parsed:
    """decimal256(76, 38); digits beyond the 38th after the point are cut off."""
    number, bad = _split(_trimmed(text), _DECIMAL)
    number = pc.replace_substring_regex(number, r"^\+", "")
    if pc.any(pc.match_substring(number, "e", ignore_case=True)).as_py():
        number = _without_exponent(number)
    number = pc.replace_substring_regex(number, "^(-?)0+([0-9])", r"\1\2")
    number = pc.replace_substring_regex(number, rf"(\.[0-9]{{{_MAX_DIGITS}}})[0-9]+$", r"\1")
    too_long = truth(pc.match_substring_regex(number, rf"^-?[0-9]{{{_MAX_DIGITS + 1}}}"), len(text))
    return _blank(number, too_long).cast(pa.decimal256(76, _MAX_DIGITS)), bad | too_long


def _without_exponent(number: pa.Array) -> pa.Array:
    """`12.5e-3` as `0.0125`: the digits with the point moved by the exponent."""
    parts = pc.extract_regex(
        number,
        r"^(?P<sign>-?)(?P<whole>[0-9]*)\.?(?P<rest>[0-9]*)(?:[eE](?P<exponent>[+-]?[0-9]+))?$",
    )
    sign, whole, rest, exponent = parts.flatten()
    digits = pc.binary_join_element_wise(whole, rest, "")
    # Leading zeros would count as places before the point.
    stripped = pc.utf8_ltrim(digits, "0")
    n_zeros = _ints(pc.subtract(pc.utf8_length(digits), pc.utf8_length(stripped)))
    short = pc.replace_substring_regex(
        pc.replace_substring_regex(exponent, r"^\+", ""), r"^(-?)0*([0-9]{1,6})[0-9]*$", r"\1\2"
    )
    n_digits = _ints(pc.utf8_length(stripped))
    point = _ints(pc.utf8_length(whole)) - n_zeros + _numbers(short, 0)
    # Outside these limits the number is 0, or too long whatever follows: no need for more zeros.
    point = np.clip(point, -_MAX_DIGITS - 1, 2 * _MAX_DIGITS)
    point[n_digits == 0] = 0
    before = slice_characters(stripped, np.zeros_like(point), np.clip(point, 0, n_digits))
    after = slice_characters(stripped, np.clip(point, 0, n_digits), n_digits)
    zeros_before = pc.binary_repeat(pa.scalar("0"), pa.array(np.maximum(point - n_digits, 0)))
    zeros_after = pc.binary_repeat(pa.scalar("0"), pa.array(np.maximum(-point, 0)))
    return pc.binary_join_element_wise(
        sign, pa.scalar("0"), before, zeros_before, pa.scalar("."), zeros_after, after, ""
    )


def _ints(array: pa.Array) -> Int64s:
    """int64[n] of an integer array, 0 for NULL."""
    numbers: Int64s = pc.fill_null(array.cast(pa.int64()), 0).to_numpy()
    return numbers


def _numbers(digits: pa.Array, default: int) -> Int64s:
    """int64[n] of a captured group, `default` where the group is empty or nothing matched."""
    plain = pc.replace_substring_regex(digits, r"^\+", "")
    missing = pc.equal(plain, "")
    filled = pc.fill_null(pc.if_else(missing, str(default), plain), str(default))
    return _ints(filled.cast(pa.int64()))


def _days(year: Int64s, month: Int64s, day: Int64s) -> tuple[Int64s, Mask]:
    """Days since 1970 of a date in the proleptic Gregorian calendar, and whether there is one."""
    months = (year - 1970) * 12 + (month - 1)
    first = months.astype("M8[M]").astype("M8[D]").astype(np.int64)
    following = (months + 1).astype("M8[M]").astype("M8[D]").astype(np.int64)
    exists = (month >= 1) & (month <= 12) & (day >= 1) & (day <= following - first)
    return first + day - 1, exists


def to_date(text: pa.Array, type_: pa.DataType) -> Parsed:
    """`yyyy`, `yyyy-m`, `yyyy-m-d`, the last optionally followed by a space or T and anything."""
    try:
        return text.cast(type_), np.zeros(len(text), np.bool_)  # all are yyyy-mm-dd: the usual case
    except pa.ArrowInvalid:
        present = truth(pc.is_valid(text), len(text))
    year, month, day = pc.extract_regex(_trimmed(text), _DATE).flatten()
    matched = truth(pc.is_valid(year), len(text))
    days, exists = _days(_numbers(year, 1970), _numbers(month, 1), _numbers(day, 1))
    good = present & matched & exists & (np.abs(days) < 2**31)
    dates = pa.array(np.where(good, days, 0).astype(np.int32), mask=~good)
    return dates.view(type_), present & ~good


def to_timestamp(text: pa.Array, type_: pa.DataType) -> Parsed:
    """A date, then optionally a time down to fractions of a second, then optionally an offset.

    A fraction is cut off after microseconds. TIMESTAMP_NTZ ignores the offset, as Spark does.
    """
    present = truth(pc.is_valid(text), len(text))
    groups = dict(
        zip(_TIMESTAMP_GROUPS, pc.extract_regex(_trimmed(text), _TIMESTAMP).flatten(), strict=True)
    )
    matched = truth(pc.is_valid(groups["year"]), len(text))
    year = _numbers(groups["year"], 1970)
    days, exists = _days(year, _numbers(groups["month"], 1), _numbers(groups["day"], 1))
    hour, minute, second = (_numbers(groups[name], 0) for name in ("hour", "minute", "second"))
    fraction = pc.utf8_slice_codeunits(pc.utf8_rpad(groups["fraction"], 6, "0"), 0, 6)
    off_hour, off_minute, off_second = (
        _numbers(groups[name], 0) for name in ("off_hour", "off_minute", "off_second")
    )
    offset = off_hour * 3600 + off_minute * 60 + off_second
    good = present & matched & exists & (hour < 24) & (minute < 60) & (second < 60)
    good &= (off_minute < 60) & (off_second < 60) & (offset <= _MAX_OFFSET_SECONDS)
    good &= np.abs(year) <= _LAST_YEAR
    seconds = days * 86_400 + hour * 3600 + minute * 60 + second
    if type_.tz is not None:
        negative = truth(pc.equal(groups["sign"], "-"), len(text))
        seconds -= np.where(negative, -offset, offset)
    micros = np.where(good, seconds, 0) * 1_000_000 + _numbers(fraction, 0)
    return pa.array(micros, mask=~good).view(type_), present & ~good


_TIMESTAMP_GROUPS = (
    "year",
    "month",
    "day",
    "hour",
    "minute",
    "second",
    "fraction",
    "sign",
    "off_hour",
    "off_minute",
    "off_second",
)
