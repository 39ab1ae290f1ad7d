"""One block in the making: its sources, the conditions it took, and the columns asked of it.

The text above asks for columns (`column`) and whole expressions (`capture`) while it is rewritten;
`finish` then knows what the block has to deliver and which columns it has to read for that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from eddies.core.expr import Column, Expr, Literal, columns_of, sources_of
from eddies.core.query import (
    MAX_SOURCES,
    Aggregation,
    Equality,
    Exists,
    Output,
    Query,
    Source,
    UserFunction,
)
from eddies.errors import PlanError, UnsupportedError
from eddies.sql.ask import Question
from eddies.sql.classify import classify
from eddies.sql.constants import truth
from eddies.sql.imply import implied
from eddies.sql.lower import Lowering
from eddies.sql.names import Names
from eddies.sql.parse import DIALECT
from eddies.sql.references import without_qualifiers
from eddies.sql.scope import column
from eddies.sql.settings import DEFAULT, Settings
from eddies.sql.typed import CannotLower, Typed

__all__ = ["Draft", "Member"]


@dataclass(frozen=True, slots=True)
class Member:
    """A relation that takes part in a block: its name, the table it reads, all its columns."""

    relation: str
    table: str
    schema: pa.Schema


class Draft:
    """A block being collected: first `take`, then `column` and `capture`, then `finish`."""

    def __init__(
        self,
        name: str,
        members: Sequence[Member],
        functions: Sequence[UserFunction],
        nullable: bool,
        settings: Settings = DEFAULT,
        asked: Sequence[Member] = (),
    ) -> None:
        if len(members) + len(asked) > MAX_SOURCES:
            raise UnsupportedError(
                f"{len(members) + len(asked)} sources in one join: a block has at most {MAX_SOURCES}"
            )
        self.name = name
        self.nullable = nullable
        self.members = {member.relation: member for member in members}
        self._asked = {member.relation: member for member in asked}
        self.padded: dict[str, Member] = {}
        self._questions: dict[str, tuple[list[Expr], Exists]] = {}
        types = {member.relation: _types(member.schema) for member in (*members, *asked)}
        self.lowering = Lowering(types, functions, settings)
        self.settings = settings
        self._functions = tuple(functions)
        self._conditions: list[Expr] = []
        self._never = False
        self._pushdown: dict[str, dict[str, None]] = {}
        self._outputs: dict[Expr, Output] = {}
        self._names = Names()

    def take(self, condition: exp.Expr) -> str | None:
        """Take `condition` into the block; otherwise the reason why it runs above."""
        try:
            lowered = self.lowering.predicate(condition)
            weaker = {part: self.lowering.predicate(part) for part in implied(condition)}
        except CannotLower as reason:
            return str(reason)
        if sources_of(lowered):
            self._conditions += [*weaker.values(), lowered]
            for part in (*weaker, condition):
                self._push_down(part)
            return None
        known = truth(lowered)
        if known is None:
            return "it fails when it is evaluated"
        self._never = self._never or not known
        return None

    def ask(self, question: Question) -> str | None:
        """Take `question` into the block; otherwise the reason why it runs above."""
        relation = question.item.alias
        try:
            lowered = [self.lowering.predicate(part) for part in question.conditions]
        except CannotLower as reason:
            return str(reason)
        selections, equalities, filters = classify(lowered, self.lowering.compared, self._functions)
        if any(s.expensive or sources_of(s.expr) != {relation} for s in selections):
            return "it has an expensive condition, or one on other rows alone"
        if not all(sources_of(part) for part in lowered):
            return "it has a constant condition"
        sides = [_outer_first(equality, relation) for equality in equalities]
        if not sides or any(side is None for side in sides):
            return "it is not equal to the rows around it in any column"
        self._questions[relation] = (
            [selection.expr for selection in selections],
            Exists(
                relation,
                question.negated,
                tuple(side for side in sides if side is not None),
                tuple(predicate.expr for predicate in filters),
                question.null_aware,
                question.padded,
            ),
        )
        for part in question.conditions:
            self._push_down(part)
        if question.padded:
            self.padded[relation] = self._asked[relation]
        return None

    def _push_down(self, condition: exp.Expr) -> None:
        """Note a condition over one member that Spark can check too, with no function of the user."""
        relations = {node.table for node in condition.find_all(exp.Column)}
        own = {function.name.lower() for function in self._functions}
        called = {node.name.lower() for node in condition.find_all(exp.Anonymous)}
        if len(relations) == 1 and own.isdisjoint(called):
            bare = without_qualifiers(condition)
            bare = exp.paren(bare, copy=False) if isinstance(bare, exp.Or) else bare
            text = bare.sql(DIALECT, identify=True)
            self._pushdown.setdefault(relations.pop(), {})[text] = None

    @property
    def relations(self) -> Mapping[str, Member]:
        """Whatever has columns in the block's results: members, and those that LEFT JOIN adds."""
        return {**self.members, **self.padded}

    @property
    def pushdown(self) -> dict[str, tuple[str, ...]]:
        """By member: its own conditions as Spark SQL over its bare column names."""
        return {relation: tuple(texts) for relation, texts in self._pushdown.items()}

    def column(self, node: exp.Column) -> exp.Column:
        """The block's output that carries column `node`."""
        member = self.relations[node.table]
        type = member.schema.field(node.name).type
        return self._output(Typed(Column(node.table, node.name), type), node.name)

    def capture(self, node: exp.Expr, wanted: str) -> exp.Column | None:
        """The block's output that carries `node`, or None when it has to be computed above."""
        try:
            lowered = self.lowering.lower(node)
        except CannotLower:
            return None
        return self._output(lowered, wanted) if sources_of(lowered.expr) else None

    def _output(self, typed: Typed, wanted: str) -> exp.Column:
        if typed.expr not in self._outputs:
            name = self._names.unique(wanted)
            self._outputs[typed.expr] = Output(name, typed.expr, typed.type)
        return column(self.name, self._outputs[typed.expr].name)

    def finish(
        self,
        output: tuple[Output, ...] | None = None,
        aggregation: Aggregation | None = None,
    ) -> Query:
        """The block as a query; `output` or `aggregation` instead of the columns asked for."""
        if output is None:
            output = tuple(self._outputs.values())
        if not output:  # only the number of rows matters, but a row needs a column
            output = (Output("one", Literal(1, pa.int32()), pa.int32()),)
        read: dict[Column, None] = {}
        answer = [item.expr for item in output]
        if aggregation is not None:
            answer = [item.expr for item in aggregation.groups]
            answer += [item.arg for item in aggregation.aggregates if item.arg is not None]
        own = [expr for chosen, _ in self._questions.values() for expr in chosen]
        exists = tuple(question for _, question in self._questions.values())
        for question in exists:
            own += [side for e in question.equalities for side in (e.left, e.right)]
            own += question.filters
        for expr in (*self._conditions, *own, *answer):
            read.update(dict.fromkeys(columns_of(expr)))
        selections, equalities, filters = classify(
            self._conditions, self.lowering.compared, self._functions
        )
        chosen, _, _ = classify(
            [expr for some, _ in self._questions.values() for expr in some],
            self.lowering.compared,
            self._functions,
        )
        asked = [member for name, member in self._asked.items() if name in self._questions]
        return Query(
            sources=tuple(_pruned(member, read) for member in (*self.members.values(), *asked)),
            selections=(*selections, *chosen),
            equalities=equalities,
            filters=filters,
            output=output if aggregation is None else (),
            aggregation=aggregation,
            functions=self._functions,
            never=self._never,
            exists=exists,
        )


def _outer_first(equality: Equality, relation: str) -> Equality | None:
    """The equality with its side of `relation` on the right; None if not just one side is."""
    sides = [sources_of(side) == {relation} for side in (equality.left, equality.right)]
    if sides == [False, True] and relation not in sources_of(equality.left):
        return equality
    if sides == [True, False] and relation not in sources_of(equality.right):
        return Equality(equality.right, equality.left, equality.type)
    return None


def _types(schema: pa.Schema) -> Mapping[str, pa.DataType]:
    return {field.name: field.type for field in schema}


def _pruned(member: Member, read: Mapping[Column, None]) -> Source:
    names = {column.name for column in read if column.source == member.relation}
    if duplicated := [name for name in names if len(member.schema.get_all_field_indices(name)) > 1]:
        raise PlanError(f"table {member.table} has two columns {duplicated[0]!r}: rename one")
    fields = [field for field in member.schema if field.name in names]
    return Source(member.relation, member.table, pa.schema(fields))
