"""An embedded Spark with good settings, for people who have no cluster at hand.

`session()` starts Spark inside this process (`local[*]`), on a Java it finds itself
(`eddies.spark.java`), quiet and reachable from this machine only. Nothing else in the package
depends on it: everything takes the caller's own `SparkSession`, classic or Connect, just as well.

What differs from Spark's defaults, and why, is written beside each setting in `default_settings`.
The process environment is changed only while the JVM starts (Spark's launcher reads `JAVA_HOME` and
`PYSPARK_PYTHON` from it) and put back afterwards.

Known limitations: one embedded Spark per process, as PySpark itself allows only one; settings that
Spark reads at its start cannot be changed while it runs, and asking for that is an error.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import socket
import sys
import sysconfig
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from eddies.errors import EddiesError, OptionError
from eddies.spark.java import JavaRuntime, find_java, java_home_for_spark

__all__ = ["SessionError", "default_settings", "session"]

_LOCK = threading.Lock()

# Spark measures the batch that it fills after every row, which takes as long as filling it, unless
# there is no bound on its bytes. Then its rows have to be few enough: those of 512 KB each just fit.
_ARROW_BATCH_ROWS = 4_096
_NO_BOUND_BYTES = 2**31 - 1

_SOCKET_NAME_BYTES = 43  # a slash, a dot, a random name and ".sock"
_SOCKET_PATH_BYTES = 104  # the least that a system allows, its closing zero included

# Java compiles what runs often a second time, with great care. By default that begins so early that in
# its first minutes most of a short query's processor time goes there: ten times as many runs lose
# nothing in long ones. A Java that has other options than HotSpot's ignores these.
_JAVA_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)

_MIB = 1024 * 1024
_DRIVER_MEMORY_BYTES_MIN = 1024 * _MIB
_DRIVER_MEMORY_BYTES_MAX = 8 * 1024 * _MIB

# Errors only. The gateway that PySpark starts sets the level to WARN, with a notice, unless its own
# logger has a level.
_LOG_SETTINGS = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


class SessionError(EddiesError):
    """The embedded Spark cannot be started."""


def session(**conf: object) -> SparkSession:
    """The embedded Spark of this process; starts it if there is none.

    `conf` holds Spark settings, which have dots in their names, so they are passed as
    `session(**{"spark.sql.shuffle.partitions": 8})`; they win over `default_settings()`. If a
    session runs already, it is returned, with those of `conf` set that can be set while it runs.

    The first call takes seconds: it starts a JVM. Close it with `.stop()`, or let the process end.
    """
    wanted = {name: _as_spark_text(name, setting) for name, setting in conf.items()}
    with _LOCK:
        running = SparkSession.getActiveSession()
        if running is not None:
            return _adjust(running, wanted)
        return _start(wanted)


def default_settings(n_cores: int | None = None) -> dict[str, str]:
    """The settings of `session()` where they differ from Spark's own defaults."""
    n_cores = n_cores or os.cpu_count() or 1
    return {
        "spark.app.name": "eddies",
        "spark.master": "local[*]",
        # Loopback only: an embedded engine is nobody else's business, and a host name that does not
        # resolve (laptops, containers) cannot break the start.
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": f"{_driver_memory_bytes() // _MIB}m",
        # One task per core and shuffle; the default of 200 is meant for clusters.
        "spark.sql.shuffle.partitions": str(n_cores),
        "spark.default.parallelism": str(n_cores),
        # The same instant prints the same on every machine, and equals what Arrow stores.
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(_ARROW_BATCH_ROWS),
        "spark.sql.execution.arrow.maxBytesPerBatch": str(_NO_BOUND_BYTES),
        # The code that Spark makes for a stage has the stage's number in it. Numbers follow from which
        # broadcast is ready first, so the same code would be made, and compiled by Java, anew.
        "spark.sql.codegen.useIdInClassName": "false",
        # Spark writes the plan of every query down for its web page, at length in its default form,
        # whether or not there is a page. What `DataFrame.explain` prints is not changed by this.
        "spark.sql.ui.explainMode": "simple",
        # Workers keep their imported modules and compiled kernels from task to task.
        "spark.python.worker.reuse": "true",
        # Workers are forked from a process that has the engine in memory already.
        "spark.python.daemon.module": "eddies.spark.daemon",
        # Every epoch of a streaming query writes two small files into its checkpoint. Without native
        # Hadoop libraries, Spark's usual way starts `chmod` and `ls` processes for each, several
        # times; this one renames, too. Local files have Hadoop's checksums already.
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing"
            ".FileSystemBasedCheckpointFileManager"
        ),
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
        # What this process can import, its workers can: modules beside a script or a test too.
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(_added_import_folders()),
    }


