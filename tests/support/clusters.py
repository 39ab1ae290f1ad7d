"""Other kinds of Spark for the tests: a standalone cluster on loopback, and Spark Connect.

`EDDIES_TEST_SPARK` names the Spark that the `spark` fixture uses: unset, an embedded one; a master's
address; or `connect` for `remote("local[2]")`.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from eddies.spark.java import find_java, java_home_for_spark

__all__ = ["JAVA_OPTIONS", "SETTINGS", "SPARK_VARIABLE", "cluster", "make_session"]

SPARK_VARIABLE = "EDDIES_TEST_SPARK"
# Tests run each piece of Spark's code a few times, so what Java's second compiler makes of it never
# pays: with it, Java takes more than twice the processor time. Nor does a collector with threads.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SETTINGS = {
    "spark.sql.shuffle.partitions": 3,
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    "spark.executor.extraJavaOptions": JAVA_OPTIONS,
}
_START_S = 90


def make_session() -> SparkSession:
    """The Spark that `EDDIES_TEST_SPARK` asks for."""
    import eddies

    wanted = os.environ.get(SPARK_VARIABLE, "")
    if wanted == "connect":
        return _connect()
    # The 4: tasks that fail are tried again, as on a cluster.
    master = wanted or "local[2,4]"
    return eddies.session(**SETTINGS, **{"spark.master": master, "spark.executor.memory": "700m"})


def _connect() -> SparkSession:
    folder = Path(tempfile.mkdtemp(prefix="eddies-connect-"))
    os.environ["JAVA_HOME"] = str(java_home_for_spark(find_java(), folder))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    builder = SparkSession.builder.remote("local[2]")
    settings = {
        **SETTINGS,
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.connect.grpc.binding.address": "127.0.0.1",
    }
    for name, setting in settings.items():
        builder = builder.config(name, str(setting))
    return builder.getOrCreate()


@contextmanager
def cluster(n_workers: int = 2, n_cores: int = 1) -> Iterator[str]:
    """A master and `n_workers` workers of `n_cores` each on loopback; yields the master's address."""
    with tempfile.TemporaryDirectory(prefix="eddies-cluster-") as name:
        folder = Path(name)
        started: list[subprocess.Popen[bytes]] = []
        try:
            arguments = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
            log = _start(folder, "master.Master", arguments, started)
            address = _wait_for(log, r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")
            for number in range(n_workers):
                work = folder / f"work-{number}"
                arguments = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
                arguments += [
                    "--cores",
                    str(n_cores),
                    "--memory",
                    "900m",
                    "--work-dir",
                    str(work),
                    address,
                ]
                log = _start(folder, "worker.Worker", arguments, started)
                _wait_for(log, r"(Successfully registered with master)")
            yield address
        finally:
            for process in reversed(started):
                process.send_signal(signal.SIGTERM)
            for process in started:
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()


def _start(
    folder: Path, kind: str, arguments: list[str], started: list[subprocess.Popen[bytes]]
) -> Path:
    home = Path(pyspark.__file__).parent
    log = folder / f"{kind}-{len(started)}.log"
    settings = folder / "log4j2.properties"
    settings.write_text(
        "rootLogger.level = info\nrootLogger.appenderRef.stderr.ref = stderr\n"
        "appender.stderr.type = Console\nappender.stderr.name = stderr\n"
        "appender.stderr.target = SYSTEM_ERR\nappender.stderr.layout.type = PatternLayout\n"
        "appender.stderr.layout.pattern = %m%n\n"
    )
    environment = os.environ | {
        "JAVA_HOME": str(java_home_for_spark(find_java(), folder)),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": f"{JAVA_OPTIONS} -Dlog4j2.configurationFile={settings.as_uri()}",
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *arguments],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
        )
    started.append(process)
    return log


def _wait_for(log: Path, pattern: str) -> str:
    until = time.monotonic() + _START_S
    while time.monotonic() < until:
        found = re.search(pattern, log.read_text())
        if found:
            return found[1]
        time.sleep(0.2)
    raise AssertionError(f"not started within {_START_S} s:\n{log.read_text()[-2000:]}")
