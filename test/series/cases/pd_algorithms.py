"""What becomes of each speculative algorithm on a decode node of PD.

Prints one JSON object per line, for an algorithm with or without overlap:
whether start-up refuses it, and what goes wrong with two requests that arrive
one after the other, in the release's own code up to the draft model.
"""

from __future__ import annotations

import json
import sys
import traceback
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import torch

from sglang.test.kits.pd_handoff_kit import PDHandoffRig, PDHandoffTestCase

# isort: split
import sglang
from sglang.srt.arg_groups.speculative_hook import handle_speculative_decoding
from sglang.srt.managers import overlap_utils
from sglang.srt.managers.overlap_utils import RelayPayload, resolve_forward_inputs
from sglang.srt.runtime_context import get_server_args
from sglang.srt.server_args import ServerArgs
from sglang.srt.speculative.eagle_info import EagleDraftInput
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

ROOT = Path(sglang.__file__).parent
HIDDEN_SIZE = 4


class ReachedDraftModel(Exception):
    """The worker took its input and goes on to the model."""


class Probe(PDHandoffTestCase):
    def runTest(self) -> None: ...

    def follow(self, algorithm: str, overlap: bool) -> list[str]:
        """Take two requests through the node; returns what went wrong."""
        rig = self.make_pd_rig(algorithm=algorithm, overlap=overlap)
        rig.scheduler.model_config.hf_config = SimpleNamespace()
        wrong = []
        try:
            for rid in ("r0", "r1"):
                arrive(rig, rid)
                batch = rig.schedule()
                resolve(rig, batch)
                rows = rows_drafted(rig.algorithm, batch)
                if rows != len(batch.reqs):
                    wrong.append(f"the draft has {rows} rows for {len(batch.reqs)}")
                relay_result(rig, batch)
        except Exception as error:
            wrong.append(f"{where(error)}() raises {describe(error)}")
        return wrong


def is_refused(algorithm: SpeculativeAlgorithm) -> bool:
    """Whether the argument handling refuses the algorithm on a decode node."""
    server_args = ServerArgs(
        model_path="dummy",
        disaggregation_mode="decode",
        speculative_algorithm=algorithm.name,
    )
    with patch.object(SpeculativeAlgorithm, "handle_server_args"):
        try:
            handle_speculative_decoding(server_args)
        except ValueError:
            return True
    return False


def rows_drafted(algorithm: SpeculativeAlgorithm, batch) -> int:
    """How many rows the algorithm's own worker takes to the draft model."""
    try:
        enter_worker(algorithm, batch)
    except ReachedDraftModel:
        pass
    return len(batch.spec_info.bonus_tokens)


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
        draft_tp_context=lambda group, **options: nullcontext(),
        draft_owns_attention=False,
        parallel_layout=SimpleNamespace(tp_group=None, disable_cp=False),
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

        draft_worker.topk = 1
        draft_worker._position_for_batch = reached
        draft_worker.draft = partial(FrozenKVMTPDraftWorker.draft, draft_worker)
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


def gather(indices, *buffers):
    """The contract of the kernel that reads several relay buffers at once."""
    return tuple(None if buffer is None else buffer[indices] for buffer in buffers)


def where(error: Exception) -> str:
    """The released functions that led to an error, outermost of the batch first."""
    frames = traceback.extract_tb(error.__traceback__)
    released = [f for f in frames if Path(f.filename).is_relative_to(ROOT / "srt")]
    return released[-1].name


def describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".rstrip(": ")


def main() -> None:
    for algorithm in SpeculativeAlgorithm:
        if algorithm.is_none():
            continue
        for overlap in (True, False):
            probe = Probe()
            probe.setUp()
            with patch.object(overlap_utils, "gather_spec_extras", gather):
                wrong = probe.follow(algorithm.name, overlap)
            probe.doCleanups()
            record = dict(
                algorithm=algorithm.name,
                overlap=overlap,
                refused=is_refused(algorithm),
                wrong=wrong,
            )
            print(json.dumps(record), flush=True)


if __name__ == "__main__":
    sys.exit(main())
