"""A published dataset goes into TRL's own trainer as `load_dataset` gives it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hub.server import TOKEN, HubServer
from hub.test_publish import record_dataset

from store.hub.client import Hub
from store.hub.edition_writer import Options
from store.hub.publish import publish

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning"),
]
TRAIN = """
import json, sys
from datasets import load_dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

rows = load_dataset(sys.argv[1], "short", split="train", revision="v1")
words = {word: n for n, word in enumerate(["<pad>", "<eos>", "<unk>", "Make", "it", "faster"])}
plain = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
plain.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=plain, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
)
tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }} {% endfor %}<eos>"
size = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
model = LlamaForCausalLM(LlamaConfig(vocab_size=8, num_attention_heads=2, **size))
options = SFTConfig(
    output_dir=sys.argv[2], max_steps=2, per_device_train_batch_size=1, report_to=[],
    use_cpu=True, bf16=False, save_strategy="no", logging_steps=1,
)
trainer = SFTTrainer(model=model, args=options, train_dataset=rows, processing_class=tokenizer)
trainer.train()
print(json.dumps({"steps": trainer.state.global_step, "rows": rows.num_rows}))
"""


def test_sft_takes_a_published_dataset_as_it_is(
    rich_url: str, server: HubServer, hub: Hub, tmp_path: Path
) -> None:
    record_dataset(rich_url, tmp_path)
    publish(rich_url, "lab/kernels", Options(tag="v1", datasets=("short",)), hub=hub)
    ended = subprocess.run(
        [sys.executable, "-c", TRAIN, "lab/kernels", str(tmp_path / "out")],
        env=os.environ | {
            "HF_ENDPOINT": server.url, "HF_TOKEN": TOKEN, "HF_HOME": str(tmp_path / "home"),
            "HF_HUB_DISABLE_XET": "1",
        },
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout.splitlines()[-1]) == {"steps": 2, "rows": 2}
