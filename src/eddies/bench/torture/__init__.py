"""`eddies bench torture`: joins on which engines fall over, each engine in a process of its own.

`shapes` says what is asked, `data` and `film` make the tables, `engines` runs one engine inside the
process that `child` is, `watchdog` starts that process and ends it when it takes too much time or
memory, and `run` shows who finished.
"""
