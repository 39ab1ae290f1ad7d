"""The functions a `Call` may name, one file per family.

Nothing is coerced in here: whoever builds an expression inserts every `Cast`, so that argument
types are exactly those listed. A call with other types is a `TypeMismatchError` at planning time.
Meaning is Spark 4's with ANSI mode on and session time zone UTC: overflow, division by zero and
bad casts raise `EvaluationError`; NULL in gives NULL out unless said otherwise.

Type words: `int` any of int8..int64; `float` float32 or float64; `decimal` any decimal128 (a
decimal is never mixed with an int or a float); `number` int, float or decimal; `text` string;
`date` date32; `ts` timestamp('us', 'UTC') or timestamp('us'); `T` the same type at every place in
the line; "literal" means a `Literal` node, known at planning time.

Arithmetic (arithmetic.py, mathematics.py, decimals.py)
    add subtract multiply modulo (int T, T) -> T; (float T, T) -> T; (decimal, decimal) -> decimal
    divide                       (float T, T) -> T; (decimal, decimal) -> decimal. SQL `/` on
                                 integers: cast both to float64 first
    int_divide                   (int T, T) -> int64; (decimal, decimal) -> int64       SQL DIV
    negate abs                   (number T) -> T
    round                        (int T | float T, int32 literal) -> T;
                                 (decimal, int32 literal) -> decimal
    floor ceil                   (int | float) -> int64; (decimal) -> decimal with scale 0
    sign sqrt exp                (float64) -> float64
    ln log10                     (float64) -> float64, NULL when the argument is not positive
    power                        (float64, float64) -> float64
    greatest least               (T, T, ...) -> T, NULL arguments skipped; T ordered (see below)
Comparison (comparison.py); T is any int, float, text, binary, date, ts, duration or bool; two
decimals may differ in precision and scale. NaN = NaN, and NaN is the greatest float.
    eq ne lt le gt ge            (T, T) -> bool
    null_safe_eq                 (T, T) -> bool, never NULL                              SQL <=>
    in_list                      (T, T literal, T literal, ...) -> bool, SQL's NULL rules.
                                 Decimals: all of one T
    is_null is_not_null          (anything) -> bool, never NULL
    is_nan                       (float) -> bool, false for NULL as in Spark
Boolean (boolean.py); Kleene's logic; a side does not fail on rows already decided before it
    and or                       (bool, bool, ...) -> bool, two or more arguments
    not                          (bool) -> bool
    xor                          (bool, bool) -> bool
Conditional (conditional.py); a branch is evaluated only on the rows that reach it
    case                         (bool, T, bool, T, ..., T) -> T; the last argument is ELSE and is
                                 required (a NULL literal of type T when SQL has none)
    if                           (bool, T, T) -> T
    coalesce                     (T, T, ...) -> T
    nullif                       (T, T) -> T, T comparable
Text (text.py, patterns.py); lengths and positions count characters (code points), from 1
    like ilike                   (text, text literal[, text literal: the escape character]) -> bool
    rlike                        (text, text literal) -> bool; a regular expression RE2 accepts
    upper lower reverse          (text) -> text
    trim ltrim rtrim             (text[, text literal: the characters to strip]) -> text;
                                 spaces if absent
    length                       (text | binary) -> int32; bytes for binary
    substring                    (text, int32[, int32]) -> text; start 0 means 1, negative from
                                 the end
    left right                   (text, int32) -> text
    lpad rpad                    (text, int32, text) -> text
    repeat                       (text, int32) -> text
    concat                       (text, text, ...) -> text; or all binary. One argument is fine
    concat_ws                    (text, text, ...) -> text; first the separator, NULL parts skipped
    replace                      (text, text, text) -> text
    starts_with ends_with contains  (text, text) -> bool
    instr                        (text, text) -> int32: position of the second in the first,
                                 0 if none
    locate                       (text, text[, int32]) -> int32: position of the first in the
                                 second, from a start position
    split_part                   (text, text, int32) -> text
Temporal (temporal.py)
    year quarter month day       (date | ts) -> int32
    dayofweek dayofyear          (date | ts) -> int32; Sunday is 1
    weekday weekofyear           (date | ts) -> int32; Monday is 0; ISO week
    hour minute second           (ts) -> int32
    date_add date_sub            (date, int32) -> date
    datediff                     (date, date) -> int32: first minus second, in days
    add_months                   (date, int32) -> date
    last_day                     (date) -> date
    date_trunc                   (text literal, date T | ts T) -> T; units year yyyy yy quarter
                                 month mon mm week day dd hour minute second millisecond
                                 microsecond in any case (for a date: up to week)
    to_date                      (text | date | ts) -> date; the same as a Cast to date32
    add_interval                 (date T | ts T, int32 literal months, int32 literal days,
                                 int64 literal microseconds) -> T. A date takes no microseconds:
                                 cast it to a timestamp first. Subtract by negating all three
    timestamp_diff               (ts T, T) -> duration('us'): first minus second
    unix_micros                  (ts) -> int64 microseconds since 1970

Decimal results follow Spark: add and subtract keep max(s1, s2) digits after the point, multiply
s1+s2, divide max(6, s1+p2+1), each reduced (not below 6) when the precision would exceed 38,
rounding HALF_UP.

Casts are `Cast` nodes, not calls; `castable(source, target)` in `eddies.core.functions.casting`
says which exist. A user function is a `Call` by the name it has in `Query.functions`, which may
not be one of the names above.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from eddies.core.functions import (
    arithmetic,
    boolean,
    comparison,
    conditional,
    mathematics,
    patterns,
    temporal,
    text,
)
from eddies.core.functions.casting import castable
from eddies.core.functions.signature import Function

__all__ = ["FUNCTIONS", "Function", "castable"]

FUNCTIONS: Mapping[str, Function] = MappingProxyType(
    {
        function.name: function
        for family in (
            arithmetic,
            mathematics,
            comparison,
            boolean,
            conditional,
            text,
            patterns,
            temporal,
        )
        for function in family.FUNCTIONS
    }
)
