"""LIKE, ILIKE and RLIKE. Patterns are literals, translated when the query is planned.

A LIKE pattern without `_` and `%` is an equality, one with a single `%` at an end a prefix or suffix;
with more `%` its pieces are looked for one after the other (`kernels.searching`), in less than half
of Arrow's time. One with `_` becomes a regular expression. RLIKE finds a match anywhere in the text.

*Known limitations.* Regular expressions are RE2's. Look-around, back references, possessive
quantifiers and intersections of character classes, which Java has, are refused by name. `$` matches
only at the very end, and `.` matches carriage returns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache, partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddies.core.expr import Expr
from eddies.core.functions.signature import Function, Kernel, Types, Value, is_text, literal_of
from eddies.core.functions.text import lower
from eddies.core.kernels.searching import AT_BEGIN, AT_END, find_pieces
from eddies.errors import PlanError, UnsupportedError

__all__ = ["FUNCTIONS"]

_ANY_ONE, _ANY_MANY = 1, 2  # tokens of a LIKE pattern beside plain characters
Token = str | int


@lru_cache(maxsize=256)
def _tokens(pattern: str, escape: str) -> tuple[Token, ...]:
    """Runs of plain characters and the two wildcards."""
    tokens: list[Token] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            escaped = next(characters, None)
            if escaped is None or escaped not in ("_", "%", escape):
                raise PlanError(
                    f"LIKE pattern {pattern!r}: the escape character {escape!r} must be followed "
                    "by '_', '%' or itself"
                )
            _append(tokens, escaped)
        elif character == "_":
            tokens.append(_ANY_ONE)
        elif character == "%":
            tokens.append(_ANY_MANY)
        else:
            _append(tokens, character)
    return tuple(tokens)


def _append(tokens: list[Token], character: str) -> None:
    if tokens and isinstance(tokens[-1], str):
        tokens[-1] += character
    else:
        tokens.append(character)


def _matcher(pattern: str, escape: str) -> Callable[[Value], Value]:
    match _tokens(pattern, escape):
        case ():
            return lambda text: pc.equal(text, "")
        case (str(whole),):
            return lambda text: pc.equal(text, whole)
        case (str(prefix), 2):
            return lambda text: pc.starts_with(text, prefix)
        case (2, str(suffix)):
            return lambda text: pc.ends_with(text, suffix)
        case tokens if _ANY_ONE not in tokens and any(isinstance(token, str) for token in tokens):
            return partial(_having_pieces, tokens)
        case tokens:
            wild = {_ANY_ONE: ".", _ANY_MANY: ".*"}
            body = "".join(
                _quoted(token) if isinstance(token, str) else wild[token] for token in tokens
            )
            return lambda text: pc.match_substring_regex(text, rf"(?s)\A{body}\z")


def _having_pieces(tokens: tuple[Token, ...], text: Value) -> Value:
    """Whether the texts have all plain tokens in this order, those at the ends at their ends."""
    if isinstance(text, pa.Scalar):
        return _having_pieces(tokens, pa.array([text.as_py()], pa.string()))[0]
    pieces = [token.encode() for token in tokens if isinstance(token, str)]
    borders = np.cumsum([0, *map(len, pieces)], dtype=np.int64)
    at_begin, at_end = isinstance(tokens[0], str), isinstance(tokens[-1], str)
    where = (AT_BEGIN if at_begin else 0) | (AT_END if at_end else 0)
    n = len(text)
    _, offsets, content = text.buffers()
    found = np.zeros(n, np.uint8)
    if n and offsets is not None:
        places = np.frombuffer(offsets, np.int32, text.offset + n + 1)[text.offset :]
        held = np.empty(0, np.uint8) if content is None else np.frombuffer(content, np.uint8)
        needles = np.frombuffer(b"".join(pieces), np.uint8)
        find_pieces(places, held, needles, borders, where, found)
    bits = pa.py_buffer(np.packbits(found, bitorder="little"))
    answer = pa.Array.from_buffers(pa.bool_(), n, [None, bits])
    if text.null_count == 0:
        return answer
    return pc.if_else(text.is_valid(), answer, pa.scalar(None, pa.bool_()))


def _quoted(plain: str) -> str:
    """Escaped for RE2, which unlike Python refuses a backslash before most letters and NUL."""
    return re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", plain)


def _like(fold: bool) -> Kernel:
    def kernel(text: Value, pattern: pa.Scalar, escape: pa.Scalar | None = None) -> Value:
        if not pattern.is_valid:
            return pc.if_else(pc.is_null(text), *[pa.scalar(None, pa.bool_())] * 2)
        escape_text = "\\" if escape is None else escape.as_py()
        if not fold:
            return _matcher(pattern.as_py(), escape_text)(text)
        return _matcher(pattern.as_py().lower(), escape_text.lower())(lower(text))

    return kernel


def _like_rule(types: Types, args: Sequence[Expr]) -> pa.DataType | None:
    if len(types) not in (2, 3) or not all(map(is_text, types)):
        return None
    pattern = literal_of(args[1], "the pattern of LIKE")
    escape = literal_of(args[2], "the escape character of LIKE") if len(args) == 3 else "\\"
    if not isinstance(escape, str) or len(escape) != 1:
        raise PlanError(f"the escape of LIKE must be one character, not {escape!r}")
    if isinstance(pattern, str):
        _tokens(pattern, escape)
    return pa.bool_()


def _rlike(text: Value, pattern: pa.Scalar) -> Value:
    if not pattern.is_valid:
        return pc.if_else(pc.is_null(text), *[pa.scalar(None, pa.bool_())] * 2)
    return pc.match_substring_regex(text, pattern.as_py())


def _rlike_rule(types: Types, args: Sequence[Expr]) -> pa.DataType | None:
    if len(types) != 2 or not all(map(is_text, types)):
        return None
    pattern = literal_of(args[1], "the pattern of RLIKE")
    if isinstance(pattern, str):
        _check_regex(pattern)
    return pa.bool_()


def _check_regex(pattern: str) -> None:
    try:
        pc.match_substring_regex(pa.scalar(""), pattern)
    except pa.ArrowInvalid as error:
        message = f"RLIKE {pattern!r} is not a pattern RE2 accepts: {error}"
        raise UnsupportedError(message) from error
    if re.search(r"\[[^\]]*&&", pattern):
        raise UnsupportedError(f"RLIKE {pattern!r} intersects character classes; RE2 has no &&")


FUNCTIONS = (
    Function("like", "(text, text literal[, escape literal])", _like_rule, _like(fold=False)),
    Function("ilike", "(text, text literal[, escape literal])", _like_rule, _like(fold=True)),
    Function("rlike", "(text, text literal)", _rlike_rule, _rlike),
)
