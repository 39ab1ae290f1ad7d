"""Queries over sources that arrive over time: epochs, the log of a cell, and the cell between epochs.

Spark cuts a stream into epochs and runs each as a job. What must outlive an epoch is here:

* `log`: every row that came to a cell, in files by epoch. The truth; everything else can be made anew.
* `cell`: an eddy that is brought to the state before an epoch and then runs it.
* `keeper`: a process that keeps a cell alive from epoch to epoch, and how a task finds it.
* `windows`: how far back streams are joined, so that log and cell stay bounded.

Nothing here needs Spark. The Spark side is `eddies.spark.stream_task`.
"""
