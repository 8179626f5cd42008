"""The report is one page that needs nothing else, says what its SQL says, and keeps code inert."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import builders as b
import pytest
from hypothesis import given
from hypothesis import strategies as st
from panels import ask

import store
from store.errors import UnknownName
from store.explore.page import charts
from store.explore.page import texts as text_module
from store.explore.report import Report, build_report, write_report
from store.receipts.check import verify
from store.upkeep import history

ROOT = Path(__file__).parents[2]
HOSTILE = (
    '"""</pre></code><script>alert(1)</script><img src=x onerror=alert(2)>\n'
    "]]> <!-- -->  ```\n````` </details>\n"
    "\x1b[2J\x1b]0;title\x07 \u202e\u2066reversed\u2069 {{ 7 * 7 }} {% raw %} $x^2$ | a | b |\n"
    '"""\n'
    "class ModelNew:\n    x = '" + "A" * 1_000_000 + "'\n"
)
NAME = "<script>alert(3)</script>\u202e`|[x](javascript:alert(4))\x1b[31m"
STEPS = 12
EXPLORER = "http://127.0.0.1:8765"


def rows(*, hostile: bool = False) -> dict[str, list[dict[str, Any]]]:
    """Return a lake's rows: two tasks on two GPUs, claims, findings, and a training run."""
    name = NAME if hostile else "trained"
    tasks = [b.task("square"), b.task("cube")]
    labels = [b.label(tasks[0], "level1/1"), b.label(tasks[1], "level2/2", level=2, problem_id=2)]
    policy = b.policy(name, stage="contrastive")
    base = b.policy("base", stage="base")
    # The name of a device is printable ASCII.
    model = "<script>alert(3)</script>|`" if hostile else "H100"
    gpus = [b.device("A100", kind="cuda"), b.device(model, kind="cuda", model=name)]
    sizes = [b.workload(task) for task in tasks]
    run = b.run("contrastive", "training", config='{"steps": 12, "note": "<b>"}')
    kernels = [
        b.kernel(f"k{i}", code=HOSTILE if hostile and i == STEPS - 1 else None)
        for i in range(STEPS)
    ]
    wrong = b.kernel("wrong")
    made = {key: list[dict[str, Any]]() for key in ("generations", "evaluations", "timings")}
    rewards, claimed = [], []
    for i, kernel in enumerate(kernels):
        task, size = tasks[i % 2], sizes[i % 2]
        shown = [(kernels[i - 2], 1.0 + i / 10)] if i > 1 else None
        attempt = b.generation(
            policy if i else base, task, kernel, exemplars=shown, minute=i, run_id=run["run_id"],
            group_id=f"g{i}", prompt_tokens=900, completion_tokens=300, cost_usd=0.01,
        )  # fmt: skip
        made["generations"].append(attempt)
        rewards.append(
            {
                "run_id": run["run_id"],
                "generation_id": attempt["generation_id"],
                "rule": "speed",
                "rule_version": 1,
                "step": i,
                "raw": 0.5 + i / 10,
                "smoothed": 0.5,
                "created_at": b.START,
            }
        )
        for place, gpu in enumerate(gpus):
            judged = b.evaluation(kernel, task, size, gpu, minute=i, wall_s=2.0)
            base_ms = [(1 + i / 8) * (1 + place / 10) * (1 + j / 1000) for j in range(8)]
            made["evaluations"].append(judged)
            compiled_ms = [1.2 if i % 2 else 0.8] * 8
            made["timings"] += b.session(judged, [1.0] * 8, eager=base_ms, compile=compiled_ms)
        claimed.append(b.claim(task, kernel, 1 + i / 8, source=name))
    made["evaluations"].append(b.evaluation(wrong, tasks[0], sizes[0], gpus[0], "incorrect"))
    made["generations"].append(b.generation(policy, tasks[0], wrong, minute=99))
    found = b.finding(wrong, name if hostile else "result_caching", quote=HOSTILE[:300])
    metrics = [
        {"run_id": run["run_id"], "name": metric, "step": step, "value": 1 / (step + 1),
         "created_at": b.START}
        for metric in ("train/entropy", "train/loss") for step in range(STEPS)
    ]  # fmt: skip
    return made | {
        "tasks": tasks, "task_labels": labels, "policies": [policy, base], "devices": gpus,
        "workloads": sizes, "runs": [run], "kernels": [*kernels, wrong], "rewards": rewards,
        "kernel_features": [b.features(k, ["fusion", "vectorised"]) for k in kernels],
        "claims": [*claimed, b.claim(tasks[0], wrong, 368.0, source=name)], "metrics": metrics,
        "findings": [found], "standings": [b.standing(found, why=NAME)],
    }  # fmt: skip


