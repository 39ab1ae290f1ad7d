"""Measurements of eddies beside other engines. `core` is the eddy alone, in one process.

`data` makes the tables, `cases` says what is joined and what is claimed, `peers` runs the engines,
`timing` and `memory` measure, and `core` puts them together and shows the ratios.
"""
