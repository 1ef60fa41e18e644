"""The IDLE draft batch of DSPARK passes the CUDA-graph gate under DP attention.

A rank without requests still joins its peers' draft forward, with a batch that
is built by hand and not by ForwardBatch.init_new.
"""

import unittest
from dataclasses import fields
from types import SimpleNamespace

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.srt.managers.schedule_batch import ScheduleBatch  # noqa: E402
from sglang.srt.model_executor.forward_batch_info import (  # noqa: E402
    CaptureHiddenMode,
    ForwardMode,
)
from sglang.srt.model_executor.runner.decode_cuda_graph_runner import (  # noqa: E402
    DecodeCudaGraphRunner,
)
from sglang.srt.runtime_context import get_parallel  # noqa: E402
from sglang.srt.speculative.draft_worker_common import (  # noqa: E402
    make_draft_block_spec_info,
)
from sglang.srt.speculative.dspark_components.dspark_draft import (  # noqa: E402
    DraftBlockProposer,
)
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm  # noqa: E402

register_cpu_ci(est_time=12, suite="base-a-test-cpu")

GAMMA = 5
MAX_BS = 8


def _bare(cls, **attributes):
    """An object of ``cls`` that has only what the code under test reads."""
    instance = cls.__new__(cls)
    vars(instance).update(attributes)
    return instance


def _idle_batch(requests_per_rank):
    batch = ScheduleBatch(
        reqs=[],
        forward_mode=ForwardMode.IDLE,
        global_num_tokens=requests_per_rank,
        global_num_tokens_for_logprob=requests_per_rank,
    )
    for field in fields(batch):
        if field.name in ("can_run_dp_cuda_graph", "can_run_decode_cuda_graph"):
            setattr(batch, field.name, True)
    return batch


class TestDSparkIdleDraftBatch(CustomTestCase):
    def gate(self, requests_per_rank):
        """What the draft's graph gate says to the batch of an idle rank."""
        graph_runner = _bare(
            DecodeCudaGraphRunner,
            model_runner=SimpleNamespace(spec_algorithm=SpeculativeAlgorithm.DSPARK),
            ragged_verify_mode=False,
            captured_req_width=GAMMA,
            capture_hidden_mode=CaptureHiddenMode.NULL,
            require_mlp_tp_gather=True,
            require_mlp_sync=True,
            enable_pdmux=False,
            enable_two_batch_overlap=False,
            is_encoder_decoder=False,
            record_nolora_graph=False,
            disable_padding=False,
            max_bs=MAX_BS,
        )
        answers = []
        proposer = _bare(
            DraftBlockProposer,
            _dp_moe_sync=True,
            _num_token_non_padded=None,
            _draft_block_spec_info=make_draft_block_spec_info(
                draft_token_num=GAMMA, device="cpu"
            ),
            draft_model_runner=SimpleNamespace(
                device="cpu",
                kv_index_translator=SimpleNamespace(bind_own_plan=lambda batch: None),
                forward=lambda batch: answers.append(graph_runner.can_run_graph(batch)),
            ),
        )
        with get_parallel().override(moe_ep_size=1):
            proposer.run_idle_participation(_idle_batch(requests_per_rank))
        (answer,) = answers
        return answer

    def test_busy_peers_within_the_captured_size(self):
        # Counted in draft tokens, MAX_BS requests would not fit.
        self.assertTrue(self.gate([0, 3, MAX_BS]))

    def test_a_peer_beyond_the_captured_size(self):
        self.assertFalse(self.gate([0, MAX_BS + 1]))


if __name__ == "__main__":
    unittest.main()
