"""A decode node refuses, at start-up, the algorithms it has no draft input for."""

import unittest
from unittest.mock import patch

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.srt.arg_groups.speculative_hook import (  # noqa: E402
    handle_speculative_decoding,
)
from sglang.srt.server_args import ServerArgs  # noqa: E402
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm  # noqa: E402

register_cpu_ci(est_time=12, suite="base-a-test-cpu")

ALGORITHMS = {algo.name for algo in SpeculativeAlgorithm if not algo.is_none()}
WITHOUT_DECODE_PATH = ALGORITHMS & {"FROZEN_KV_MTP", "NGRAM", "STANDALONE", "UNO"}


def resolve(algorithm, mode):
    """Resolve the arguments up to what is the algorithm's own."""
    server_args = ServerArgs(
        model_path="dummy", disaggregation_mode=mode, speculative_algorithm=algorithm
    )
    with patch.object(SpeculativeAlgorithm, "handle_server_args"):
        handle_speculative_decoding(server_args)


class TestDisaggDecodeSpec(CustomTestCase):
    def test_refuses_what_has_no_decode_path_and_nothing_else(self):
        refused = set()
        for algorithm in ALGORITHMS:
            for mode in ("null", "prefill", "decode"):
                try:
                    resolve(algorithm, mode)
                except ValueError:
                    refused.add((algorithm, mode))

        self.assertEqual(refused, {(name, "decode") for name in WITHOUT_DECODE_PATH})

    def test_says_what_and_why(self):
        for algorithm in WITHOUT_DECODE_PATH:
            with self.subTest(algorithm=algorithm):
                with self.assertRaises(ValueError) as caught:
                    resolve(algorithm.lower(), "decode")
                self.assertIn(
                    f"--speculative-algorithm {algorithm}", str(caught.exception)
                )
                self.assertIn("--disaggregation-mode decode", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
