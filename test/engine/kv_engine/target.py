"""The target model: a tiny hybrid sliding-window one, made on the spot."""

from __future__ import annotations

import json
from pathlib import Path

WINDOW = 32
VOCAB_SIZE = 256
CONTEXT_LEN = 4096

# Full attention and sliding windows by turns; one head, so that a slot is small.
_CONFIG = dict(
    architectures=["LagunaForCausalLM"],
    model_type="laguna",
    vocab_size=VOCAB_SIZE,
    hidden_size=16,
    intermediate_size=16,
    num_hidden_layers=4,
    num_attention_heads=1,
    num_key_value_heads=1,
    head_dim=16,
    max_position_embeddings=CONTEXT_LEN,
    sliding_window=WINDOW,
    layer_types=["full_attention", "sliding_attention"] * 2,
    mlp_layer_types=["dense"] * 4,
    num_experts=2,
    num_experts_per_tok=1,
    moe_intermediate_size=16,
    shared_expert_intermediate_size=16,
    torch_dtype="float32",
    bos_token_id=1,
    eos_token_id=VOCAB_SIZE - 1,
    rope_parameters=dict(
        full_attention=dict(rope_theta=10000.0, rope_type="default"),
        sliding_attention=dict(rope_theta=10000.0, rope_type="default"),
    ),
)


def write(folder: Path) -> Path:
    """Write its configuration into a folder; its weights are dummies."""
    return _write(folder, _CONFIG)


def write_draft(folder: Path) -> Path:
    """Write a draft's configuration beside it; only the releases' checks read it."""
    return _write(
        Path(folder, "draft"),
        _CONFIG
        | dict(
            num_hidden_layers=1,
            layer_types=["full_attention"],
            mlp_layer_types=["dense"],
            markov_rank=1,
            markov_head_type="vanilla",
            num_target_layers=_CONFIG["num_hidden_layers"],
        ),
    )


def _write(folder: Path, config: dict) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    Path(folder, "config.json").write_text(json.dumps(config))
    return folder
