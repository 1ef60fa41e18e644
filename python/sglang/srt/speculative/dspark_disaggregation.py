from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from sglang.srt.speculative.dflash_disaggregation import (
    build_dflash_disagg_draft_input,
)

if TYPE_CHECKING:
    from sglang.srt.managers.overlap_utils import FutureMap
    from sglang.srt.managers.schedule_batch import ScheduleBatch
    from sglang.srt.server_args import ServerArgs
    from sglang.srt.speculative.dflash_info_v2 import DFlashDraftInputV2


def build_dspark_disagg_draft_input(
    batch: ScheduleBatch,
    server_args: ServerArgs,
    last_tokens_tensor: torch.Tensor,
    future_map: FutureMap,
) -> DFlashDraftInputV2:
    # DSPARK carries DFLASH's draft state from step to step.
    return build_dflash_disagg_draft_input(
        batch, server_args, last_tokens_tensor, future_map
    )
