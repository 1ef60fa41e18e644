"""What becomes of each speculative algorithm on a decode node of PD.

Prints one JSON object per line: an algorithm, with and without overlap, and how
far two requests that arrive one after the other come in the release's own code,
up to the draft model: ``works``, or the function that stops them and how.
"""

from __future__ import annotations

import json
import sys
import traceback
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import torch

from sglang.test.kits.pd_handoff_kit import PDHandoffRig, PDHandoffTestCase

# isort: split
import sglang
from sglang.srt.managers.overlap_utils import RelayPayload, resolve_forward_inputs
from sglang.srt.runtime_context import get_server_args
from sglang.srt.speculative.eagle_info import EagleDraftInput
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

ROOT = Path(sglang.__file__).parent
HIDDEN_SIZE = 4


class ReachedDraftModel(Exception):
    """The worker took its input and goes on to the model."""


class Probe(PDHandoffTestCase):
    def runTest(self) -> None: ...

    def follow(self, algorithm: str, overlap: bool) -> str:
        """Take two requests through the node; returns what became of them."""
        rig = self.make_pd_rig(algorithm=algorithm, overlap=overlap)
        try:
            for rid in ("r0", "r1"):
                arrive(rig, rid)
                batch = rig.schedule()
                resolve(rig, batch)
                self.draft(rig, batch)
                relay_result(rig, batch)
        except Exception as error:
            return f"{where(error)}: {describe(error)}"
        return "works"

    def draft(self, rig: PDHandoffRig, batch) -> None:
        """Hand the batch to the algorithm's own worker."""
        try:
            enter_worker(rig.algorithm, batch)
        except ReachedDraftModel:
            rows = len(batch.spec_info.bonus_tokens)
            if rows != len(batch.reqs):
                raise RuntimeError(
                    f"drafts from {rows} rows for {len(batch.reqs)} request"
                ) from None


def arrive(rig: PDHandoffRig, rid: str) -> None:
    """A request, with all that the transfer may bring along."""
    req = rig.make_req(prompt_len=20, rid=rid)
    rig.arrive([req], bonus_tokens=[7])
    req.output_topk_p = torch.ones(16)
    req.output_topk_index = torch.ones(16, dtype=torch.int64)
    req.hidden_states_tensor = torch.zeros(HIDDEN_SIZE)
    req.output_dsa_topk_indices = None


def resolve(rig: PDHandoffRig, batch) -> None:
    if rig.overlap:
        rig.future_map.resolve_seq_lens_cpu(batch)
    resolve_forward_inputs(batch, rig.future_map)


def enter_worker(algorithm: SpeculativeAlgorithm, batch) -> None:
    """Run the worker's decode entry until it turns to the draft model."""
    if algorithm.is_dflash_family():
        raise ReachedDraftModel
    worker_class = algorithm.create_worker(get_server_args())
    if algorithm.is_ngram():
        worker = bare(worker_class, enable_overlap=batch.enable_overlap)
        worker.draft_token_num, worker.max_trie_depth = 6, 18
        worker.ngram_corpus = SimpleNamespace(synchronize=reached)
        worker._prepare_draft_tokens(batch)
    draft_worker = SimpleNamespace(
        draft=reached,
        draft_tp_context=lambda group: nullcontext(),
        draft_runner=SimpleNamespace(
            tp_group=None,
            spec_algorithm=algorithm,
            model_config=SimpleNamespace(hidden_size=HIDDEN_SIZE, dtype=torch.float16),
        ),
    )
    if algorithm.is_frozen_kv_mtp():
        from sglang.srt.speculative.frozen_kv_mtp_worker_v2 import (
            FrozenKVMTPDraftWorker,
        )

        draft_worker = bare(FrozenKVMTPDraftWorker, **vars(draft_worker))
        del draft_worker.draft
        draft_worker.topk = 1
        draft_worker._position_for_batch = reached
    worker = bare(
        worker_class,
        speculative_algorithm=algorithm,
        speculative_num_steps=5,
        topk=1,
        device="cpu",
        adaptive_controller=None,
        _draft_worker=draft_worker,
        _target_worker=SimpleNamespace(model_config=SimpleNamespace(vocab_size=256)),
    )
    worker.forward_batch_generation(batch)


def relay_result(rig: PDHandoffRig, batch) -> None:
    """What a forward of the batch leaves for the next iteration."""
    if rig.algorithm.is_dflash_family():
        rig.set_draft_input(batch)
    else:
        rows = len(batch.reqs)
        batch.spec_info = EagleDraftInput(
            topk_p=torch.ones(rows, 1),
            topk_index=torch.ones(rows, 1, dtype=torch.int64),
            hidden_states=torch.zeros(rows, HIDDEN_SIZE),
            bonus_tokens=torch.ones(rows, dtype=torch.int64),
        )
    if rig.overlap:
        indices = batch.spec_info.future_indices = batch.req_pool_indices
        rig.future_map.publish(indices, batch.seq_lens)
        rig.future_map.stash(indices, RelayPayload.from_draft_input(batch.spec_info))


def bare(cls, **attributes):
    """An object of ``cls`` that has only what the code under test reads."""
    instance = cls.__new__(cls)
    vars(instance).update(attributes)
    return instance


def reached(*args, **kwargs):
    raise ReachedDraftModel


def where(error: Exception) -> str:
    """The released functions that led to an error, outermost of the batch first."""
    frames = traceback.extract_tb(error.__traceback__)
    released = [f for f in frames if Path(f.filename).is_relative_to(ROOT / "srt")]
    return released[-1].name if released else "the worker's draft"


def describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".rstrip(": ")


def main() -> None:
    for algorithm in SpeculativeAlgorithm:
        if algorithm.is_none():
            continue
        for overlap in (True, False):
            probe = Probe()
            probe.setUp()
            try:
                outcome = probe.follow(algorithm.name, overlap)
            finally:
                probe.doCleanups()
            record = dict(algorithm=algorithm.name, overlap=overlap, outcome=outcome)
            print(json.dumps(record), flush=True)


if __name__ == "__main__":
    sys.exit(main())
