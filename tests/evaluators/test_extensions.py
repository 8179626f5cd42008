"""An extension that could not be compiled: the compiler is asked once, until the sources change."""

from __future__ import annotations

import multiprocessing
import os
import shutil
from pathlib import Path

import pytest

# Each answer comes from a process of its own, forked from one that has imported torch.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["torch.utils.cpp_extension", "evaluators.worker.loop"])

GOOD, BAD = 'extern "C" int f() { return 1; }', 'extern "C" int f() { return undeclared; }'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a compiler that counts its calls in `calls`, and an empty `build`."""
    real = shutil.which(os.environ.get("CXX", "c++"))
    compiler = tmp_path / "compiler"
    compiler.write_text(
        f'#!/bin/sh\ncase "$*" in *" -c "*) echo >> {tmp_path}/calls;; esac\nexec {real} "$@"\n',
        "utf-8",
    )
    compiler.chmod(0o700)
    (tmp_path / "build").mkdir()
    return tmp_path


def answer(folder: Path, source: str, compiler: Path | None = None) -> str:
    """Return what a fresh process says that builds an extension."""
    with FORKS.Pool(1) as fresh:
        return fresh.apply(build, (folder / "build", source, compiler or folder / "compiler"))


def build(folder: Path, source: str, compiler: Path) -> str:
    """Build an extension in this process, which no other build has changed."""
    from torch.utils.cpp_extension import load_inline

    from evaluators.worker.loop import remember_failures

    os.environ["CXX"] = str(compiler)
    remember_failures()
    try:
        load_inline(
            "e", source, build_directory=str(folder), no_implicit_headers=True,
            is_python_module=False,
        )  # fmt: skip
    except RuntimeError as error:
        return str(error)
    return "built"


def calls(folder: Path) -> int:
    return len((folder / "calls").read_text("utf-8").splitlines())


@pytest.mark.slow
def test_the_same_sources_fail_with_the_same_words(folder: Path) -> None:
    first = answer(folder, BAD)
    assert "undeclared" in first
    asked = calls(folder)
    assert answer(folder, BAD) == first
    assert calls(folder) == asked


@pytest.mark.slow
def test_other_sources_are_compiled(folder: Path) -> None:
    answer(folder, BAD)
    asked = calls(folder)
    assert answer(folder, GOOD) == "built"
    assert calls(folder) > asked


def test_what_the_machine_is_to_blame_for_is_tried_again(folder: Path) -> None:
    killed = folder / "killed"
    killed.write_text(
        '#!/bin/sh\ncase "$*" in *" -c "*) echo "c++: fatal error: Killed signal terminated '
        f'program cc1plus" >&2; exit 1;; esac\nexec {folder}/compiler "$@"\n',
        "utf-8",
    )
    killed.chmod(0o700)
    assert "Killed" in answer(folder, GOOD, killed)
    assert not list((folder / "build").glob("failed.json"))
    assert answer(folder, GOOD) == "built"


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("record", ["", "[]", '{"made_of": "x"}', "\x00\x01"])
def test_a_record_that_is_none_is_no_hindrance(folder: Path, record: str) -> None:
    (folder / "build" / "failed.json").write_text(record, "utf-8")
    assert answer(folder, GOOD) == "built"
