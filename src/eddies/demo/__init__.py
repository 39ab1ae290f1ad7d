"""A live join of five tables on embedded Spark, while the data changes under way.

`star` makes the data and states the query, `task` is what runs inside Spark's tasks, `screen` shows
what the eddies report, and `show` puts them together.
"""

from eddies.demo.show import main

__all__ = ["main"]
