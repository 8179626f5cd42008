"""The benchmark that compares the judge's clocks with a plain process: copies and tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from agreement_plain import compare, copy_imports, print_tables


def test_an_operator_is_copied_with_what_it_imports_and_without_the_package(tmp_path: Path) -> None:
    ops = tmp_path / "src" / "liger_kernel" / "ops"
    ops.mkdir(parents=True)
    (ops / "__init__.py").write_text("from liger_kernel.ops.other import other\n")
    (ops / "other.py").write_text("other = 1\n")
    (ops / "relu.py").write_text("import math\nfrom liger_kernel.utils import names\n")
    (ops.parent / "utils.py").write_text("names = ()\n")
    copy_imports(tmp_path / "src", "liger_kernel.ops.relu", tmp_path / "out")
    copied = {f.relative_to(tmp_path / "out").as_posix() for f in (tmp_path / "out").rglob("*.py")}
    assert copied == {"liger_kernel/ops/relu.py", "liger_kernel/utils.py"}


def make_line(kernel: str, judged_ms: float, *, disturbed: bool) -> dict[str, Any]:
    """Return a line of results: eager takes 2 ms, the kernel 1 and 4 ms in the plain processes."""
    session = {
        "clock": "throughput cold",
        "calls": 3,
        "disturbed": disturbed,
        "ms": {"eager": 2.0, "kernel": judged_ms},
    }
    plain = [{"ms": {"throughput cold": {"eager": 2.0, "kernel": ms}}} for ms in (1.0, 4.0)]
    return {
        "kernel": kernel,
        "round": 0,
        "before": plain[0],
        "after": plain[1],
        "sessions": [session],
        "load": 0.5,
        "contended": False,
    }


def test_the_table_has_ratios_and_says_what_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [
        make_line("a/quiet", 2.0, disturbed=False),
        make_line("a/disturbed", 3.0, disturbed=True),
        {"kernel": "a/wrong", "round": 1, "left_out": "the judge: incorrect"},
    ]
    comparisons, left_out = compare(lines)
    assert [each.ratio("kernel") for each in comparisons] == [1.0, 1.5]
    assert [each.plain_ratio("kernel") for each in comparisons] == [4.0, 4.0]
    print_tables(comparisons, left_out)
    printed = capsys.readouterr().out
    assert "| throughput cold | 2 | 50% | 1.00 [1.00, 1.00] | 1.25 [1.12, 1.38] |" in printed
    assert "- a/wrong, round 2: the judge: incorrect" in printed
