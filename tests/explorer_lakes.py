"""Lakes for the tests of `store explore`: rows for every page, plain or hostile, and a client."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import builders as b

import store
from store.explore.server.app import make_app
from store.lake.location import Location

ROOT = Path(__file__).parents[1]
HOSTILE_NAME = "<script>alert(1)</script>\u202e`|\x1b[31m"
HOSTILE_CODE = (
    '"""</pre></code></table><script>alert(2)</script><img src=x onerror=alert(3)>\n'
    "\x1b[2J\x1b]0;title\x07 \u202e\u2066reversed\u2069 {{ 7 * 7 }} {% raw %}\n"
    '"""\n'
    "class ModelNew:\n    x = '" + "A" * 200_000 + "'\n"
)


def write_lake(folder: Path, *, hostile: bool = False) -> Path:
    """Write a lake with rows for every page: two tasks, ten kernels, a run, findings, a dataset."""
    name = HOSTILE_NAME if hostile else "trained"
    tasks = [b.task("square"), b.task("cube")]
    labels = [
        b.label(tasks[0], "level1/1", title=name),
        b.label(tasks[1], "level2/2", level=2, problem_id=2),
    ]
    policy = b.policy(name, stage="contrastive")
    # The name of a device is printable ASCII.
    device = b.device("<script>alert(1)</script>`|" if hostile else "H100", kind="cuda", model=name)
    sizes = [b.workload(task) for task in tasks]
    run = b.run(name if hostile else "contrastive", "training", config='{"note": "<b>bold</b>"}')
    kernels = [b.kernel(f"k{i}") for i in range(9)]
    kernels.append(b.kernel("last", code=HOSTILE_CODE if hostile else None))
    text = HOSTILE_CODE[:400] if hostile else "Make it fast."
    messages = json.dumps([{"role": name, "content": text}])
    prompt = {
        "prompt_id": store.ids.compute_row_id("text", None, [messages]), "messages": messages,
        "task_id": tasks[0]["task_id"], "purpose": "train", "created_at": b.START,
    }  # fmt: skip
    tables = ("generations", "rollout_tokens", "evaluations", "timings", "rewards", "analyses")
    made: dict[str, list[dict[str, Any]]] = {key: [] for key in tables}
    for i, kernel in enumerate(kernels):
        shown = [(kernels[i - 2], 1.0 + i / 10)] if i > 1 else None
        attempt = b.generation(
            policy, tasks[i % 2], kernel, exemplars=shown, minute=i, run_id=run["run_id"], step=i,
            group_id=f"g{i // 2}", sample_index=i % 2, trajectory_id=f"t/{i // 3}", turn=i % 3,
            prompt_id=prompt["prompt_id"], completion=text, completion_tokens=9,
        )  # fmt: skip
        made["generations"].append(attempt)
        # The last token has no text, and the one before it is the longest.
        ends = [2, 2, 5, 8, 11, 13, len(text), len(text)]
        logprobs = [-0.05, -0.5, -1.5, -3.0, -9.0, -0.2, -2.5, 0.0]
        if i != 5:  # one step has no tokens, and the tokens of another are not placed in the text
            made["rollout_tokens"].append(
                b.rollout_tokens(
                    attempt, range(40, 48), token_ends=None if i == 4 else ends,
                    loss_mask=[True] * 7 + [False], sampler_logprobs=logprobs,
                    old_logprobs=[min(one + i / 100, 0.0) for one in logprobs], advantage=i / 10,
                )
            )  # fmt: skip
        made["rewards"].append(
            {
                "run_id": run["run_id"], "generation_id": attempt["generation_id"], "rule": "speed",
                "rule_version": 1, "step": i, "raw": i / 10, "created_at": b.START,
            }
        )  # fmt: skip
        judged = b.evaluation(kernel, tasks[i % 2], sizes[i % 2], device, minute=i)
        made["evaluations"].append(judged)
        base = [(1 + i / 4) * (1 + j / 1000) for j in range(8)]
        made["timings"] += b.session(judged, [1.0] * 8, eager=base, compile=[0.9] * 8)
        made["timings"] += b.session(judged, [2.0] * 8, clock="latency", eager=[2.6] * 8)
        made["analyses"].append(
            {
                "analysis_id": f"a{i}", "kernel_id": kernel["kernel_id"], "kind": "model",
                "author": name, "body": text, "created_at": b.START,
            }
        )  # fmt: skip
    made["analyses"].append(
        {
            "analysis_id": "profile", "kernel_id": kernels[0]["kernel_id"], "kind": "profiler",
            "author": name, "body": write_profile(), "bottleneck": "memory_bandwidth",
            "created_at": b.START,
        }
    )  # fmt: skip
    wrong = b.kernel("wrong")
    made["evaluations"].append(
        b.evaluation(wrong, tasks[0], sizes[0], device, "incorrect", message=name)
    )
    found = [
        b.finding(kernels[-1], name if hostile else "result_caching", quote=text, line=2),
        b.finding(wrong, "lazy_output", confidence=0.9),
    ]
    data = b.dataset(run, name=name, rows=3, path=str(folder.parent / "dataset"))
    write_dataset(folder.parent / "dataset", data, tasks[0], kernels[:2], name, text)
    claims = [b.claim(tasks[0], kernels[2], 1.5, source=name), b.claim(tasks[0], wrong, 300.0)]
    with store.writer(str(folder), author="tests") as writer:
        writer.append(
            made | {
                "tasks": tasks, "task_labels": labels, "policies": [policy], "devices": [device],
                "workloads": sizes, "runs": [run], "kernels": [*kernels, wrong],
                "prompts": [prompt], "splits": [b.split()], "claims": claims, "findings": found,
                "kernel_features": [b.features(kernel, ["fusion"]) for kernel in kernels],
                "datasets": [data],
                "dataset_rows": [
                    b.dataset_row(data, tasks[0], kernels[:2], row_index=i) for i in range(3)
                ],
                **make_session(policy, run, tasks[0], made["generations"][0], name, text),
            },
            message=name,
        )  # fmt: skip
        writer.append(
            {"standings": [b.standing(found[1], "confirmed", why=name)]}, message="a decision"
        )
    return folder


