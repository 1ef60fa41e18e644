"""Any order of submissions, steps, stops, aborts, retractions and pool sizes."""

import logging
import os
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from decode_simulator.machine import DecodeMachine
from hypothesis import HealthCheck, Phase, Verbosity, settings

torch.set_num_threads(1)
# Each retraction is a warning.
logging.disable(logging.WARNING)
_COMMON = dict(
    deadline=None,
    database=None,
    print_blob=False,
    suppress_health_check=list(HealthCheck),
)
_PROFILES = {
    # The same examples each time, within a minute on one core.
    "ci": settings(
        phases=(Phase.generate,),
        report_multiple_bugs=False,
        max_examples=int(os.environ.get("DM_EX", "300")),
        stateful_step_count=30,
        derandomize=True,
        **_COMMON,
    ),
    "long": settings(max_examples=4_000, stateful_step_count=60, **_COMMON),
    # To find a defect, not to explain it.
    "find": settings(
        max_examples=200,
        stateful_step_count=30,
        derandomize=True,
        phases=(Phase.generate, Phase.shrink),
        verbosity=Verbosity.normal,
        **_COMMON,
    ),
}
_PROFILE = os.environ.get("DECODE_MACHINE_PROFILE", "ci")


class TestDecodeMachine(DecodeMachine.TestCase):
    settings = _PROFILES[_PROFILE]

    @classmethod
    def tearDownClass(cls) -> None:
        print(
            f"{DecodeMachine.turns_taken} turns of the event loop", DecodeMachine.totals
        )


if __name__ == "__main__":
    unittest.main()
