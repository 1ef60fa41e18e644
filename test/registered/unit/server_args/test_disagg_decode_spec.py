"""A decode node refuses, at start-up, the algorithms that cannot serve on one."""

import json
import tempfile
import unittest
from pathlib import Path
from unittest.mock import patch

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.srt.arg_groups.speculative_hook import (  # noqa: E402
    handle_speculative_decoding,
)
from sglang.srt.server_args import ServerArgs  # noqa: E402
from sglang.srt.speculative import spec_registry  # noqa: E402
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm  # noqa: E402

register_cpu_ci(est_time=12, suite="base-a-test-cpu")

MODES = ("null", "prefill", "decode")
IN_TREE = {algo.name for algo in SpeculativeAlgorithm if not algo.is_none()}
REFUSED = IN_TREE & {"FROZEN_KV_MTP", "NGRAM", "STANDALONE", "UNO"}
SUPPORTED = "DFLASH, DSPARK, EAGLE or EAGLE3"


def refusal(algorithm, mode="decode", draft_model=None):
    """Resolve the arguments up to the algorithm's own; what refuses them."""
    server_args = ServerArgs(
        model_path="dummy",
        disaggregation_mode=mode,
        speculative_algorithm=algorithm,
        speculative_draft_model_path=draft_model,
    )
    with patch.object(SpeculativeAlgorithm, "handle_server_args"):
        try:
            handle_speculative_decoding(server_args)
        except ValueError as error:
            return str(error)


class TestDisaggDecodeSpec(CustomTestCase):
    def draft_model(self, architecture):
        """The path of a draft model of this architecture."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        config = {"model_type": "llama", "architectures": [architecture]}
        path = Path(folder.name, "config.json")
        path.write_text(json.dumps(config), encoding="utf-8")
        return folder.name

    def test_refuses_what_cannot_serve_and_nothing_else(self):
        refused = {
            (algorithm, mode)
            for algorithm in IN_TREE
            for mode in MODES
            if refusal(algorithm, mode) is not None
        }
        self.assertEqual(refused, {(name, "decode") for name in REFUSED})

    def test_names_the_flags_and_the_alternatives(self):
        for algorithm in REFUSED:
            with self.subTest(algorithm=algorithm):
                message = refusal(algorithm.lower())
                self.assertIsNotNone(message)
                self.assertIn(
                    f"--speculative-algorithm {algorithm} does not support "
                    "--disaggregation-mode decode",
                    message,
                )
                self.assertIn(f"Use {SUPPORTED}, or", message)
                self.assertNotIn("resolves", message)

    def test_names_the_draft_model_that_changes_the_algorithm(self):
        gemma4 = self.draft_model("Gemma4AssistantForCausalLM")
        for given in ("EAGLE", "NEXTN"):
            with self.subTest(given=given):
                message = refusal(given, draft_model=gemma4)
                self.assertIsNotNone(message)
                self.assertIn(
                    f"--speculative-algorithm {given} with the Gemma4 draft model "
                    f"{gemma4} resolves to FROZEN_KV_MTP, which does not support "
                    "--disaggregation-mode decode",
                    message,
                )
                self.assertIn("Use another draft model, or", message)
                self.assertNotIn(SUPPORTED, message)

                other = self.draft_model("LlamaForCausalLM")
                self.assertIsNone(refusal(given, draft_model=other))
                self.assertIsNone(refusal(given, "null", draft_model=gemma4))

    def test_takes_a_decode_node_without_speculation(self):
        for mode in MODES:
            self.assertIsNone(refusal(None, mode))

    def test_takes_a_registered_algorithm(self):
        with patch.dict(spec_registry._REGISTRY):
            SpeculativeAlgorithm.register("PLUGIN")(lambda server_args: None)
            for mode in MODES:
                self.assertIsNone(refusal("plugin", mode))


if __name__ == "__main__":
    unittest.main()
