"""The target's tokenizer: a word for each token."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from .target import VOCAB_SIZE


def words(tokens: Iterable[int]) -> str:
    """The text of some tokens."""
    return " ".join(map(_word, tokens))


def write(folder: Path) -> None:
    """Write the tokenizer into the model's folder."""
    # Left out of the text as a special one; the model never says it.
    unknown = _word(VOCAB_SIZE - 1)
    model = dict(
        type="WordLevel",
        vocab={_word(token): token for token in range(VOCAB_SIZE)},
        unk_token=unknown,
    )
    tokenizer = dict(
        version="1.0",
        truncation=None,
        padding=None,
        added_tokens=[],
        normalizer=None,
        pre_tokenizer=dict(type="WhitespaceSplit"),
        post_processor=None,
        decoder=None,
        model=model,
    )
    config = dict(tokenizer_class="PreTrainedTokenizerFast", unk_token=unknown)
    Path(folder, "tokenizer.json").write_text(json.dumps(tokenizer))
    Path(folder, "tokenizer_config.json").write_text(json.dumps(config))


def _word(token: int) -> str:
    return f"w{token}"
