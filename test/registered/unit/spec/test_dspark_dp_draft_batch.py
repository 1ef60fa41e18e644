"""DSPARK's draft batches pass the CUDA-graph check under DP attention.

Every rank joins the draft forward, with a ForwardBatch that the proposer builds
itself instead of through ForwardBatch.init_new(): a busy rank for its requests,
an idle rank for its peers.
"""

import unittest
from dataclasses import fields
from types import SimpleNamespace

import torch

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
    make_draft_input_v2,
)
from sglang.srt.speculative.dspark_components.dspark_draft import (  # noqa: E402
    DraftBlockProposer,
)
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm  # noqa: E402

register_cpu_ci(est_time=12, suite="base-a-test-cpu")

GAMMA = 5
MAX_BS = 8


class _DraftForward(Exception):
    """The draft model's forward, which ends the test."""


def _bare(cls, **attributes):
    """An object of ``cls`` that has only what the code under test reads."""
    instance = cls.__new__(cls)
    vars(instance).update(attributes)
    return instance


def _batch(requests, requests_per_rank, logprob_tokens_per_rank):
    """This rank's batch of ``requests``, as the DP sync leaves it."""
    seq_lens = torch.arange(10, 10 + requests)
    batch = ScheduleBatch(
        reqs=[None] * requests,
        forward_mode=ForwardMode.DECODE if requests else ForwardMode.IDLE,
        req_pool_indices=torch.arange(requests),
        seq_lens=seq_lens,
        seq_lens_cpu=seq_lens,
        global_num_tokens=requests_per_rank,
        global_num_tokens_for_logprob=logprob_tokens_per_rank,
    )
    for field in fields(batch):
        if field.name in ("can_run_dp_cuda_graph", "can_run_decode_cuda_graph"):
            setattr(batch, field.name, True)
    return batch


class TestDSparkDPDraftBatch(CustomTestCase):
    def can_run_graph(self, *, requests, requests_per_rank, logprob_tokens_per_rank):
        """Whether the draft batch of a rank with ``requests`` can run in a graph
        that is captured for up to MAX_BS requests."""
        # A draft worker's runner never has ragged_verify_mode.
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

        def forward(forward_batch):
            answers.append(graph_runner.can_run_graph(forward_batch))
            raise _DraftForward

        proposer = _bare(
            DraftBlockProposer,
            gamma=GAMMA,
            query_token_num=GAMMA,
            sample_from_anchor=True,
            draft_model=SimpleNamespace(),
            _draft_block_ids_buf=None,
            _draft_block_spec_info=make_draft_block_spec_info(
                draft_token_num=GAMMA, device="cpu"
            ),
            _draft_sampler=None,
            _dp_moe_sync=True,
            _mask_token_id=0,
            _num_token_non_padded=None,
            draft_model_runner=SimpleNamespace(
                device="cpu",
                attn_backend=SimpleNamespace(needs_cpu_seq_lens=True),
                decode_cuda_graph_runner=graph_runner,
                kv_index_translator=SimpleNamespace(bind_own_plan=lambda batch: None),
                forward=forward,
            ),
        )
        batch = _batch(requests, requests_per_rank, logprob_tokens_per_rank)
        with get_parallel().override(moe_ep_size=1):
            with self.assertRaises(_DraftForward):
                if requests:
                    self.propose(proposer, batch)
                else:
                    proposer.run_idle_participation(batch)
        (answer,) = answers
        return answer

    def propose(self, proposer, batch):
        bs = len(batch.reqs)
        block = torch.zeros((bs, GAMMA + 1), dtype=torch.int64)
        proposer.propose(
            batch=batch,
            draft_input=make_draft_input_v2(
                bonus_tokens=torch.ones(bs, dtype=torch.int64),
                new_seq_lens=batch.seq_lens,
            ),
            verify_window=SimpleNamespace(
                positions_2d=block,
                verify_cache_loc_2d=block,
                kv_loc_plan=SimpleNamespace(bind=lambda *args, **kwargs: None),
            ),
            bs=bs,
            device="cpu",
            target_model=SimpleNamespace(
                get_input_embeddings=lambda: torch.nn.Embedding(2, 4)
            ),
            sampling_info=None,
        )

    # The busiest rank is never the first or last, and the logprob tokens of a
    # rank would decide otherwise, as would counting GAMMA tokens per request.

    def test_busiest_rank_fits_the_graph(self):
        for requests in (0, 2):
            with self.subTest(requests=requests):
                self.assertTrue(
                    self.can_run_graph(
                        requests=requests,
                        requests_per_rank=[requests, MAX_BS, 1],
                        logprob_tokens_per_rank=[0, MAX_BS + 1, 1],
                    )
                )

    def test_busiest_rank_exceeds_the_graph(self):
        for requests in (0, 2):
            with self.subTest(requests=requests):
                self.assertFalse(
                    self.can_run_graph(
                        requests=requests,
                        requests_per_rank=[requests, MAX_BS + 1, 1],
                        logprob_tokens_per_rank=[0, MAX_BS, 1],
                    )
                )


if __name__ == "__main__":
    unittest.main()
