"""The DSV4 compress-state pool drains under DFLASH and DSPARK.

On the NPU each request owns slots of a small state pool and gives them back
inside ``maybe_evict_swa``, at every decode step and whatever the SWA cadence.
"""

import unittest

import torch

from sglang.srt.mem_cache.allocator import TokenToKVPoolAllocator
from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.kits.spec_decode_kit import SpecDecodeRig, SpecDecodeTestCase

register_cpu_ci(est_time=12, suite="base-a-test-cpu")

# Trailing positions whose c4 state a decode step may still read.
C4_RETENTION = 8 + 16


def attach_c4_state_pool(rig: SpecDecodeRig, size: int) -> TokenToKVPoolAllocator:
    """Give ``rig`` what the NPU's allocator and request table have beyond ours."""
    states = TokenToKVPoolAllocator(size, torch.float16, "cpu", None, False)
    rig.allocator.c4_state_attn_allocator = states
    rig.allocator.c128_state_attn_allocator = None
    table = torch.zeros_like(rig.req_to_token_pool.req_to_token)
    rig.req_to_token_pool.req_to_token_c4_state = table
    return states


class TestDsv4StateDrain(SpecDecodeTestCase):
    # Far more than the steps taken here, so that no SWA eviction rides along.
    eviction_interval = 10_000

    def test_every_decode_step_drains(self):
        for algorithm in ("DFLASH", "DSPARK"):
            with self.subTest(algorithm=algorithm):
                rig = self.make_rig(algorithm=algorithm)
                states = attach_c4_state_pool(rig, size=256)
                req = rig.make_req(prompt_len=100)
                batch = rig.start([req])
                row = rig.req_to_token_pool.req_to_token_c4_state[req.req_pool_idx]
                row[:200] = states.alloc(200).to(row.dtype)
                for _ in range(20):
                    rig.step(batch, accepted=2)
                    # 100 of the prompt, the first token and all steps but the last.
                    watermark = req.seqlen - 2 - 1 - C4_RETENTION
                    self.assertEqual(states.available_size(), 256 - 200 + watermark)


if __name__ == "__main__":
    unittest.main()