def _start(wanted: dict[str, str]) -> SparkSession:
    if "SPARK_REMOTE" in os.environ:
        raise SessionError(
            f"SPARK_REMOTE={os.environ['SPARK_REMOTE']} asks for Spark Connect, but session() "
            "starts an embedded Spark: unset it, or make the session yourself with "
            "SparkSession.builder.remote(...).getOrCreate() and pass it as spark=..."
        )
    java = find_java()
    for reason in java.passed_over:
        warnings.warn(
            f"{reason}. Using Java {java.version} from {java.found_in}.",
            RuntimeWarning,
            stacklevel=4,
        )
    folder = Path(tempfile.mkdtemp(prefix="eddies-spark-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    log_file = folder / "log4j2.properties"
    log_file.write_text(_LOG_SETTINGS)
    java_options = [f"-Dlog4j2.configurationFile={log_file.as_uri()}", *_JAVA_OPTIONS]
    settings = default_settings() | {"spark.driver.defaultJavaOptions": " ".join(java_options)}
    settings |= _sockets_in(folder, (settings | wanted)["spark.master"])
    builder = SparkSession.builder
    for name, setting in (settings | wanted).items():
        builder = builder.config(name, setting)
    with _environment(_launch_environment(java, folder)):
        try:
            return builder.getOrCreate()
        except Exception as error:
            raise SessionError(
                f"Spark did not start on Java {java.version} from {java.found_in} "
                f"({java.executable}): {error}"
            ) from error


def _sockets_in(folder: Path, master: str) -> dict[str, str]:
    """Let Java and Python talk over sockets of the machine, which lie in a folder.

    Over TCP they wait 40 ms a task: small packets are held back until those before are confirmed. The
    folder is one that is removed at the end, because Spark leaves the sockets there. What its path may
    be is limited by the system, on some to a hundred letters; then they talk over TCP. So they do on a
    cluster, where executors would look for the folder on machines of their own.
    """
    is_local = re.match(r"local(\[|$)", master) is not None
    is_short = len(os.fsencode(folder)) + _SOCKET_NAME_BYTES < _SOCKET_PATH_BYTES
    if not (is_local and is_short and hasattr(socket, "AF_UNIX")):
        return {}
    return {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": str(folder),
    }


def _launch_environment(java: JavaRuntime, folder: Path) -> dict[str, str]:
    environment = {
        "JAVA_HOME": str(java_home_for_spark(java, folder)),
        # Without it Spark looks up the name on the network and warns about loopback.
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    # Spark would start workers with whatever `python3` is on PATH, which has other packages.
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        environment[name] = os.environ.get(name, sys.executable)
    return environment


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _adjust(running: SparkSession, wanted: Mapping[str, str]) -> SparkSession:
    """Sets what can be set on a running session; refuses the rest unless it is so already."""
    for name, setting in wanted.items():
        if running.conf.get(name, None) == setting:
            continue
        if not running.conf.isModifiable(name):
            raise OptionError(
                f"{name}={setting} must be set before Spark starts, and it runs already with "
                f"{running.conf.get(name, 'its default')}: call .stop() on that session first"
            )
        running.conf.set(name, setting)
    return running


def _as_spark_text(name: str, setting: object) -> str:
    if not name.startswith("spark."):
        raise OptionError(
            f"{name!r} is no Spark setting: their names start with 'spark.', for example "
            'session(**{"spark.sql.shuffle.partitions": 8})'
        )
    if isinstance(setting, bool):
        return "true" if setting else "false"
    if isinstance(setting, str | int | float):
        return str(setting)
    raise OptionError(
        f"{name} must be text, a number or a truth value, not {type(setting).__name__}"
    )


def _added_import_folders() -> list[str]:
    """`sys.path` without what every interpreter of this installation has anyway."""
    installed = {
        sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")
    }
    folders = dict.fromkeys(Path(entry or ".").absolute() for entry in sys.path)
    return [
        str(folder)
        for folder in folders
        if folder.is_dir() and installed.isdisjoint((str(folder), str(folder.parent)))
    ]


def _driver_memory_bytes() -> int:
    """A quarter of what this process may use: the JVM shares the machine with Python workers."""
    quarter = _usable_memory_bytes() // 4
    return max(_DRIVER_MEMORY_BYTES_MIN, min(_DRIVER_MEMORY_BYTES_MAX, quarter))


def _usable_memory_bytes() -> int:
    installed_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit_file = Path(
        "/sys/fs/cgroup/memory.max"
    )  # of a container; says "max" if there is no limit
    if limit_file.is_file():
        limit = limit_file.read_text().strip()
        if limit.isdigit():
            return min(installed_bytes, int(limit))
    return installed_bytes
