"""The explorer and the report in a browser: no error, no foreign request, accessible."""

from __future__ import annotations

import contextlib
import shutil
import socket
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import builders as b
import pytest
from explorer_lakes import crawl, open_client, write_lake

import store
from store.explore.report import build_report, write_report
from store.explore.server import app
from store.explore.server.app import make_app
from store.lake.location import Location

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
AXE = Path.home() / ".cache" / "kernel-flywheel-tests" / "node_modules" / "axe-core" / "axe.min.js"
"""npm install --prefix ~/.cache/kernel-flywheel-tests axe-core"""
OPTIONS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
)  # fmt: skip
WIDTHS = {"wide": 1280, "tablet": 768, "phone": 390}

if BROWSER is None:
    pytest.skip("there is no Chromium", allow_module_level=True)
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a lake with rows for every page."""
    return write_lake(tmp_path_factory.mktemp("browser") / "lake")


@pytest.fixture(scope="module")
def url(lake: Path) -> Iterator[str]:
    """Yield the address of a real server of that lake."""
    with run_server(lake) as address:
        yield address


@contextmanager
def run_server(lake: Path) -> Generator[str]:
    """Run a server of a lake in a thread; yield its address."""
    import uvicorn

    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()  # requests wait until the server has started
        app = make_app(Location.of(str(lake)), None, timeout=300.0)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture(scope="module")
def empty_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of a real server of a lake without rows."""
    folder = tmp_path_factory.mktemp("empty") / "lake"
    store.writer(str(folder), author="tests").close()
    with run_server(folder) as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Yield a browser with a new profile."""
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=BROWSER, args=list(OPTIONS))
        yield opened
        opened.close()


@contextmanager
def open_page(browser: Any, url: str, width: int = 1280, scheme: str = "light") -> Generator[Any]:
    """Yield a page; fails if it logs an error or asks another host."""
    context = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme)
    page = context.new_page()
    page.set_default_timeout(120_000)  # other work may run on this host
    wrong: list[str] = []
    page.on("console", lambda m: wrong.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda r: None if r.url.startswith(url) else wrong.append(r.url))
    try:
        yield page
    finally:
        context.close()  # a server waits for the connections of its pages
    assert wrong == []


@pytest.mark.slow
def test_a_reader_filters_sorts_and_goes_back(browser: Any, url: str) -> None:
    with open_page(browser, url) as page:
        page.goto(f"{url}/leaderboards")
        page.get_by_label("Baseline").select_option("compile")  # applies at once
        page.wait_for_url("**baseline=compile*")
        assert "suite=" not in page.url, "empty fields stay out of the address"
        page.get_by_role("link", name="median").first.click()
        page.wait_for_url("**sort.ranking=*")
        assert page.locator("th[aria-sort=descending]").count() == 1
        page.go_back()
        page.wait_for_url(lambda address: "sort." not in address and "compile" in address)
        page.go_back()
        page.wait_for_url(f"{url}/leaderboards")
        page.goto(f"{url}/task/{b.task('square')['task_id']}")
        page.locator("#attempts tbody th a").first.click()
        page.get_by_role("link", name="Changes").click()
        page.locator("tr.added").wait_for()
        assert page.locator("tr.added").count() == 1


@pytest.mark.slow
def test_a_reader_decides_on_a_finding(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(app.TOKEN, "correct horse battery")
    with (
        run_server(write_lake(tmp_path / "lake")) as address,
        open_page(browser, address) as page,
    ):
        page.goto(f"{address}/suspects")
        finding = page.locator("#findings li").first
        finding.get_by_label("Why").fill("It returns an earlier answer.")
        finding.get_by_label("Token").fill("correct horse battery")
        finding.get_by_role("button", name="Confirm").click()
        page.wait_for_url("**/suspects?")
        assert page.locator("#findings li").count() == 0
        page.get_by_label("Decision").select_option("confirmed")
        page.wait_for_url("**standing=confirmed*")
        assert "It returns an earlier answer." in page.locator("#findings").inner_text()
        page.go_back()
        page.wait_for_url(lambda url: "standing" not in url)


@pytest.mark.slow
def test_a_reader_asks_sql_with_completion(browser: Any, url: str) -> None:
    with open_page(browser, url) as page:
        page.goto(f"{url}/sql")
        statement = page.locator("#sql")
        statement.fill("")
        statement.press_sequentially("SELECT count(*) AS n FROM kern")
        page.locator("#completions li").first.wait_for()
        statement.press("Tab")
        assert statement.input_value().endswith("FROM kernel_features")
        statement.fill("SELECT count(*) AS n FROM kernels")
        statement.press("Control+Enter")
        page.wait_for_url("**sql=*")
        assert page.locator("#result tbody").inner_text() == "11"
        page.keyboard.press("/")
        page.locator("#sql").blur()
        page.keyboard.press("/")
        assert page.evaluate("document.activeElement.id") == "site-search"


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_every_page_fits_and_is_accessible(
    browser: Any, url: str, empty_url: str, lake: Path, width: int, scheme: str
) -> None:
    """No page is wider than its screen, logs an error or breaks a rule of axe-core seriously."""
    with open_client(lake) as client:
        full = [a for a in crawl(client) if "at=" not in a and "sql" not in a]
    assert len(full) > 20
    empty = [one.PATH for one in app.find_pages() if "{" not in one.PATH]
    for server, addresses in (
        (url, [*full, "/sql?sql=FROM kernels"]),
        (empty_url, [*empty, "/sql"]),
    ):
        with open_page(browser, server, width, scheme) as page:
            for address in addresses:
                page.goto(f"{server}{address}")
                assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), address
                assert page.evaluate("document.querySelectorAll('h1').length") == 1
                if AXE.is_file():
                    # Not a script element, which the page's policy refuses.
                    page.evaluate(AXE.read_text("utf-8"))
                    assert find_serious(page) == [], address


@pytest.mark.slow
def test_a_reader_uses_the_keyboard_only(browser: Any, url: str) -> None:
    """Every control is reached by Tab in the order of the page, and shows that it is."""
    with open_page(browser, url, 390) as page:
        page.goto(f"{url}/runs")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.keyboard.press("Enter")
        page.goto(f"{url}/task/{b.task('square')['task_id']}")
        reached: list[str] = []
        chosen = 0
        while chosen < 2:
            page.keyboard.press("Tab")
            at = page.evaluate("document.activeElement.tagName")
            assert at != "BODY", reached
            reached.append(at)
            shown = "getComputedStyle(document.activeElement).outlineStyle !== 'none'"
            assert page.evaluate(shown), reached
            if page.evaluate("document.activeElement.name === 'pair'"):
                page.keyboard.press("Space")
                chosen += 1
        page.wait_for_url("**/compare/kernels?*")
        assert {"A", "INPUT", "SELECT", "BUTTON"} <= set(reached)
        assert "as A on H100" in page.locator("#change").inner_text()


@pytest.mark.slow
def test_a_reader_compares_two_rows_by_clicking(browser: Any, url: str) -> None:
    with open_page(browser, url) as page:
        page.goto(f"{url}/task/{b.task('square')['task_id']}")
        rows = page.locator("#ranking tbody tr")
        rows.nth(0).locator("td").nth(1).click()
        assert rows.nth(0).locator("input").is_checked()
        rows.nth(1).locator("td").nth(1).click()
        page.wait_for_url("**/compare/kernels?*")
        assert page.locator("#change .answer").inner_text().startswith("B is ")


@pytest.mark.slow
def test_a_reader_copies_and_downloads_the_code(browser: Any, url: str) -> None:
    kernel = b.kernel("k0")
    with open_page(browser, url) as page:
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.goto(f"{url}/kernel/{kernel['kernel_id']}")
        page.get_by_role("button", name="Copy").click()
        page.get_by_text("Copied.").wait_for()
        assert page.evaluate("navigator.clipboard.readText()") == kernel["code"]
        with page.expect_download() as download:
            page.get_by_role("link", name="Download").click()
        assert Path(download.value.path()).read_text("utf-8") == kernel["code"]
        page.goto(f"{url}/kernel/{kernel['kernel_id']}#L2")
        assert page.locator("tr:target").count() == 1


@pytest.mark.slow
def test_a_page_follows_a_run_to_its_end(browser: Any, tmp_path: Path) -> None:
    folder = write_lake(tmp_path / "lake")
    run_id = store.ids.uuid7()
    with run_server(folder) as address, open_page(browser, address, 390) as page:
        with store.writer(str(folder), author="tests") as writer:
            run = store.make_run(kind="training", name="live", config={"x": 1}, run_id=run_id)
            with contextlib.suppress(ValueError), store.record_run(writer, run, "live begins"):
                page.goto(f"{address}/runs")  # a page that follows the lake, too
                page.get_by_role("link", name="live").click()
                page.wait_for_url(f"**/run/{run_id}")
                assert page.locator(".intro").inner_text().endswith("This page follows it.")
                page.evaluate("scrollTo(0, 150)")
                page.locator("details.export summary").first.click()
                place = page.evaluate("scrollY")
                policy = b.policy("live checkpoint") | {"run_id": run_id}
                writer.append({"policies": [policy]}, "a checkpoint")
                page.locator("#products").get_by_text("live checkpoint", exact=True).wait_for()
                assert page.evaluate("scrollY") == place
                assert page.locator("details.export[open]").count() == 1
                raise ValueError("out of memory")
        page.get_by_text("ValueError: out of memory").wait_for()


def find_serious(page: Any) -> list[tuple[str, str]]:
    """Return the rules of axe-core that a page breaks seriously, each with an element."""
    found = page.evaluate("axe.run().then((result) => result.violations)")
    return [
        (one["id"], one["nodes"][0]["html"][:200])
        for one in found
        if one["impact"] in ("serious", "critical")
    ]


@pytest.fixture(scope="module")
def report(lake: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the address of the report of that lake."""
    with store.open(str(lake)) as opened:
        page = build_report(opened)
    folder = tmp_path_factory.mktemp("report")
    write_report(page, folder)
    return (folder / "report.html").as_uri()


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_the_report_has_at_most_six_screens(
    browser: Any, report: str, width: int, scheme: str
) -> None:
    with open_page(browser, report, width, scheme) as page:
        page.goto(report)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.evaluate("document.documentElement.scrollHeight <= 6 * innerHeight")
        if AXE.is_file():
            page.evaluate(AXE.read_text("utf-8"))
            assert find_serious(page) == []
