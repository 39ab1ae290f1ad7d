"""The kernel tests again, with the compiler off: the lines a debugger and coverage would see."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def test_kernels_do_the_same_without_the_compiler() -> None:
    names = ("decimals", "groups", "lines", "pages", "remainders", "rows", "searching")
    files = [str(HERE / f"test_kernels_{name}.py") for name in names]
    check = "from eddies.core.kernels.jit import JIT_DISABLED; assert JIT_DISABLED"
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    subprocess.run([sys.executable, "-c", check], env=environment, check=True, timeout=60)
    command = [sys.executable, "-W", "ignore", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["-p", "no:xdist", *files]
    done = subprocess.run(
        command,
        env=environment,
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert " passed" in done.stdout
