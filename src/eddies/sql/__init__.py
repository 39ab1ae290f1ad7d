"""SQL text to core queries, and what runs above them as Spark SQL. See `eddies.sql.plan`.

`eddies.sql` is also the function that users call, `eddies.sql(query, tables)`; importing any module
of this package would hide a function of that name, so the package itself can be called.
"""

import sys
from types import ModuleType

from eddies.sql.describe import describe
from eddies.sql.named import named_tables
from eddies.sql.plan import Block, SqlPlan, plan

__all__ = ["Block", "SqlPlan", "describe", "named_tables", "plan"]


class _CallablePackage(ModuleType):
    def __call__(self, *args: object, **settings: object) -> object:
        from eddies.spark.query import sql

        return sql(*args, **settings)  # type: ignore[arg-type]


sys.modules[__name__].__class__ = _CallablePackage
