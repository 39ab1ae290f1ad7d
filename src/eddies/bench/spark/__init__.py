"""`eddies bench spark`: eddies on Spark beside Spark SQL and DuckDB, all on the same Parquet files.

`cases` says what is asked, `engines` who answers, `measure` lets them take turns and compares the
answers, `claims` sets ratios beside what we claim, and `run` shows it all. `cold` and `huge` are
measurements of their own: the first query of a process, and memory and time of 100 M rows.
"""