def write_profile() -> str:
    """Return the lines about memory and operations of a profile, as the judge writes them."""
    import jinja2

    lines = (ROOT / "evaluators/diagnosis/templates/diagnosis.j2").read_text("utf-8").splitlines()
    text = "\n".join(line for line in lines if line.startswith(("Memory: at", 'Compute: {{ "%')))
    return jinja2.Template(text).render(
        moved_bytes=134.2e6, time_ms=0.0563, memory=0.5, bandwidth=4814e9, operations=4.18e9,
        compute=0.06, float_peak=66.91e12,
    )  # fmt: skip


def write_dataset(
    folder: Path, data: b.Row, task: b.Row, kernels: Sequence[b.Row], name: str, text: str
) -> None:
    """Write the files of a dataset as a pipeline does: three rows, a card and a recipe."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    row = {
        "prompt": [{"role": "user", "content": text}],
        "completion": [{"role": "assistant", "content": f"{name} answers"}],
        "task_id": task["task_id"], "task": name, "tokens": 7,
        "exemplar_kernel_ids": [kernel["kernel_id"] for kernel in kernels],
        "exemplar_scores": [1.5, 2.5],
    }  # fmt: skip
    (folder / "data" / "default").mkdir(parents=True)
    pq.write_table(
        pa.Table.from_pylist([row, row | {"tokens": 8}, row | {"tokens": 9}]),
        folder / "data" / "default" / "train-00000-of-00001.parquet",
        row_group_size=2,
    )
    (folder / "recipe.json").write_text(json.dumps({"dataset_id": data["dataset_id"]}))
    (folder / "README.md").write_text(f"# {name}\n\nThree rows.\n")


def make_session(
    policy: b.Row, run: b.Row, task: b.Row, attempt: b.Row, name: str, text: str
) -> dict[str, list[b.Row]]:
    """Return a session of an agent that wrote one attempt, and a subagent without steps."""
    head = {
        "policy_id": policy["policy_id"], "run_id": run["run_id"], "task_id": task["task_id"],
        "problem": name, "harness": name, "outcome": "success", "source": "tests",
        "created_at": b.START,
    }  # fmt: skip
    main, sub = (store.ids.content_id("session", part) for part in ("main", "sub"))
    step = {"session_id": main, "content": text, "created_at": b.START}
    return {
        "sessions": [
            head | {"session_id": main, "prompt_tokens": 900, "cost_usd": 0.5},
            head | {"session_id": sub, "parent_session_id": main},
        ],
        "session_steps": [
            step | {"step": 0, "role": "user"},
            step | {"step": 1, "role": "assistant", "reasoning": text, "model": name,
                    "generation_id": attempt["generation_id"], "completion_tokens": 12},
        ],
        "tool_calls": [
            {"session_id": main, "step": 1, "call_index": 0, "tool": name, "arguments": text,
             "result": text, "is_error": False},
            {"session_id": main, "step": 1, "call_index": 1, "tool": "Bash", "result": text,
             "is_error": True},
        ],
    }  # fmt: skip


@contextmanager
def open_client(lake: Path) -> Iterator[Any]:
    """Yield a client of the application of a lake, which asks as a browser on this machine does."""
    from starlette.testclient import TestClient

    app = make_app(Location.of(str(lake)), None, timeout=300.0)
    with TestClient(app, base_url="http://localhost") as client:
        yield client


class Page(HTMLParser):
    """Collects tags, texts, links and ids of a page; `open` has the tags that are not closed."""

    VOID = ("meta", "link", "input", "img", "br")

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, (tag, self.getpos())

    def handle_data(self, data: str) -> None:
        self.text += data

    def links(self) -> list[str]:
        """Return the addresses of this server that the page links to."""
        return [
            str(attributes["href"])
            for tag, attributes in self.tags
            if tag == "a" and str(attributes.get("href")).startswith("/")
        ]


@cache
def parse_page(html: str) -> Page:
    """Return a parsed page, from a cache, because several tests look at the same long pages."""
    return Page(html)


def crawl(client: Any, *, filters: bool = True) -> dict[str, Any]:
    """Return the answers of pages that other pages link to, one of each kind.

    Exports, tables in another order and statements for the console are left out; without
    `filters`, links to one page or tab are of one kind, whatever else they choose.
    """
    waiting, seen = ["/"], dict[str, Any]()
    kinds = set[str]()
    while waiting:
        address = waiting.pop(0).partition("#")[0]
        path, _, query = address.partition("?")
        if re.search(r"[.](json|csv|sql|txt)$", path) or re.search(r"sort[.]|(^|&)sql=", query):
            continue
        parts = query.split("&") if filters else ()
        names = sorted(re.sub(r"=(?!tab).*", "", part) for part in parts)
        tab = re.search(r"tab=\w+", query)
        kind = f"{re.sub('/[0-9a-f-]{32,}', '/ID', path)} {names} {tab and tab[0]}"
        if kind in kinds:
            continue
        kinds.add(kind)
        seen[address] = answer = client.get(address)
        waiting += parse_page(answer.text).links()
    return seen
