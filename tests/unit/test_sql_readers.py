"""Who reads a block: how often, WITH tables spelled out, and whether its rows are sorted in the end."""

from __future__ import annotations

import pytest
from sqlglot import exp

from eddies.sql.parse import parse
from eddies.sql.readers import read_often, sorted_block


def trees(*texts: str) -> list[exp.Query]:
    return [parse(text) for text in texts]


@pytest.mark.parametrize(
    ("texts", "often"),
    [
        (["SELECT * FROM a"], set()),
        (["SELECT * FROM a JOIN b ON a.k = b.k", "SELECT * FROM b"], {"b"}),
        (["SELECT * FROM a x JOIN a y ON x.k = y.k"], {"a"}),
        (["WITH r AS (SELECT * FROM a) SELECT * FROM r"], set()),
        (["WITH r AS (SELECT * FROM a) SELECT * FROM r WHERE k = (SELECT max(k) FROM r)"], {"a"}),
        (["WITH r AS (SELECT * FROM a) SELECT * FROM b"], set()),
        (["WITH r AS (SELECT * FROM a), q AS (SELECT * FROM r, r x) SELECT * FROM q"], {"a"}),
        (["SELECT * FROM (WITH r AS (SELECT * FROM a) SELECT * FROM r, r x) q, b"], {"a"}),
        (["WITH a AS (SELECT * FROM a) SELECT * FROM a"], set()),
        (["WITH a AS (SELECT * FROM a) SELECT * FROM a, a b"], {"a"}),
    ],
)
def test_what_is_read_more_than_once(texts: list[str], often: set[str]) -> None:
    assert read_often(trees(*texts), ["a", "b", "c"]) == often


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("SELECT * FROM a ORDER BY k", "a"),
        ("SELECT k, count(*) FROM a x WHERE k > 1 GROUP BY k HAVING k < 9 ORDER BY k", "a"),
        ("SELECT * FROM a", None),
        ("SELECT * FROM a ORDER BY k LIMIT 3", None),
        ("SELECT * FROM a, b ORDER BY a.k", None),
        ("SELECT * FROM (SELECT * FROM a) q ORDER BY k", None),
        ("SELECT * FROM a UNION ALL SELECT * FROM b ORDER BY k", None),
    ],
)
def test_whose_rows_are_sorted(text: str, name: str | None) -> None:
    assert sorted_block(parse(text)) == name
    assert sorted_block(None) is None
