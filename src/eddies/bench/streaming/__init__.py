"""`eddies bench streaming`: epochs, sustained rate, early results and windows on Spark.

`generated` makes the rows, `epochs` runs a query over them and times its epochs, `early` measures when
results of slow sources come, `windows` runs a query whose state must not grow, `run` shows everything.
"""
