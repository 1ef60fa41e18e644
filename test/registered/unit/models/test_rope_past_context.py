"""RoPE tables reach to the last position that a verify block can have.

A verify block has its full width wherever it begins. The last ones of a request
lie past the context's end, on positions whose results are dropped, but which
are looked up all the same.
"""

import inspect
import unittest
from itertools import product
from types import SimpleNamespace
from unittest.mock import patch

import torch

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.kits.features import HAS_LENGTHS_IN_KV
from sglang.test.kits.spec_decode_kit import SpecDecodeTestCase

# isort: split
from sglang.srt.layers.rotary_embedding import base as rotary_embedding
from sglang.srt.models.deepseek_v4 import MqaAttentionBase
from sglang.srt.runtime_context import get_context, get_parallel, get_server_args
from sglang.srt.speculative.draft_worker_common import build_block_pos_offsets
from sglang.srt.utils.common import reserve_rope_cache_for_long_sequences

register_cpu_ci(est_time=20, suite="base-a-test-cpu")

CONTEXT_LEN = 600
PROMPT_LEN = 580


def dsv4_attention(layer_id):
    """An attention layer as the target and the DSPARK draft of DeepSeek-V4 have."""
    config = SimpleNamespace(
        model_type="deepseek_v4",
        hidden_size=16,
        head_dim=16,
        qk_rope_head_dim=8,
        num_attention_heads=2,
        num_key_value_heads=1,
        o_groups=2,
        q_lora_rank=8,
        o_lora_rank=8,
        q_head_norm=False,
        rms_norm_eps=1e-6,
        compress_ratios=[0, 4],
        compress_rope_theta=1e4,
        rope_theta=1e4,
        rope_parameters=None,
        rope_scaling={
            "rope_type": "yarn",
            "factor": 4,
            "original_max_position_embeddings": 64,
        },
        max_position_embeddings=CONTEXT_LEN,
    )
    parallel = get_parallel()
    ranks = dict.fromkeys(("tp_rank", "attn_tp_rank", "attn_cp_rank"), 0)
    sizes = dict.fromkeys(("tp_size", "attn_tp_size", "attn_cp_size"), 1)
    known = {
        name: value
        for name, value in (ranks | sizes).items()
        if hasattr(type(parallel), name)
    }
    with parallel.override(**known):
        return MqaAttentionBase(
            config,
            layer_id,
            None,
            "",
            fuse_wqa_wkv=False,
            wo_a_fp8=False,
            wo_b_reduce_results=False,
        )


class TestRopePastContext(SpecDecodeTestCase):
    def furthest_position(self, rig):
        """The furthest position of a request that runs to the context's end."""
        req = rig.make_req(prompt_len=PROMPT_LEN)
        # As the scheduler cuts it.
        max_new_tokens = (CONTEXT_LEN - 1) - PROMPT_LEN - 1
        width = rig.draft_tokens
        furthest, in_flight = 0, 0
        batch = rig.start([req])
        while len(req.output_ids) < max_new_tokens:
            batch.prepare_for_decode()
            lengths = req.kv if HAS_LENGTHS_IN_KV else req
            start = lengths.kv_committed_len + in_flight
            positions = start + build_block_pos_offsets(
                length=width, device=torch.device("cpu")
            )
            furthest = max(furthest, int(positions.max()))
            # The longest way: one token to the last that does not end it.
            left = max_new_tokens - len(req.output_ids) - 1 - in_flight
            accepted = min(left, width) if left > 0 else width
            rig.forward(batch, accepted)
            in_flight = accepted if rig.overlap else 0
        if rig.algorithm.is_eagle():
            # It drafts the next block from the end of this one.
            furthest += width - 1
        return furthest

    def for_each_case(self, check):
        fixed = product(("DFLASH", "DSPARK", "EAGLE"), (6, 16), (False,))
        for algorithm, width, adaptive in (*fixed, ("EAGLE", 4, True)):
            for overlap in (False, True):
                with self.subTest(
                    algorithm=algorithm,
                    width=width,
                    adaptive=adaptive,
                    overlap=overlap,
                ):
                    self.draft_tokens = width
                    # By default, adaptive EAGLE drafts up to 7 steps.
                    rig = self.make_rig(
                        algorithm=algorithm,
                        overlap=overlap,
                        draft_tokens=8 if adaptive else width,
                        max_context_len=2 * CONTEXT_LEN,
                        server_args=dict(speculative_adaptive=adaptive),
                    )
                    furthest = self.furthest_position(rig)
                    self.assertGreaterEqual(furthest, CONTEXT_LEN)
                    check(furthest)

    def test_deepseek_v4_tables_reach_the_last_block(self):
        def check(furthest):
            for layer_id in (0, 1):
                table = dsv4_attention(layer_id).freqs_cis
                self.assertGreater(len(table), furthest)

        self.for_each_case(check)

    def test_deepseek_v4_tables_are_three_blocks_longer(self):
        for width in (6, 16):
            with self.subTest(width=width):
                self.draft_tokens = width
                self.make_rig()
                table = dsv4_attention(0).freqs_cis
                self.assertEqual(len(table), CONTEXT_LEN + 3 * width)

    def test_deepseek_v4_tables_without_speculation(self):
        config = get_context().override_server_args(speculative_num_draft_tokens=None)
        config.install()
        self.addCleanup(config.restore)
        table = dsv4_attention(0).freqs_cis
        self.assertEqual(len(table), CONTEXT_LEN)

    def test_rotary_embedding_reaches_the_last_block(self):
        def check(furthest):
            # The device alone decides on the kernel.
            with patch.object(rotary_embedding, "_is_cpu", True):
                model = torch.nn.Sequential(
                    rotary_embedding.RotaryEmbedding(
                        8, 8, CONTEXT_LEN, 10000, True, torch.float32
                    )
                )
            config = SimpleNamespace(context_len=CONTEXT_LEN)
            wanted = inspect.signature(reserve_rope_cache_for_long_sequences).parameters
            args = (get_server_args(),) if "server_args" in wanted else ()
            reserve_rope_cache_for_long_sequences(model, *args, config)
            self.assertGreater(len(model[0].cos_sin_cache), furthest)

        self.for_each_case(check)


if __name__ == "__main__":
    unittest.main()
