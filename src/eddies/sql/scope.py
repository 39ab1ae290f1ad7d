"""Which names a SELECT can see: its FROM relations, their columns, and the scopes around it.

After `qualify` every relation of the statement has a name of its own, so that a qualified column
means the same wherever it is moved. A relation whose columns are not known before it runs (a table
function, PIVOT) is *opaque*: names that nothing else explains are taken to be its columns and left
as written.

`visible` is what `SELECT *` shows, in order: USING and NATURAL merge two columns into one entry
there, while both stay reachable under their own qualified names. An opaque relation is one entry.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import exp

from eddies.errors import PlanError, UnknownNameError
from eddies.sql.names import did_you_mean

__all__ = ["ALL", "Relation", "Scope", "Visible", "as_column", "column"]

ALL = "*"  # the name of the entry that stands for all columns of an opaque relation


def column(relation: str, name: str) -> exp.Column:
    """A qualified reference, quoted: it is a resolved name, not text to be read again."""
    return exp.column(
        exp.to_identifier(name, quoted=True), exp.to_identifier(relation, quoted=True)
    )


def as_column(value: exp.Expr) -> exp.Expr:
    """What takes the place of a column. A bare integer would be a position in ORDER BY and GROUP BY,
    and beside a decimal a number of fewer digits than its type.
    """
    literal = value.unnest()
    literal = literal.this if isinstance(literal, exp.Neg) else literal
    if not literal.is_int or not isinstance(literal, exp.Literal):
        return value
    return exp.cast(value, "int" if abs(int(literal.name)) < 2**31 else "bigint")


@dataclass(frozen=True, slots=True)
class Relation:
    """A FROM item: `alias` as written, `name` unique in the statement; `columns` None = opaque."""

    alias: str
    name: str
    columns: tuple[str, ...] | None

    def find(self, name: str) -> str | None:
        """The column spelled like `name` without regard to case."""
        found = [known for known in self.columns or () if known.lower() == name.lower()]
        if len(found) > 1:
            raise PlanError(f"column {name!r} of {self.alias} is ambiguous: it has {len(found)}")
        return found[0] if found else None


@dataclass(frozen=True, slots=True)
class Visible:
    """One column of `SELECT *`: its name and what it stands for."""

    name: str
    value: exp.Expr


@dataclass(slots=True)
class Scope:
    """The relations of one SELECT, filled from left to right while its FROM is read."""

    outer: Scope | None = None
    relations: list[Relation] = field(default_factory=list)
    visible: list[Visible] = field(default_factory=list)

    @property
    def opaque(self) -> bool:
        """Whether some relation's columns are not known."""
        return any(relation.columns is None for relation in self.relations)

    def add(self, relation: Relation) -> list[Visible]:
        """Take in a relation; its columns as `visible` would list them."""
        if relation.alias and any(
            known.alias.lower() == relation.alias.lower() for known in self.relations
        ):
            raise PlanError(
                f"{relation.alias!r} names two relations in one FROM: give one of them an alias"
            )
        self.relations.append(relation)
        if relation.columns is None:
            return [Visible(ALL, exp.column(exp.Star(), exp.to_identifier(relation.name, True)))]
        return [Visible(name, column(relation.name, name)) for name in relation.columns]

    def relation(self, alias: str) -> Relation | None:
        """The relation called `alias` here or in a scope around."""
        for known in self.relations:
            if known.alias.lower() == alias.lower():
                return known
        return self.outer.relation(alias) if self.outer else None

    def _having(self, alias: str, name: str) -> Relation | None:
        """The innermost relation called `alias` that has, or may have, a column called `name`."""
        for known in self.relations:
            if known.alias.lower() == alias.lower() and (
                known.columns is None or known.find(name) is not None
            ):
                return known
        return self.outer._having(alias, name) if self.outer else None

    def resolve(self, node: exp.Column) -> exp.Expr | None:
        """What `node` refers to, as a qualified expression; None if it can only be opaque."""
        parts = [part.name for part in node.parts]
        value, rest = self._resolve(parts)
        if value is None:
            return None
        for field_name in rest:
            value = exp.Dot(this=value, expression=exp.to_identifier(field_name, quoted=True))
        return value

    def _resolve(self, parts: list[str]) -> tuple[exp.Expr | None, list[str]]:
        for skip in range(min(len(parts) - 1, 3)):  # alias.column, or database.table.column
            name = ".".join(parts[: skip + 1])
            if self.relation(name) is None and skip:
                name = parts[skip]
            relation = self._having(name, parts[skip + 1]) or self.relation(name)
            if relation is None:
                continue
            if relation.columns is None:
                return column(relation.name, parts[skip + 1]), parts[skip + 2 :]
            found = relation.find(parts[skip + 1])
            if found is not None:
                return column(relation.name, found), parts[skip + 2 :]
            if self.bare(parts[0]) is None:
                raise UnknownNameError(
                    f"{relation.alias} has no column {parts[skip + 1]!r}: "
                    + did_you_mean(parts[skip + 1], relation.columns)
                )
        value = self.bare(parts[0])
        if value is not None:
            return value, parts[1:]
        if self._any_opaque():
            return None, []
        if len(parts) > 1:
            raise UnknownNameError(
                f"{parts[0]!r} in {'.'.join(parts)} is not a table of this FROM: "
                + did_you_mean(parts[0], [known.alias for known in self._all_relations()])
            )
        names = [name for known in self._all_relations() for name in known.columns or ()]
        raise UnknownNameError(f"unknown column {parts[0]!r}: {did_you_mean(parts[0], names)}")

    def bare(self, name: str) -> exp.Expr | None:
        """The visible column called `name`, here or in a scope around."""
        found = [entry for entry in self.visible if entry.name.lower() == name.lower()]
        if len(found) > 1:
            places = ", ".join(entry.value.sql("spark").replace("`", "") for entry in found)
            raise PlanError(f"column {name!r} is ambiguous: it could be {places}")
        if found:
            return found[0].value.copy()
        if self.opaque:
            return None
        return self.outer.bare(name) if self.outer else None

    def _any_opaque(self) -> bool:
        return self.opaque or (self.outer is not None and self.outer._any_opaque())

    def _all_relations(self) -> list[Relation]:
        return self.relations + (self.outer._all_relations() if self.outer else [])
