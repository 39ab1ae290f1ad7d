"""Predicates worked out: key classes, bands, expensive ones, and those that ask for a matching row."""

from __future__ import annotations

import pyarrow as pa

from eddies.core.evaluate import render
from eddies.core.expr import Call, Cast, Column, Expr, Literal
from eddies.core.graph.builder import Builder
from eddies.core.graph.facts import Band, ExistsPlan, KeyClass, Optional
from eddies.core.query import Exists
from eddies.core.state.columns import is_key_type
from eddies.core.state.sorted_index import is_sortable
from eddies.errors import PlanError, TypeMismatchError

__all__ = ["bands_of", "cast_hint", "check_boolean", "exists_of", "make_key_classes", "optional_of"]


def check_boolean(builder: Builder, expr: Expr) -> None:
    """`expr` must be a predicate."""
    found = builder.type_of(expr)
    if not pa.types.is_boolean(found):
        raise TypeMismatchError(f"predicate {render(expr)} has type {found}, not boolean")


def cast_hint(type_: pa.DataType) -> str:
    """What to do about a type that cannot be compared by a hash table."""
    if pa.types.is_fixed_size_binary(type_):
        return "; cast the column to binary before it is read"
    if pa.types.is_decimal256(type_):
        return f"; cast the column to decimal128(38, {type_.scale}) before it is read"
    if pa.types.is_nested(type_):
        return "; use its parts as columns of their own, or cast it to a string before it is read"
    return ""


def optional_of(expr: Expr, mask: int, before: list[Optional]) -> Optional:
    """An expensive predicate as a module, named unlike those before it."""
    name = f"select:{render(expr)}"
    taken = {optional.name for optional in before}
    unique, count = name, 2
    while unique in taken:
        unique, count = f"{name}#{count}", count + 1
    return Optional(expr, mask, unique)


def exists_of(builder: Builder, exists: Exists, number: int) -> Optional:
    """The question whether a source has a matching row, as a module."""
    target = builder.ids[exists.source]
    keys: list[tuple[int, str, str]] = []
    filters, mask = list(exists.filters), 0
    for equality in exists.equalities:
        _check_key(builder, equality.left, equality.type)
        _check_key(builder, equality.right, equality.type)
        source_id, outer = builder.stored_column(_unwidened(builder, equality.left))
        _, inner = builder.stored_column(_unwidened(builder, equality.right))
        if any(column == inner for _, _, column in keys):  # a column is part of a key once
            filters.append(Call("eq", (equality.left, equality.right)))
        else:
            keys.append((source_id, outer, inner))
            mask |= 1 << source_id
    for predicate in filters:
        check_boolean(builder, predicate)
        mask |= builder.mask_of(predicate) & ~(1 << target)
    if not keys or mask >> target & 1:
        raise PlanError(
            f"source {exists.source!r} must be equal to others in some column to be asked"
        )
    table = builder.query.sources[target].table
    if exists.padded and sum(source.table == table for source in builder.query.sources) > 1:
        raise PlanError(f"source {exists.source!r} must be the only one of its table to pad rows")
    kind = "pad" if exists.padded else "no" if exists.negated else "some"
    name = f"{kind}:{exists.source}#{number}"
    plan = ExistsPlan(
        target, tuple(keys), tuple(filters), exists.negated, exists.null_aware, exists.padded
    )
    return Optional(Literal(True, pa.bool_()), mask, name, plan)


def _check_key(builder: Builder, side: Expr, type_: pa.DataType) -> None:
    if builder.mask_of(side).bit_count() != 1:
        raise PlanError(f"{render(side)} must read exactly one source to be a join key")
    found = builder.type_of(side)
    if found != type_:
        raise TypeMismatchError(
            f"join key {render(side)} has type {found}, but is compared as {type_}"
        )
    if not is_key_type(found):
        raise TypeMismatchError(
            f"{render(side)} of type {found} cannot be a join key{cast_hint(found)}"
        )


def _unwidened(builder: Builder, side: Expr) -> Expr:
    """A key without a cast to a wider integer: whole numbers of all widths are the same key words, and
    a column itself can be hashed, looked up and shared where a derived one cannot.
    """
    if isinstance(side, Cast) and isinstance(side.arg, Column):
        types = builder.column_type(side.arg), side.type
        if all(map(pa.types.is_signed_integer, types)) and types[0].bit_width <= types[1].bit_width:
            return side.arg
    return side


