"""A qualified statement divided into blocks and the text that runs above them.

Each SELECT is read as groups of inner-joined items (`join_tree`). In every group the base tables
and constant tables become one block, with the conditions it can evaluate; the block takes their
place in FROM, and every reference to one of their columns, also from subqueries, becomes a
reference to the block's output. What cannot move stays where it was.

A group of a single table gains nothing from an eddy and stays with Spark, unless it is the whole
FROM of the outermost SELECT and there is no Spark to leave it to, or the SELECT aggregates a table
that tasks read themselves: then few rows come out. Subqueries that Spark can compute beforehand become
members of a block (`derived_members`), correlated ones where they can be joined (`unnest`); where not,
they stay with Spark as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal as OneOf

import pyarrow as pa
from sqlglot import exp

from eddies.core.expr import Expr
from eddies.core.query import MAX_SOURCES, Aggregation, Output, Query, UserFunction
from eddies.sql.aggregate import aggregation_of
from eddies.sql.ask import Question, question_of
from eddies.sql.block import Draft, Member
from eddies.sql.clauses import capture_expressions, why_above
from eddies.sql.constants import constant_rows, constant_table
from eddies.sql.derive import Deriving, SchemaOf
from eddies.sql.derived_members import MIN_SOURCES, DerivedMembers
from eddies.sql.join_tree import (
    Group,
    Leaf,
    Outer,
    has_subquery,
    in_place_of,
    join_tree,
    relations,
    substitute,
)
from eddies.sql.left_joins import padding_of
from eddies.sql.partial import aggregate_partially
from eddies.sql.plain import is_plain
from eddies.sql.qualify import Qualified
from eddies.sql.rebuild import set_from
from eddies.sql.references import outer_references, without_unused_tables
from eddies.sql.settings import DEFAULT, Settings
from eddies.sql.typed import CannotLower

__all__ = ["Host", "Split", "split"]

Host = OneOf["local", "spark"]
"""Who runs the plan: one process with nothing above the block, or Spark with cells of each block."""


Questions = dict[int, tuple[exp.Expr, Question, Member]]  # by identity of the condition


@dataclass(slots=True)
class Split:
    """The outcome: blocks by name, the tree above (None: the only block is the answer), reasons."""

    blocks: dict[str, Query] = field(default_factory=dict)
    constants: dict[str, pa.Table] = field(default_factory=dict)
    pushdown: dict[str, dict[str, tuple[str, ...]]] = field(default_factory=dict)
    having: dict[str, Expr] = field(default_factory=dict)
    derived: dict[str, str] = field(default_factory=dict)
    derived_trees: dict[str, exp.Query] = field(default_factory=dict)
    above: exp.Query | None = None
    reasons: list[str] = field(default_factory=list)


def split(
    qualified: Qualified,
    schemas: Mapping[str, pa.Schema],
    functions: Sequence[UserFunction],
    aggregate: bool,
    host: Host = "local",
    schema_of: SchemaOf | None = None,
    settings: Settings = DEFAULT,
    direct: frozenset[str] = frozenset(),
    may_ask: bool = False,
    may_pad: frozenset[str] = frozenset(),
) -> Split:
    """Divide `qualified` into blocks and what runs above them."""
    deriving = Deriving(schema_of, schemas, settings)
    splitter = _Splitter(
        qualified.tables,
        schemas,
        functions,
        aggregate,
        host,
        deriving,
        settings,
        direct,
        may_ask,
        may_pad,
    )
    above = splitter.query(qualified.tree, top=True)
    result = splitter.result
    result.derived, result.derived_trees = deriving.texts, deriving.trees
    result.above = above if above is None else without_unused_tables(above)
    return result


class _Splitter:
    def __init__(
        self,
        tables: Mapping[str, str],
        schemas: Mapping[str, pa.Schema],
        functions: Sequence[UserFunction],
        aggregate: bool,
        host: Host,
        deriving: Deriving,
        settings: Settings,
        direct: frozenset[str],
        may_ask: bool,
        may_pad: frozenset[str],
    ) -> None:
        self._may_ask = may_ask
        self._may_pad = may_pad
        self._direct = direct
        self.tables = dict(tables)
        self._schemas = schemas
        self._functions = functions
        self._function_names = frozenset(function.name.lower() for function in functions)
        self._aggregate = aggregate
        self._host = host
        self._deriving = deriving
        self._settings = settings
        self._n_blocks = 0
        self._derived = DerivedMembers(self, deriving, functions, settings, may_ask)
        self.result = Split()

    # -- queries -----------------------------------------------------------------------------------

    def query(self, tree: exp.Query, top: bool = False) -> exp.Query | None:
        """`tree` over blocks; None when it is exactly the only block's output (top only)."""
        clause = tree.args.get("with_")
        for cte in clause.expressions if clause is not None else ():
            written = cte.copy()
            cte.set("this", self.query(cte.this))
            self._deriving.define(written, cte)
        if isinstance(tree, exp.Select):
            return self._select(tree, top)
        if isinstance(tree, exp.SetOperation):
            self.say(f"{_set_operation(tree)} runs above")
            tree.set("this", self.query(tree.this))
            tree.set("expression", self.query(tree.expression))
        elif isinstance(tree, exp.Subquery) and isinstance(tree.this, exp.Query):
            tree.set("this", self.query(tree.this))
        return tree

    def _select(self, select: exp.Select, top: bool) -> exp.Query | None:
        if outside := outer_references(select):
            self.say(f"a subquery correlated by {', '.join(sorted(outside))} stays with Spark")
            return select
        if select.args.get("from_") is None:
            return self._without_from(select) if top and self._host == "local" else select
        root, values = join_tree(select, self._function_names)
        for key, part in select.args.items():
            if key not in ("from_", "joins", "where", "with_"):
                for node in part if isinstance(part, list) else [part]:
                    if isinstance(node, exp.Expr):
                        substitute(node, values)
        if self._host == "spark":
            alone = self._alone(select, root)
            if alone is not None:
                return alone
        whole = top and self._host == "local" and _is_leaf(root)
        drafts = self._group(root, 1 if whole else MIN_SOURCES)
        only = drafts[0] if len(drafts) == 1 and _is_block(root, drafts[0]) else None
        if only is not None and not root.conjuncts:
            answered = self._answer(select, only, top)
            if answered:
                return None if top else _everything(only.name)
            if self._host == "spark":
                merging = self._merge(select, only)
                if merging is not None:
                    set_from(merging, root)
                    self._subqueries(merging)
                    return merging
            capture_expressions(select, only)
        for reason in why_above(select):
            self.say(reason)
        set_from(select, root)
        self._subqueries(select)
        _redirect(select, drafts)
        for draft in drafts:
            self._finish(draft)
        return select

    def _answer(self, select: exp.Select, draft: Draft, top: bool) -> bool:
        """Whether the block alone can answer `select`; then it is finished."""
        output: tuple[Output, ...] | None = None
        aggregation = None
        bare = select.copy()
        bare.set("with_", None)
        bare.set("laterals", None)
        if select.args.get("laterals"):
            return False
        if is_plain(bare, self._function_names):
            try:
                output = _outputs(select, draft)
            except CannotLower as reason:
                self.say(f"a SELECT item runs above: {reason}")
        elif top and self._aggregate:
            aggregation = aggregation_of(bare, draft)
        if output is None and aggregation is None:
            return False
        self._finish(draft, output, aggregation)
        return True

    def _merge(self, select: exp.Select, draft: Draft) -> exp.Select | None:
        """`select` over partial aggregates of the block, which is then finished; None if it cannot."""
        found = aggregate_partially(select, draft, self._function_names)
        if found is None:
            return None
        merging, aggregation, having = found
        self._finish(draft, aggregation=aggregation)
        if having is not None:
            self.result.having[draft.name] = having
        self.say("partial aggregates are merged above")
        return merging

    def _alone(self, select: exp.Select, root: Group) -> exp.Select | None:
        """A SELECT of groups of one table that tasks read themselves, alone or padded by LEFT JOIN,
        grouped where it is read.
        """
        padding, inner = self._padded(root, 1)
        inner = root if inner is None else inner
        leaf = inner.items[0] if len(inner.items) == 1 else None
        member = self._member(leaf) if isinstance(leaf, Leaf) else None
        if member is None or member.table not in self._direct or inner.nullable:
            return None
        if any(has_subquery(condition) for condition in inner.conjuncts):
            return None
        name, asked = f"__eddy_{self._n_blocks}", [member for _, member in padding]
        draft = Draft(name, [member], self._functions, False, self._settings, asked)
        if any(draft.ask(question) is not None for question, _ in padding):
            return None
        if any(draft.take(condition) is not None for condition in inner.conjuncts):
            return None
        merging = self._merge(select, draft)
        if merging is None:
            return None
        self._next_name()
        for relation in draft.padded:
            self.say(f"{relation} pads rows in the block")
        set_from(merging, Group([Leaf(exp.to_table(draft.name))], False))
        self._subqueries(merging)
        return merging

    def _without_from(self, select: exp.Select) -> exp.Query | None:
        """`SELECT 1`: one row of constants, as a block over a table of one row."""
        rows = constant_rows(select)
        names = [item.alias for item in select.expressions]
        columns = [f"c{position}" for position in range(len(names))]  # names may repeat
        table = constant_table(columns, rows[1], self._settings) if rows else None
        if table is None:
            self.say("a SELECT without FROM stays with Spark")
            return select
        member = self._constant("one_row", table)
        draft = Draft(self._next_name(), [member], self._functions, False, self._settings)
        output = tuple(
            Output(name, draft.lowering.lower(_member_column(member, position)).expr, field.type)
            for position, (name, field) in enumerate(zip(names, table.schema, strict=True))
        )
        self._finish(draft, output)
        return None

    # -- groups ------------------------------------------------------------------------------------

    def _group(self, group: Group, least: int) -> list[Draft]:
        """Make the block of `group`, then those of its other items; `group` changes accordingly."""
        padding = self._padding(group)
        members: list[Member] = []
        others: list[Leaf | Outer] = []
        for item in group.items:
            member = self._member(item) if isinstance(item, Leaf) else None
            if member is None:
                others.append(item)
            else:
                members.append(member)
        questions = self._questions(group, members) if members else {}
        if self._deriving.possible:
            members, others = self._derived.of(group, members, others, questions)
        drafts: list[Draft] = []
        asked = [member for _, _, member in questions.values()]
        asked += [member for _, member in padding]
        if len(members) + len(asked) < least:
            others = group.items
        else:
            draft = Draft(
                self._next_name(), members, self._functions, group.nullable, self._settings, asked
            )
            for question, member in padding:
                refused = draft.ask(question)
                assert refused is None, "the block was tried before"
                self.say(f"{member.relation} pads rows in the block")
            group.conjuncts = [c for c in group.conjuncts if not self._asks(draft, c, questions)]
            group.conjuncts = [c for c in group.conjuncts if not self._takes(draft, c)]
            group.items = [Leaf(exp.to_table(draft.name)), *others]
            drafts.append(draft)
        for item in others:
            if isinstance(item, Outer):
                self.say(f"the {item.kind} join runs above")
                drafts += self._group(item.left, MIN_SOURCES)
                drafts += self._group(item.right, MIN_SOURCES)
                continue
            name = item.item.alias_or_name
            base = isinstance(item.item, exp.Table) and name in self.tables
            self.say(f"{name} stays with Spark" + (": nothing is joined to it" if base else ""))
            if isinstance(item.item, exp.Subquery) and isinstance(item.item.this, exp.Query):
                item.item.set("this", self.query(item.item.this))
        return drafts

    def _padding(self, group: Group) -> list[tuple[Question, Member]]:
        """The tables that LEFT JOIN adds to the rows of a group, which is then without them; none if
        not all can be added in the block.
        """
        padding, inner = self._padded(group, MIN_SOURCES)
        if inner is not None:
            group.items, group.conjuncts = inner.items, inner.conjuncts
        return padding

    def _padded(
        self, group: Group, least: int
    ) -> tuple[list[tuple[Question, Member]], Group | None]:
        """The tables that LEFT JOIN adds to a group of at least so many, and that group; none if not
        all of them can be added in the block.
        """
        found = padding_of(group) if self._may_ask and self._may_pad else None
        if found is None:
            return [], None
        questions, inner = found
        items = [item for item in inner.items if isinstance(item, Leaf)]
        members = [member for member in map(self._member, items) if member is not None]
        tables = [member.table for member in members]
        padding: list[tuple[Question, Member]] = []
        for question in questions:
            member = self._member(Leaf(question.item))
            if member is None or member.table not in self._may_pad or member.table in tables:
                return [], None
            tables.append(member.table)
            padding.append((question, member))
        if len(tables) > MAX_SOURCES or not set(tables) <= self._direct:
            return [], None
        asked = [member for _, member in padding]
        trial = Draft("", members, self._functions, False, self._settings, asked)
        if len(members) < least or any(trial.ask(question) is not None for question in questions):
            return [], None
        return padding, inner

    def _questions(self, group: Group, members: list[Member]) -> Questions:
        """The conditions of a group that ask a base table whether it has a matching row."""
        if not self._may_ask or group.nullable:
            return {}
        found: Questions = {}
        for condition in group.conjuncts:
            question = question_of(condition, self._function_names)
            member = self._member(Leaf(question.item)) if question is not None else None
            if question is None or member is None or len(members) + len(found) >= MAX_SOURCES:
                continue
            if len(members) < MIN_SOURCES and not {members[0].table, member.table} <= self._direct:
                continue  # nothing to decide, and rows would come from Spark and go back there
            trial = Draft("", members, self._functions, False, self._settings, [member])
            if self._asks(trial, condition, {id(condition): (condition, question, member)}):
                found[id(condition)] = (condition, question, member)
        return found

    def _asks(self, draft: Draft, condition: exp.Expr, questions: Questions) -> bool:
        """Whether the block asks `condition`."""
        found = questions.get(id(condition))
        if found is None:
            return False
        _, question, _ = found
        outside = {name for part in question.conditions for name in relations(part)}
        if not outside - {question.item.alias} <= draft.members.keys():
            return False
        reason = draft.ask(question)
        if reason is None:
            self.say(f"{question.item.alias} is asked for matches in the block")
        return reason is None

    def _takes(self, draft: Draft, condition: exp.Expr) -> bool:
        if not relations(condition) <= draft.members.keys():
            return False
        if has_subquery(condition):
            self.say("a condition with a subquery runs above")
            return False
        reason = draft.take(condition)
        if reason is not None:
            self.say(f"the condition {_text(condition)} runs above: {reason}")
        return reason is None

    def _member(self, leaf: Leaf) -> Member | None:
        item = leaf.item
        if isinstance(item, exp.Table):
            extras = [value for key, value in item.args.items() if key not in ("this", "alias")]
            renamed = item.args["alias"].args.get("columns")
            table = self.tables.get(item.alias)
            if table is None or renamed or any(extras):
                return None
            return Member(item.alias, table, self._schemas[table])
        rows = constant_rows(item)
        constants = constant_table(*rows, self._settings) if rows else None
        return self._constant(item.alias, constants) if constants is not None else None

    def _constant(self, relation: str, table: pa.Table) -> Member:
        name = f"__const_{len(self.result.constants)}"
        self.result.constants[name] = table
        return Member(relation, name, table.schema)

    def _subqueries(self, select: exp.Select) -> None:
        """Blocks inside the uncorrelated subqueries of conditions and SELECT items."""
        for key, part in select.args.items():
            if key not in ("from_", "joins", "with_"):
                for node in part if isinstance(part, list) else [part]:
                    if isinstance(node, exp.Expr):
                        self._inside(node)

    def _inside(self, node: exp.Expr) -> None:
        for part in list(node.iter_expressions()):
            if isinstance(part, exp.Query) and not isinstance(part, exp.Subquery):
                part.replace(self.query(part) or part)
            else:
                self._inside(part)

    def _finish(
        self,
        draft: Draft,
        output: tuple[Output, ...] | None = None,
        aggregation: Aggregation | None = None,
    ) -> None:
        self.result.blocks[draft.name] = draft.finish(output, aggregation)
        self.result.pushdown[draft.name] = draft.pushdown

    def _next_name(self) -> str:
        self._n_blocks += 1
        return f"__eddy_{self._n_blocks - 1}"

    def say(self, reason: str) -> None:
        """Note why something is done as it is."""
        if reason not in self.result.reasons:
            self.result.reasons.append(reason)


