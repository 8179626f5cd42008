"""Tokens per second of a local model by batch size, and answers per GPU minute.

python benchmarks/sampling.py --device cuda --batches 32,128,256,512,1024

It samples as the policy of `trainers rollout` does. The model has the sizes of SmolLM2-135M and
random weights, unless --model names another: the time does not depend on the weights, and no answer
ends early.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

SIZES: dict[str, dict[str, int]] = {
    "smollm2-135m": {
        "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
        "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49152,
        "max_position_embeddings": 8192,
    },
    "tiny": {
        "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 49152,
        "max_position_embeddings": 8192,
    },
}  # fmt: skip


def load_model(name: str, device: str) -> Any:
    """Return a model of a folder, or of the sizes of a name with random weights."""
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    if name in SIZES:
        torch.manual_seed(0)
        model: Any = LlamaForCausalLM(LlamaConfig(**SIZES[name], tie_word_embeddings=True))
    else:
        model = AutoModelForCausalLM.from_pretrained(name)
    return model.to(device=device, dtype=dtype).eval()


def sample_locally(model: Any, ids: Any, new: int) -> int:
    """Return the tokens that the policy's own batches make, in legs as it makes them."""
    import torch
    from transformers import GenerationConfig

    from trainers.policies.local_model import LEG

    made, cache, mask = 0, None, torch.ones_like(ids)
    with torch.inference_mode():
        while made < new:
            leg = min(LEG, new - made)
            out = model.generate(
                input_ids=ids,
                attention_mask=mask,
                past_key_values=cache,
                generation_config=GenerationConfig(
                    max_new_tokens=leg, min_new_tokens=leg, do_sample=True, temperature=1.0,
                    top_k=0, pad_token_id=0, eos_token_id=1, return_dict_in_generate=True,
                ),
            )  # fmt: skip
            ids, cache = out.sequences, out.past_key_values
            mask = torch.ones_like(ids)
            made += leg
    return made * ids.shape[0]


def measure(
    model: Any, batch: int, prompt: int, new: int, answer: int, repeats: int
) -> dict[str, Any]:
    """Return the figures of one batch size; a failure is a figure, too."""
    import torch

    device = model.device
    ids = torch.randint(2, model.config.vocab_size, (batch, prompt), device=device)
    seconds: list[float] = []
    made = 0
    row: dict[str, Any] = {"batch": batch}
    try:
        # The first run compiles and allocates.
        for _ in range(repeats + 1):
            _synchronize(device)
            begun = time.perf_counter()
            made = sample_locally(model, ids, new)
            _synchronize(device)
            seconds.append(time.perf_counter() - begun)
    except Exception as error:
        row["error"] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    else:
        best = min(seconds[1:])
        row |= {
            "first_s": round(seconds[0], 2),
            "seconds": round(best, 2),
            "ms_per_step": round(1000 * best / new, 2),
            "tokens_per_s": round(made / best),
            "answers_per_minute": round(60 * made / best / answer, 1),
        }
    if device.type == "cuda":
        row["peak_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 1)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    return row


def _synchronize(device: Any) -> None:
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    """Measure every batch size until the time is over, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m", help=f"folder, or {', '.join(SIZES)}")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batches", default="8,32")
    parser.add_argument("--prompt", type=int, default=1024, help="tokens of a prompt")
    parser.add_argument("--new", type=int, default=128, help="tokens to sample")
    parser.add_argument("--answer", type=int, default=600, help="tokens of an answer, for the rate")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--total-s", type=float, default=float("inf"), help="begin nothing after")
    parser.add_argument("--out", type=Path, help="file for the rows, as JSON lines")
    given = parser.parse_args()
    begun = time.monotonic()
    model = load_model(given.model, given.device)
    out = given.out or Path(tempfile.gettempdir()) / "sampling.jsonl"
    print("batch  first s  seconds  ms/step  tokens/s  answers/min")
    for batch in map(int, given.batches.split(",")):
        if time.monotonic() - begun > given.total_s:
            break
        row = measure(model, batch, given.prompt, given.new, given.answer, given.repeats)
        with out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        if "error" in row:
            print(f"{batch:5}  {row['error']}", flush=True)
            continue
        print(
            f"{batch:5} {row['first_s']:8} {row['seconds']:8} {row['ms_per_step']:8} "
            f"{row['tokens_per_s']:9} {row['answers_per_minute']:12}",
            flush=True,
        )


if __name__ == "__main__":
    main()
