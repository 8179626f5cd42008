"""Sampling from a local model on a GPU: replayed steps beside a plain `generate`, in one run.

python benchmarks/sampling.py MODEL [--batch 128] [--prompt 650] [--tokens 256] [--rounds 3]

Both draw the same number of tokens for the same prompts with Transformers' own `generate`: once
with the cache that grows, as it comes, and once as trainers/_local.py and _grpo.py ask for it. The
times hold the pass over the prompt, and what recording takes.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig

from trainers import _cuda_graph, _local, _model


def main() -> None:
    """Print milliseconds per token of the whole batch, and their ratio."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("model", help="folder, .gguf file or name on the Hub")
    parser.add_argument("--batch", type=int, default=128, help="sequences")
    parser.add_argument("--prompt", type=int, default=650, help="tokens of a prompt")
    parser.add_argument("--tokens", type=int, default=256, help="tokens sampled of each sequence")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("no GPU: steps are replayed on GPUs alone")
    _model.without_bars()
    folder: Path = _model.located(given.model, _local.scratch())
    loaded: Any = _model.load(folder, dtype="bfloat16")
    model = loaded.to("cuda").eval()
    model.generation_config = GenerationConfig()
    if not _cuda_graph.replayable(model):
        sys.exit("a model whose steps cannot be replayed: its state is more than keys and values")
    torch.manual_seed(0)
    ids = torch.randint(3, model.config.vocab_size, (given.batch, given.prompt), device="cuda")
    mask = torch.ones_like(ids)
    mask[::2, : given.prompt // 10] = 0

    def seconds(settings: dict[str, Any]) -> float:
        wanted = GenerationConfig(
            max_new_tokens=given.tokens,
            min_new_tokens=given.tokens,
            do_sample=True,
            top_k=0,
            temperature=0.8,
            pad_token_id=0,
            **settings,
        )
        torch.cuda.synchronize()
        begin = time.perf_counter()
        with torch.inference_mode(), _cuda_graph.replayed(model):
            model.generate(input_ids=ids, attention_mask=mask, generation_config=wanted)
        torch.cuda.synchronize()
        return time.perf_counter() - begin

    seconds({})  # libraries set themselves up
    took: dict[str, list[float]] = {"plain": [], "replayed": []}
    for _ in range(given.rounds):
        took["plain"].append(seconds({}))
        took["replayed"].append(seconds(_cuda_graph.SETTINGS))
    shape = f"{given.batch} x {given.prompt} + {given.tokens} tokens"
    for name, values in took.items():
        each = statistics.median(values) / given.tokens * 1e3
        print(f"{shape}  {name:9} {each:7.2f} ms a token", flush=True)
    ratios = [one / other for one, other in zip(took["plain"], took["replayed"], strict=True)]
    told = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    print(f"{shape}  plain / replayed {told}")


if __name__ == "__main__":
    main()