def _is_leaf(root: Group) -> bool:
    return len(root.items) == 1 and isinstance(root.items[0], Leaf)


def _is_block(root: Group, draft: Draft) -> bool:
    item = root.items[0]
    return len(root.items) == 1 and isinstance(item, Leaf) and item.item.name == draft.name


def _outputs(select: exp.Select, draft: Draft) -> tuple[Output, ...]:
    typed = [(item.alias, draft.lowering.lower(item.this)) for item in select.expressions]
    return tuple(Output(name, value.expr, value.type) for name, value in typed)


def _redirect(tree: exp.Expr, drafts: Sequence[Draft]) -> None:
    """Point every column of a block's members, in subqueries too, at the block's output."""
    by_relation = {relation: draft for draft in drafts for relation in draft.relations}
    for node in list(tree.find_all(exp.Column)):
        if node.table in by_relation and not isinstance(node.this, exp.Star):
            node.replace(in_place_of(node, by_relation[node.table].column(node)))


def _member_column(member: Member, position: int) -> exp.Column:
    return exp.column(member.schema.names[position], member.relation)


def _everything(block: str) -> exp.Select:
    return exp.select("*").from_(exp.to_table(block))


def _set_operation(tree: exp.SetOperation) -> str:
    return tree.key.upper() + ("" if tree.args.get("distinct") else " ALL")


def _text(node: exp.Expr) -> str:
    return node.sql("spark").replace("`", "")