def lake_of(folder: Path, content: dict[str, list[dict[str, Any]]]) -> Path:
    with store.writer(str(folder), author="tests") as writer:
        writer.append(content, message="a lake to report on")
    return folder


@pytest.fixture(scope="module")
def plain_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a lake with something for every section."""
    return lake_of(tmp_path_factory.mktemp("plain") / "lake", rows())


@pytest.fixture(scope="module")
def page(plain_lake: Path) -> Report:
    """Return the plain lake's report."""
    with store.open(str(plain_lake)) as lake:
        return build_report(lake)


@pytest.fixture(scope="module")
def report_folder(page: Report, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that the plain lake's report is written to."""
    folder = tmp_path_factory.mktemp("written")
    write_report(page, folder)
    return folder


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the report of a lake whose every free text is hostile."""
    folder = tmp_path_factory.mktemp("hostile")
    with store.open(str(lake_of(folder / "lake", rows(hostile=True)))) as lake:
        write_report(replace(build_report(lake), title=NAME), folder / "out")
    return folder / "out"


def report(lake: Path, out: Path, run: str | None = None) -> Path:
    with store.open(str(lake)) as opened:
        write_report(build_report(opened, run), out)
    return out


class Reader(HTMLParser):
    """Collects tags, attributes and texts by tag as a browser would see them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.shown: list[tuple[str, str]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.shown.append((self.open[-1] if self.open else "", data))

    def text(self) -> str:
        return "".join(data for tag, data in self.shown if tag != "style")


def sql_of(page: str) -> list[str]:
    """Return the questions that stand on a page, as a reader would copy them."""
    blocks = re.findall(r"<summary>SQL</summary>\s*<pre[^>]*>(.*?)</pre>", page, re.DOTALL)
    return [Reader(f"<pre>{block}</pre>").text().strip() for block in blocks]


def words(file: Path) -> str:
    """Return the text of a page with one space between words and cells."""
    page = re.sub("</(td|th|strong)>", r" </\1>", file.read_text("utf-8"))
    return " ".join(Reader(page).text().split())


def leads_on(link: str, folder: Path) -> bool:
    """Whether a link is one to the explorer on the reader's machine, or to a receipt beside it."""
    is_receipt = re.fullmatch(r"receipt-[0-9a-f]{12}[.]json", link) is not None
    return link.startswith(EXPLORER) or (is_receipt and (folder / link).is_file())


@pytest.mark.slow
def test_the_page_runs_nothing_and_fetches_nothing(report_folder: Path) -> None:
    page = (report_folder / "report.html").read_text("utf-8")
    reader = Reader(page)
    assert not {tag for tag, _ in reader.tags} & {"script", "img", "link", "iframe", "object"}
    for _, attributes in reader.tags:
        assert not [name for name in attributes if name.startswith("on") or name == "src"]
        assert leads_on(attributes.get("href") or EXPLORER, report_folder)
    assert "default-src 'none'" in page
    assert not re.search(r"url\((?!#)|@import", page)
    assert len(page) < 1_000_000


def test_every_section_is_an_answer_with_its_chart_and_sql(
    report_folder: Path, page: Report
) -> None:
    text = (report_folder / "report.html").read_text("utf-8")
    ids = [attributes["id"] for _, attributes in Reader(text).tags if "id" in attributes]
    assert ids == [answer.name for answer in page.answers]
    # What a reader copies from the page is what was asked.
    assert sql_of(text) == [answer.sql for answer in page.answers]
    assert all(answer.rows and answer.svg for answer in page.answers)
    shown = words(report_folder / "report.html")
    for answer in page.answers:
        assert re.search(r"\d", answer.sentence), "an answer is a number"
        assert answer.sentence in shown
    assert [answer.name for answer in page.unanswered] == ["search_curve"]


def test_the_receipt_of_the_best_kernel_is_beside_the_report(report_folder: Path) -> None:
    [file] = report_folder.glob("receipt-*.json")
    best = verify(file.read_bytes()).receipt["figures"]["pooled_speedups"]
    assert max(row["speedup_low"] for row in best) > 1
    for name in ("report.html", "report.md"):
        assert file.name in (report_folder / name).read_text("utf-8")


@pytest.mark.slow
def test_links_lead_to_pages_of_the_explorer(plain_lake: Path, page: Report) -> None:
    from explorer_lakes import open_client

    with open_client(plain_lake) as client:
        for answer in page.answers:
            assert f"at={page.snapshot}" in answer.link
            assert client.get(answer.link.removeprefix(EXPLORER)).status_code == 200


@pytest.mark.slow
def test_a_report_at_a_tag_knows_the_names_given_since_and_none_removed(
    writer: store.Writer,
) -> None:
    snapshot = writer.append({"policies": [b.policy("ada")]}, "ada")
    for name in ("v1", "gone"):
        history.add_tag(writer, name, snapshot, f"note on {name}")
    history.remove_tag(writer, "gone", None)
    with writer.reader("v1") as lake:
        assert build_report(lake).tags == ["v1"]


def test_figures_on_the_page_are_those_of_the_views(report_folder: Path, plain_lake: Path) -> None:
    text = words(report_folder / "report.html")
    with store.open(str(plain_lake)) as lake:
        row = lake.sql(
            "FROM leaderboard WHERE level IS NULL AND device = 'A100' AND baseline = 'eager' "
            "AND policy = 'any'"
        ).one()
    assert row is not None
    shown = (
        f"{row['p50']:#.3g}\N{MULTIPLICATION SIGN} [{row['p50_low']:#.3g}, {row['p50_high']:#.3g}]"
    )
    assert f"The median speedup over eager is {shown}: best kernels of 2 tasks" in text
    assert "92 % of 13 judged kernels are correct on A100." in text
    # Twelve claims of the training run hold on the A100; the one of a wrong kernel has no speedup.
    assert "12 of 12 claims of trained for A100 hold on A100." in text


def test_the_same_in_markdown_with_charts_as_files(report_folder: Path) -> None:
    text = (report_folder / "report.md").read_text("utf-8")
    page = (report_folder / "report.html").read_text("utf-8")
    assert re.findall("^## (.*)$", text, re.MULTILINE) == re.findall("<h2 .*?>(.*?)</h2>", page)
    assert text.count("<summary>SQL</summary>") == page.count("<summary>SQL</summary>")
    named = re.findall(r"\]\((figures/.*?\.svg)\)", text)
    assert (
        len(named) == page.count('class="chart') == len(list((report_folder / "figures").iterdir()))
    )
    for name in named:
        drawn = ElementTree.fromstring((report_folder / name).read_text("utf-8"))
        words = [word.text for word in drawn.iter("{http://www.w3.org/2000/svg}text")]
        assert len(words) > 4
        # Colours come from the style alone, light and dark.
        assert not re.findall(
            "#[0-9a-f]{6}", (report_folder / name).read_text().partition("</style>")[2]
        )


def test_hostile_text_is_inert_in_html(hostile: Path) -> None:
    page = (hostile / "report.html").read_text("utf-8")
    reader = Reader(page)
    assert not {tag for tag, _ in reader.tags} & {"script", "img", "details>", "x"}
    assert not [1 for _, attributes in reader.tags for name in attributes if name[:2] == "on"]
    assert "<script>alert(3)</script>" in reader.text()
    assert "\\x1b[31m" in reader.text()
    # A no-break space stands in our own headings.
    assert all(c.isprintable() or c in "\n\t\N{NO-BREAK SPACE}" for c in page)
    assert max(map(len, page.splitlines())) < 20_000
    assert not reader.open


def test_hostile_text_is_inert_in_markdown(hostile: Path) -> None:
    from markdown_it import MarkdownIt

    text = (hostile / "report.md").read_text("utf-8")
    assert all(c.isprintable() or c in "\n\t\N{NO-BREAK SPACE}" for c in text)
    ours = r"(</?details>|</?summary>|\s|SQL)*"
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    for token in [part for whole in tokens for part in [whole, *(whole.children or [])]]:
        if token.type in ("html_block", "html_inline"):
            assert re.fullmatch(ours, token.content), token.content
        if token.type == "link_open":
            assert leads_on(str(token.attrs["href"]), hostile)
        if token.type == "image":
            assert re.fullmatch(r"figures/[\w-]+\.svg", str(token.attrs["src"]))


def test_hostile_text_is_inert_in_charts(hostile: Path) -> None:
    drawn = list((hostile / "figures").glob("*.svg"))
    words: list[str] = []
    for file in drawn:
        root = ElementTree.fromstring(file.read_text("utf-8"))
        assert {node.tag.rpartition("}")[2] for node in root.iter()} <= {
            "svg", "g", "path", "line", "circle", "polyline", "polygon", "text", "title", "rect",
            "style",
        }  # fmt: skip
        words += [node.text or "" for node in root.iter("{http://www.w3.org/2000/svg}text")]
    assert any("<script>alert(3)" in word for word in words)


@pytest.mark.slow
def test_a_run_has_its_curves_lineage_and_costs(plain_lake: Path, tmp_path: Path) -> None:
    with store.open(str(plain_lake)) as lake:
        run = lake.sql("SELECT run_id FROM runs").rows()[0]["run_id"]
    out = report(plain_lake, tmp_path / "page", run[:10])
    text = words(out / "report.html")
    assert {file.stem for file in (out / "figures").iterdir()} == {
        "run_learning", "run_best_so_far", "run_metrics",
    }  # fmt: skip
    assert "train/entropy is 1.00 at step 0 and 0.0833 at step 11." in text
    assert re.search(r"made from exemplar [0-9a-f]{12} at 2\.1", text)
    # 12 attempts of 900 + 300 tokens; every kernel of the run but a task's first beats compile.
    assert "12 attempts took 10,800 prompt tokens, 3,600 answer tokens, 24.0 s of judging" in text
    with store.open(str(plain_lake)) as lake:
        rows = ask(lake, "report/run_best_so_far", run=run)
    # A kernel that loses to its baseline takes nothing away from what there is.
    for _, arm in itertools.groupby(rows, lambda row: (row["device"], row["baseline"])):
        reached = [row["geomean_at_least_1"] for row in arm]
        assert 1 <= reached[0] < reached[-1]
        assert reached == sorted(reached)
    # The command writes the same bytes, in another process.
    done = subprocess.run(
        [sys.executable, "-m", "store", "report", "--run", run, "--out", str(tmp_path / "again"),
         "--lake", str(plain_lake)],
        cwd=ROOT, capture_output=True, text=True, check=True,
        env=os.environ | {"PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo"},
    )  # fmt: skip
    assert re.search(
        r"report\.html \(0\.\d\d MB\), report\.md, \d+ charts, snapshot \d+, ", done.stdout
    )
    for file in out.rglob("*.*"):
        assert file.read_bytes() == (tmp_path / "again" / file.relative_to(out)).read_bytes()
    with store.open(str(plain_lake)) as lake, pytest.raises(UnknownName, match='no run "'):
        build_report(lake, "nothing")


def test_an_empty_lake_says_what_would_fill_each_section(empty_lake: Path, tmp_path: Path) -> None:
    out = report(empty_lake, tmp_path)
    page = (out / "report.html").read_text("utf-8")
    assert "<svg" not in page
    assert "<h2" not in page
    for step in ("evaluators run", "store import cuda-l1", "trainers list"):
        assert step in page.partition("<footer>")[2]


def test_help_draws_nothing() -> None:
    heavy = "{'matplotlib', 'jinja2', 'pygments'}"
    code = f"import sys, store.cli.app; assert not {heavy} & {{*sys.modules}}"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


@given(st.text())
def test_any_text_is_plain_in_markdown(text: str) -> None:
    from markdown_it import MarkdownIt

    [_, inline, _] = MarkdownIt("commonmark").parse(f"x {text_module.escape_markdown(text)} x")
    assert {child.type for child in inline.children or []} == {"text"}
    assert "\n" not in inline.content


@given(st.text(alphabet=st.sampled_from("`~\n ab")))
def test_any_code_stays_in_its_fence(text: str) -> None:
    from markdown_it import MarkdownIt

    [token] = MarkdownIt("commonmark").parse(text_module.fence(text))
    assert token.type == "fence"
    assert token.content == text + "\n"


@given(st.text(max_size=2000))
def test_code_is_cut_and_printable(text: str) -> None:
    shown = text_module.cut_code(text)
    assert all(c.isprintable() or c in "\n\t" for c in shown)
    assert all(len(line) <= text_module.LINE_CHARACTERS * 10 for line in shown.split("\n"))


@pytest.mark.parametrize("label", ["$\\frac{", "_a</text><script>", "\u4e2d\u6587\u202e\x00", ""])
def test_any_label_is_drawn(label: str) -> None:
    one = charts.Series(label=label, x=[0, 1], y=[1.0, 2.0])
    axis = charts.Axis(label=f"label {label}")
    svg = charts.draw_lines("any", [(axis, [one])], axis)
    assert "script" not in {node.tag for node in ElementTree.fromstring(svg).iter()}
    assert svg == charts.draw_lines("any", [(axis, [one])], axis)