def make_key_classes(builder: Builder, selections: list[list[Expr]]) -> tuple[KeyClass, ...]:
    """Merge equalities into classes; a source's second column in a class becomes a selection.

    A column is in one class only, so that a probe cannot take one of its equalities for all of them. In
    two of different types it can only be as a whole number without its cast; the wider type is theirs.
    """
    groups: list[tuple[pa.DataType, set[tuple[int, str]]]] = []
    exprs: dict[tuple[int, str], Expr] = {}
    for equality in builder.query.equalities:
        members = set()
        for side in (equality.left, equality.right):
            _check_key(builder, side, equality.type)
            member = builder.stored_column(_unwidened(builder, side))
            exprs.setdefault(member, side)
            members.add(member)
        if len({source for source, _ in members}) != 2:
            raise PlanError("the two sides of an equality must read different sources")
        merged = [g for g in groups if g[1] & members]
        groups = [g for g in groups if g not in merged]
        types = [equality.type, *(g[0] for g in merged)]
        assert len(set(types)) == 1 or all(map(pa.types.is_signed_integer, types))
        type_ = max(types, key=lambda t: t.bit_width) if len(set(types)) > 1 else equality.type
        groups.append((type_, members.union(*(g[1] for g in merged))))
    classes = []
    for type_, group in groups:
        column_by_source: dict[int, str] = {}
        for source_id, column in sorted(group):
            if source_id in column_by_source:
                both = (exprs[source_id, column_by_source[source_id]], exprs[source_id, column])
                first, second = (
                    side if builder.type_of(side) == type_ else Cast(side, type_) for side in both
                )
                selections[source_id].append(Call("eq", (first, second)))
            else:
                column_by_source[source_id] = column
        classes.append(KeyClass(type_, column_by_source))
    return tuple(classes)


_MICROS_PER_DAY = 86_400_000_000
_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq"}


def bands_of(builder: Builder, expr: Expr, classes: tuple[KeyClass, ...]) -> tuple[Band, ...]:
    """How a sorted index can narrow down a comparison, seen from either side.

    None where the two sides share a key class: there the hash index answers. An equality comes here if
    one side reads several sources, as in `a.x = b.y + c.z`: who has b and c finds a by two bounds.
    """
    if not (isinstance(expr, Call) and expr.function in _MIRRORED and len(expr.args) == 2):
        return ()
    found = []
    left, right = expr.args
    sides = ((left, expr.function, right), (right, _MIRRORED[expr.function], left))
    for target, comparison, probe in sides:
        # target <comparison> probe
        mask, probe_mask = builder.mask_of(target), builder.mask_of(probe)
        type_ = builder.type_of(target)
        if mask.bit_count() != 1 or probe_mask == 0 or mask & probe_mask or not is_sortable(type_):
            continue
        if any(c.mask & mask and c.mask & probe_mask for c in classes):
            continue
        if comparison == "eq" and pa.types.is_floating(type_):
            continue  # equality of NaN is not an interval
        target, shift = _without_shift(builder, target)
        source_id, column = builder.stored_column(target)
        bounds = {"gt": (True,), "ge": (True,), "eq": (True, False)}.get(comparison, (False,))
        found += [Band(source_id, column, probe, probe_mask, b, shift) for b in bounds]
    return tuple(found)


def _without_shift(builder: Builder, expr: Expr) -> tuple[Expr, float | int]:
    """`x + 5` as (x, -5): the shift that, added to the other side, compares with x alone.

    So `a.x between b.x - 5 and b.x + 5` is one range of b.x, not two half-open ones. Times are
    numbers of microseconds or days.
    """
    if isinstance(expr, Call) and expr.function == "add_interval":
        moment, *interval = expr.args
        months, days, micros = (int(str(p.value)) for p in interval if isinstance(p, Literal))
        if isinstance(moment, Column) and not months:
            is_date = pa.types.is_date(builder.type_of(moment))
            return moment, -(days if is_date else days * _MICROS_PER_DAY + micros)
    if isinstance(expr, Call) and expr.function in ("add", "subtract") and len(expr.args) == 2:
        left, right = expr.args
        if (
            isinstance(left, Column)
            and isinstance(right, Literal)
            and isinstance(right.value, int | float)
            and _is_number(builder.type_of(left))
        ):
            return left, right.value if expr.function == "subtract" else -right.value
    return expr, 0


def _is_number(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_))
