"""SQL text to core queries, and what runs above them as Spark SQL. See `eddies.sql.plan`."""

from eddies.sql.describe import describe
from eddies.sql.plan import Block, SqlPlan, plan

__all__ = ["Block", "SqlPlan", "describe", "plan"]
