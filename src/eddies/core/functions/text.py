"""Text functions. Positions and lengths count characters (code points), and start at 1.

Where Arrow takes a search text only as a constant and the query has a column there, the kernel runs
once for each distinct search text (`_per_distinct`), on the rows that have it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as kinds

from eddies.core.expr import Expr
from eddies.core.functions.signature import (
    Function,
    Kernel,
    Refusal,
    Types,
    Value,
    arrays,
    fixed,
    is_text,
    literal_of,
    mapped,
    same,
    spread,
    truth,
)
from eddies.core.functions.slices import characters_before, slice_characters

__all__ = ["FUNCTIONS", "lower"]

Int64s = npt.NDArray[np.int64]
_NOWHERE = np.int64(2**40)  # beyond the end of any string
_SEPARATORS = ("\x00", "\x01", "\x02", "\ufdd0")


def _ints(array: pa.Array) -> Int64s:
    """int64[n], 0 for NULL."""
    numbers: Int64s = pc.fill_null(array.cast(pa.int64()), 0).to_numpy()
    return numbers


def _null_with(text: pa.Array, *others: pa.Array) -> pa.Array:
    """`text`, NULL also where one of `others` is."""
    for other in others:
        if other.null_count:
            text = pc.if_else(pc.is_valid(other), text, pa.scalar(None, text.type))
    return text


def _per_distinct(kernel: Callable[..., pa.Array], returns: pa.DataType) -> Kernel:
    """`kernel(text, constants...)` made to take columns in place of the constants."""

    def over_values(text: Value, *keys: Value) -> Value:
        if not all(isinstance(key, pa.Scalar) for key in keys):
            columns, _ = arrays((text, *keys))
            return _by_group(kernel, returns, columns[0], columns[1:])
        if not all(key.is_valid for key in keys):
            missing = pa.scalar(None, returns)
            return missing if isinstance(text, pa.Scalar) else pa.repeat(missing, len(text))
        constants = [key.as_py() for key in keys]
        return mapped(lambda array: kernel(array, *constants), text)

    return over_values


def _by_group(
    kernel: Callable[..., pa.Array], returns: pa.DataType, text: pa.Array, keys: list[pa.Array]
) -> pa.Array:
    """The rows of each distinct combination of `keys` gathered, computed, and put back in order."""
    code = np.zeros(len(text), np.int64)
    for key in keys:
        encoded = key.dictionary_encode()
        # NULL shares a code with the first entry; its rows are blanked at the end.
        code = code * max(len(encoded.dictionary), 1) + _ints(encoded.indices)
    missing = np.zeros(len(text), np.bool_)
    for key in keys:
        missing |= ~truth(key.is_valid(), len(key))
    code[missing] = -1
    order = np.argsort(code, kind="stable")
    distinct, first = np.unique(code[order], return_index=True)
    pieces = [pa.array([], returns)]
    for number, rows in zip(distinct, np.split(order, first[1:]), strict=True) if len(code) else ():
        if number < 0:
            pieces.append(pa.nulls(len(rows), returns))
        else:
            constants = [key[int(rows[0])].as_py() for key in keys]
            pieces.append(kernel(text.take(pa.array(rows)), *constants))
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return pa.concat_arrays(pieces).take(pa.array(back))


def _cased(ascii_kernel: Callable[[pa.Array], pa.Array], change: Callable[[str], str]) -> Kernel:
    """Full Unicode case mapping (ß to SS), which Arrow's own kernels do not do.

    The whole column is joined and changed by one call of Python's `str.upper` or `str.lower`.
    """

    def of_array(text: pa.Array) -> pa.Array:
        if pc.all(pc.string_is_ascii(text), min_count=0).as_py():
            return ascii_kernel(text)
        filled = pc.fill_null(text.cast(pa.string()), "")
        for separator in _SEPARATORS:
            if not pc.any(pc.match_substring(filled, separator)).as_py():
                whole = pa.ListArray.from_arrays([0, len(filled)], filled)
                words = change(pc.binary_join(whole, separator)[0].as_py()).split(separator)
                return _null_with(pa.array(words, pa.string()), text)
        raise Refusal(f"case mapping of text that contains all of {_SEPARATORS!r}")

    return lambda value: mapped(of_array, value)


upper = _cased(pc.ascii_upper, str.upper)
lower = _cased(pc.ascii_lower, str.lower)


def _trim(kernel: Callable[..., Value]) -> Kernel:
    def of(text: Value, characters: pa.Scalar | None = None) -> Value:
        stripped = " " if characters is None else characters.as_py()
        return kernel(text, characters=stripped)

    return of


def _trim_rule(types: Types, args: Sequence[Expr]) -> pa.DataType | None:
    if len(args) == 2 and literal_of(args[1], "the characters to trim") is None:
        return None
    return fixed(pa.string(), is_text, is_text, n_optional=1)(types, args)


def _length(value: Value) -> Value:
    kernel = pc.utf8_length if is_text(value.type) else pc.binary_length
    return kernel(value).cast(pa.int32())


def _substring(text: Value, start: Value, length: Value | None = None) -> Value:
    """From `start` (0 is 1, negative counts from the end) as many as `length` characters."""
    constant = isinstance(start, pa.Scalar) and (length is None or isinstance(length, pa.Scalar))
    if constant and start.is_valid and (length is None or length.is_valid):
        return _substring_constant(text, start.as_py(), None if length is None else length.as_py())
    given = (text, start) if length is None else (text, start, length)
    return spread(_substring_rows)(*given)


def _substring_constant(text: Value, start: int, length: int | None) -> Value:
    if length is not None and length <= 0:
        return pc.utf8_slice_codeunits(text, 0, 0)
    if start >= 0:
        begin = max(start - 1, 0)
        return pc.utf8_slice_codeunits(text, begin, None if length is None else begin + length)
    end = None if length is None or start + length >= 0 else start + length
    return pc.utf8_slice_codeunits(text, start, end)


def _substring_rows(text: pa.Array, start: pa.Array, length: pa.Array | None = None) -> pa.Array:
    text = _null_with(text, start, *(() if length is None else (length,)))
    position = _ints(start)
    begin = np.where(position > 0, position - 1, position)
    begin = np.where(position < 0, _ints(pc.utf8_length(text)) + position, begin)
    end = np.full(len(text), _NOWHERE) if length is None else begin + _ints(length)
    return slice_characters(text, begin, end)


def _left(text: Value, length: Value) -> Value:
    return _substring(text, pa.scalar(1, pa.int32()), length)


def _right(text: pa.Array, length: pa.Array) -> pa.Array:
    text = _null_with(text, length)
    have, wanted = _ints(pc.utf8_length(text)), np.maximum(_ints(length), 0)
    return slice_characters(text, have - wanted, have)


def _pad(on_left: bool) -> Kernel:
    def rows(text: pa.Array, width: pa.Array, filler: pa.Array) -> pa.Array:
        text = _null_with(text, width, filler)
        wanted = np.maximum(_ints(width), 0)
        n_filler = _ints(pc.utf8_length(filler))
        missing = np.maximum(wanted - _ints(pc.utf8_length(text)), 0)
        missing[n_filler == 0] = 0
        zero = np.zeros_like(missing)
        times = -(-missing // np.maximum(n_filler, 1))
        padding = slice_characters(pc.binary_repeat(filler, pa.array(times)), zero, missing)
        kept = slice_characters(text, zero, wanted)
        pair = (padding, kept) if on_left else (kept, padding)
        return pc.binary_join_element_wise(*pair, "")

    return spread(rows)


def _repeat(text: Value, times: Value) -> Value:
    zero = pa.scalar(0, times.type)
    return pc.binary_repeat(text, pc.max_element_wise(times, zero, skip_nulls=False))


def _concat(*parts: Value) -> Value:
    empty = pa.scalar("" if is_text(parts[0].type) else b"", parts[0].type)
    return pc.binary_join_element_wise(*parts, empty)


def _concat_ws(separator: Value, *parts: Value) -> Value:
    if not parts:
        return pc.if_else(pc.is_valid(separator), "", separator)
    # Arrow drops a row whose parts are all NULL: give such a row one empty part.
    nothing = pc.is_null(pc.coalesce(*parts))
    first = pc.if_else(nothing, "", parts[0])
    return pc.binary_join_element_wise(first, *parts[1:], separator, null_handling="skip")


def _replace(text: pa.Array, search: str, replacement: str) -> pa.Array:
    if search == "":
        return text
    return pc.replace_substring(text, search, replacement)


def _instr(text: pa.Array, search: str) -> pa.Array:
    found = pc.find_substring(text, search)
    at = _ints(found)
    position = np.where(at < 0, 0, characters_before(text, at) + 1).astype(np.int32)
    return pa.array(position, mask=~truth(text.is_valid(), len(text)))


def _locate(search: Value, text: Value, start: Value | None = None) -> Value:
    """An empty search text is at 1; a start below 1, or NULL, finds nothing, as in Spark."""
    instr = _per_distinct(_instr, pa.int32())
    if start is None:
        return instr(text, search)
    columns, constant = arrays((search, text, start))
    begin = _ints(columns[2])
    rest = slice_characters(columns[1], begin - 1, np.full(len(begin), _NOWHERE))
    found = instr(rest, columns[0])
    at = _ints(found)
    position = np.where((at > 0) & (begin > 0), at + begin - 1, 0)
    empty = truth(pc.equal(columns[0], ""), len(begin)) & (begin > 0)
    position[empty] = 1
    result = pa.array(position.astype(np.int32), mask=~truth(found.is_valid(), len(begin)))
    return result[0] if constant else result


def _split_part(text: pa.Array, delimiter: str, number: int) -> pa.Array:
    if number == 0:
        if text.null_count < len(text):
            raise Refusal("split_part counts parts from 1 (or -1 from the end), 0 is no part")
        return text
    if delimiter == "":
        return text if number in (1, -1) else pc.utf8_slice_codeunits(text, 0, 0)
    parts = pc.split_pattern(text, delimiter)
    offsets = parts.offsets.to_numpy().astype(np.int64)
    first, last = offsets[:-1], offsets[1:]
    at = first + number - 1 if number > 0 else last + number
    inside = (at >= first) & (at < last)
    taken = parts.values.take(pa.array(np.where(inside, at, 0), mask=~inside))
    return _null_with(pc.fill_null(taken, ""), text)


_TEXT = fixed(pa.string(), is_text)
_INT = kinds.is_int32
_PAIR_TEST = fixed(pa.bool_(), is_text, is_text)


def _concat_rule(types: Types, args: Sequence[Expr]) -> pa.DataType | None:
    return same(lambda type_: is_text(type_) or kinds.is_binary(type_))(types, args)


FUNCTIONS = (
    Function("upper", "text", _TEXT, upper),
    Function("lower", "text", _TEXT, lower),
    Function("reverse", "text", _TEXT, pc.utf8_reverse),
    Function("trim", "text and optionally a text literal", _trim_rule, _trim(pc.utf8_trim)),
    Function("ltrim", "text and optionally a text literal", _trim_rule, _trim(pc.utf8_ltrim)),
    Function("rtrim", "text and optionally a text literal", _trim_rule, _trim(pc.utf8_rtrim)),
    Function(
        "length",
        "text or binary",
        fixed(pa.int32(), lambda type_: is_text(type_) or kinds.is_binary(type_)),
        _length,
    ),
    Function(
        "substring",
        "(text, int[, int])",
        fixed(pa.string(), is_text, _INT, _INT, n_optional=1),
        _substring,
    ),
    Function("left", "(text, int)", fixed(pa.string(), is_text, _INT), _left),
    Function("right", "(text, int)", fixed(pa.string(), is_text, _INT), spread(_right)),
    Function("lpad", "(text, int, text)", fixed(pa.string(), is_text, _INT, is_text), _pad(True)),
    Function("rpad", "(text, int, text)", fixed(pa.string(), is_text, _INT, is_text), _pad(False)),
    Function("repeat", "(text, int)", fixed(pa.string(), is_text, _INT), spread(_repeat)),
    Function("concat", "texts, or binaries", _concat_rule, _concat),
    Function("concat_ws", "texts", same(is_text), _concat_ws),
    Function("replace", "three texts", same(is_text, 3, 3), _per_distinct(_replace, pa.string())),
    Function("starts_with", "two texts", _PAIR_TEST, _per_distinct(pc.starts_with, pa.bool_())),
    Function("ends_with", "two texts", _PAIR_TEST, _per_distinct(pc.ends_with, pa.bool_())),
    Function("contains", "two texts", _PAIR_TEST, _per_distinct(pc.match_substring, pa.bool_())),
    Function(
        "instr", "two texts", fixed(pa.int32(), is_text, is_text), _per_distinct(_instr, pa.int32())
    ),
    Function(
        "locate",
        "(text, text[, int])",
        fixed(pa.int32(), is_text, is_text, _INT, n_optional=1),
        _locate,
    ),
    Function(
        "split_part",
        "(text, text, int)",
        fixed(pa.string(), is_text, is_text, _INT),
        _per_distinct(_split_part, pa.string()),
    ),
)
