"""A chat server that turns one knob of the kernel that looks fastest in its prompt; no model.

python -m lab.exemplar_arms.turner --port 18080 --seed 0

An answer takes the kernel with the highest score that the prompt shows and changes one constant to
another of the choices beside it. Without kernels in the prompt it changes one constant of the
plainest kernel in Triton, or in C++ for the CPU. So every answer is meant to be right, and only a
search can change several constants. Draws are hashes of the prompt, the seed of the request and the
place of the answer.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from typing import Any

from lab.exemplar_arms.sizes import TEST, TRAIN
from store.generated.writing import families
from store.generated.writing.texts import Draw

_KNOB = re.compile(r"^([A-Z_]+) = (\d+)  # ([\d, ]+)$", re.MULTILINE)
_SHOWN = re.compile(
    r"^### Kernel \d+: ([\d.]+)x.*?\n\n(`{3,})python\n(.*?)^\2$", re.MULTILINE | re.DOTALL
)
_MOST_TASKS = 200
_KINDS = {"cpp": "cpu", "triton": "cuda"}
"""Languages of the kernels, and the kind of device that runs them. One language for each kind: a
walk from constant to constant stays in the language in which it starts."""
_ANSWER = """### Performance Analysis

{analysis}

### Algorithm Design

{design}

### Code Implementation

```python
{code}
```"""


class Turner:
    """Answers prompts about generated tasks with knobs."""

    def __init__(self, seed: int) -> None:
        """Draw the tasks of a seed, and the held-out ones."""
        self._kernels: dict[str, dict[str, list[str]]] = {}
        for drawn in (seed, -1 - seed):
            tasks = families.generate_tasks((*TRAIN, *TEST), drawn)
            for _, task in islice(tasks, _MOST_TASKS):
                by_kind: dict[str, list[str]] = {"cpu": [], "cuda": []}
                for kernel in task.kernels:
                    kind = _KINDS.get(kernel.language)
                    if kind and "_tuned_" in kernel.variant and _is_plainest(kernel.code):
                        by_kind[kind].append(kernel.code)
                self._kernels[task.code.strip()] = by_kind

    def answer(self, prompt: str, seed: int, place: int) -> str:
        """Return one answer; raises LookupError if the prompt is about no known task."""
        key = hashlib.sha256(prompt.encode()).hexdigest()
        draw = Draw("turner", key, seed, place)
        shown = [(float(score), code) for score, _, code in _SHOWN.findall(prompt)]
        tuned = [one for one in shown if _KNOB.search(one[1])]
        if tuned:
            fastest = max(tuned)
            analysis = f"Fastest: Kernel {1 + shown.index(fastest)}"
            return _turn(draw, fastest[1], analysis)
        kind = "cpu" if "It runs on a CPU" in prompt else "cuda"
        known = next((kernels for code, kernels in self._kernels.items() if code in prompt), None)
        if known is None:
            raise LookupError("the prompt is about no task of these families and seed")
        code = draw.choice(known[kind])
        return _turn(draw, code, "Each operation reads and writes memory.")


def _is_plainest(code: str) -> bool:
    """Whether every knob has the first one of its choices."""
    return all(knob[3].split(", ")[0] == knob[2] for knob in _KNOB.finditer(code))


def _turn(draw: Draw, code: str, analysis: str) -> str:
    """Return an answer with the kernel, after turning one of its knobs."""
    line, name, before, choices = draw.choice(
        [(knob[0], knob[1], knob[2], knob[3]) for knob in _KNOB.finditer(code)]
    )
    value = draw.choice([one for one in choices.split(", ") if one != before])
    code = code.replace(line, f"{name} = {value}  # {choices}")
    design = f"Set `{name}` = {value} instead of {before}."
    return _ANSWER.format(analysis=analysis, design=design, code=code.strip())


def make_handler(turner: Turner) -> type[BaseHTTPRequestHandler]:
    """Return a request handler that speaks OpenAI's chat completions."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            prompt = str(asked["messages"][-1]["content"])
            try:
                texts = [
                    turner.answer(prompt, int(asked.get("seed") or 0), place)
                    for place in range(int(asked.get("n") or 1))
                ]
            except LookupError as error:
                self._send(400, {"error": {"message": str(error)}})
                return
            self._send(200, _describe(prompt, texts))

        def _send(self, status: int, body: dict[str, Any]) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            """Stay silent."""

    return Handler


def _describe(prompt: str, texts: Sequence[str]) -> dict[str, Any]:
    """Return the body of an answer; tokens are counted as four bytes each."""
    return {
        "id": "turner",
        "object": "chat.completion",
        "model": "turner",
        "choices": [
            {
                "index": place,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": text},
            }
            for place, text in enumerate(texts)
        ],
        "usage": {
            "prompt_tokens": len(prompt) // 4,
            "completion_tokens": sum(map(len, texts)) // 4,
        },
    }


def main() -> None:
    """Serve on loopback until the process ends."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--port", type=int, default=18080)
    parser.add_argument("--seed", type=int, default=0, help="seed of the tasks")
    given = parser.parse_args()
    server = ThreadingHTTPServer(("127.0.0.1", given.port), make_handler(Turner(given.seed)))
    server.serve_forever()


if __name__ == "__main__":
    main()
