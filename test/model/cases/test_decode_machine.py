"""Any order of submissions, steps, stops, aborts, retractions and pool sizes.

    DECODE_MACHINE_PROFILE=long python3 test_decode_machine.py

runs for minutes, with examples that differ each time; DECODE_MACHINE_CHECKS names
the invariants to check.
"""

import logging
import os
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from decode_simulator.machine import DecodeMachine
from hypothesis import HealthCheck, Phase, settings

torch.set_num_threads(1)
# Each retraction is a warning, and each abort of a transfer an error.
logging.disable(logging.ERROR)
_COMMON = dict(
    deadline=None,
    database=None,
    print_blob=False,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)
_PROFILES = {
    # The same examples each time. What they find is not made smaller: that would
    # take longer than all of them.
    "ci": settings(
        max_examples=150,
        stateful_step_count=30,
        derandomize=True,
        phases=(Phase.generate,),
        **_COMMON,
    ),
    "long": settings(max_examples=2_500, stateful_step_count=50, **_COMMON),
}


class TestDecodeMachine(DecodeMachine.TestCase):
    settings = _PROFILES[os.environ.get("DECODE_MACHINE_PROFILE", "ci")]

    @classmethod
    def tearDownClass(cls) -> None:
        print(", ".join(f"{n} {name}" for name, n in DecodeMachine.totals.items()))


if __name__ == "__main__":
    unittest.main()
