"""Compiled loops over plain arrays. Nothing in here knows Arrow, queries, sources or policies.

One file per job: `lines`, `remainders` and `slots` (the index), `words` (keys as 64-bit words),
`gather` (rows by id), `ranges` (band and block joins), `bloom` (keys that are surely not in an index),
`sums` (exact sums of integers). `jit` sets the compile options in one place and `intrinsics` holds the
few machine instructions Python has no word for. Sizes are the caller's duty: a kernel never checks a
bound, and an output array that is too small corrupts memory. Each kernel has a slow twin in
`tests/support/naive.py`.
"""
