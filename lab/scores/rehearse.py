"""Writes a tiny model, with which every step of the experiment runs on a processor.

    python -m lab.scores.rehearse OUT       # OUT/rows.parquet → OUT/model, a random Llama

What it answers counts for nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab.scores.budget import say

_VOCABULARY = 1500
_APART = "|".join(
    [
        r"(?<=[A-Z] = )\d+",  # values of knobs
        r"(?<=[a-zL] )\d(?=\n|:)",  # numbers of kernels
        r"\d(?=[\d.]*x as)|\.(?=\d\dx as)",  # digits of scores
    ]
)
_OPERATION = r"(?<=: )[^\n]*(?=, sum\.)|(?<=\n)( *v = )(?!v\.sum|tl\.load)[^\n]*"


def write_model(folder: Path, texts: Sequence[str], seed: int = 0) -> int:
    """Write a random Llama with a tokenizer of its own; return its number of parameters.

    Its tokenizer keeps apart what differs between prompts. Other tokens are whole passages of code,
    so that a prompt has about 50 tokens, and a processor is enough. All operations read alike,
    because a model that begins with random weights knows nothing about those that it has not seen.
    """
    import torch
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    made: Any = Tokenizer(models.BPE())
    made.normalizer = normalizers.Replace(Regex(_OPERATION), "operation")
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_APART), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    made.decoder = decoders.ByteLevel()
    special = ["<|im_start|>", "<|im_end|>", "<|pad|>"]
    trainer: Any = trainers.BpeTrainer(
        vocab_size=_VOCABULARY,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=made,
        bos_token=special[0],
        eos_token=special[1],
        pad_token=special[2],
        model_max_length=4096,
    )
    tokenizer.chat_template = (
        "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
        "{{ message['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    )
    marks: dict[str, Any] = {
        f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad")
    }
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=320,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        **marks,
    )
    torch.manual_seed(seed)
    model = LlamaForCausalLM(config)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(str(folder))
    model.save_pretrained(str(folder))
    return sum(parameter.numel() for parameter in model.parameters())


def main() -> None:
    """Write the model."""
    import pyarrow.parquet as pq

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    rows: list[dict[str, Any]] = (
        pq.read_table(given.out / "rows.parquet").slice(0, 2000).to_pylist()
    )
    texts = [
        turn["content"] for row in rows for name in ("prompt", "completion") for turn in row[name]
    ]
    count = write_model(given.out / "model", texts)
    say(f"{count} parameters → {given.out / 'model'}")


if __name__ == "__main__":
    main()
