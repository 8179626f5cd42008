"""Make the pictures of README and docs again: charts of the report, and screens of the explorer.

python benchmarks/pictures.py RELEASE

RELEASE is a checkout of the CUDA-L1 release. Its kernels and the rows of docs/weak-tasks, docs/h100
and docs/h200 make a lake in a temporary folder. The charts are those of `store report`, and the
screens those of `store explore` in Chromium.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import store
from store.explore.page import charts
from store.explore.page.render import read_style
from store.explore.report import build_report

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
MEASURED = ("docs/weak-tasks", "docs/h100", "docs/h200")
CHARTS = {"claims.svg": "claims_points"}
"""Names of pictures, and the answers of the report that have their charts."""
SCREENS = {
    "explore-kernel.png": "/kernel/{kernel}?tab=timings&clock=gpu",
}
"""Names of pictures, and addresses of pages; the kernel is the fastest of a task in the lake."""
SIZE = {"width": 1000, "height": 820}


def make_lake(folder: Path, release: Path) -> None:
    """Make the lake that the pictures show."""
    imports = [["starter"], ["cuda-l1", str(release)], ["published"]]
    imports += [["measured", "--own", str(ROOT / rows)] for rows in MEASURED]
    for command in imports:
        done = [sys.executable, "-m", "store", "import", *command, "--lake", str(folder), "-q"]
        subprocess.run(done, check=True, cwd=ROOT)


def write_charts(lake: Path) -> None:
    """Write the charts of the report as files of their own."""
    style = read_style("colours") + read_style("charts")
    with store.open(str(lake)) as opened:
        drawn = {answer.name: answer.svg for answer in build_report(opened).answers}
    for picture, name in CHARTS.items():
        text = charts.make_standalone(drawn[name], style)
        (IMAGES / picture).write_text(text, "utf-8", newline="\n")


def write_screens(lake: Path) -> None:
    """Write screens of pages, as a reader with a wide window and light colors sees them."""
    import explore
    from playwright.sync_api import sync_playwright

    with store.open(str(lake)) as opened:
        best = opened.sql("FROM best_kernels ORDER BY speedup_low DESC, kernel_id LIMIT 1").one()
    assert best is not None
    with explore.run_server(str(lake)) as url, sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport=SIZE, color_scheme="light")  # type: ignore[arg-type]
        for picture, address in SCREENS.items():
            page.goto(url + address.format(kernel=best["kernel_id"]))
            page.screenshot(path=str(IMAGES / picture))
        browser.close()


def main() -> None:
    """Write all pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("release", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lake = Path(folder) / "lake"
        make_lake(lake, asked.release)
        write_charts(lake)
        write_screens(lake)


if __name__ == "__main__":
    main()
