"""A registered algorithm answers whatever the scheduler asks a builtin one."""

import inspect
import unittest
from types import SimpleNamespace
from unittest.mock import patch

import torch
from transformers import PretrainedConfig

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.kits.spec_decode_kit import SpecDecodeTestCase

# isort: split
from sglang.srt.disaggregation.utils import DisaggregationMode
from sglang.srt.managers.overlap_utils import FutureMap, RelayPayload
from sglang.srt.managers.scheduler import Scheduler
from sglang.srt.runtime_context import get_server_args
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
from sglang.srt.speculative.spec_registry import (
    _REGISTRY,
    CustomSpecAlgo,
    _assert_custom_spec_algo_conforms,
)

register_cpu_ci(est_time=12, suite="base-a-test-cpu")

INTERFACE = sorted(
    name
    for name, member in vars(SpeculativeAlgorithm).items()
    if inspect.isfunction(member) and not name.startswith("_")
)
ROWS = torch.tensor([1, 2])


class EagleLike(CustomSpecAlgo):
    def is_eagle(self) -> bool:
        return True


class StandaloneLike(CustomSpecAlgo):
    def is_standalone(self) -> bool:
        return True


class RegisteredTestCase(SpecDecodeTestCase):
    def register(self, spec_class=CustomSpecAlgo, **options) -> CustomSpecAlgo:
        registry = patch.dict(_REGISTRY, clear=True)
        registry.start()
        self.addCleanup(registry.stop)
        register = SpeculativeAlgorithm.register(
            "MINE", supports_overlap=True, spec_class=spec_class, **options
        )
        register(lambda server_args: object)
        return SpeculativeAlgorithm.from_string("MINE")


class CompleteTestCase(RegisteredTestCase):
    def register(self, *args, **options) -> CustomSpecAlgo:
        algorithm = super().register(*args, **options)
        missing = [name for name in INTERFACE if not hasattr(algorithm, name)]
        self.assertEqual(missing, [])
        return algorithm


class TestInterface(CompleteTestCase):
    def test_has_every_public_method(self):
        self.assertIn("create_future_map", INTERFACE)
        self.register()

    def test_takes_what_the_builtin_takes(self):
        self.register()
        for name in INTERFACE:
            with self.subTest(name=name):
                builtin = inspect.signature(getattr(SpeculativeAlgorithm, name))
                mine = inspect.signature(getattr(CustomSpecAlgo, name))
                self.assertEqual(
                    [(p.name, p.default) for p in mine.parameters.values()],
                    [(p.name, p.default) for p in builtin.parameters.values()],
                )

    def test_registration_names_every_missing_method(self):
        for absent in ("create_future_map", "need_topk", "is_some"):
            with self.subTest(absent=absent):
                body = {name: None for name in INTERFACE if name != absent}
                with self.assertRaisesRegex(TypeError, rf"\['{absent}'\]"):
                    _assert_custom_spec_algo_conforms(type("Broken", (), body))

    def test_answers_follow_the_predicates_of_a_subclass(self):
        for spec_class, topk, hidden in (
            (CustomSpecAlgo, False, False),
            (EagleLike, True, True),
            (StandaloneLike, True, False),
        ):
            with self.subTest(spec_class=spec_class.__name__):
                algorithm = self.register(spec_class)
                self.assertEqual(algorithm.need_topk(), topk)
                self.assertEqual(algorithm.carries_draft_hidden_states(), hidden)
                # A release may ask which worker a platform puts in its place.
                for name in {"get_platform_worker_cls"}.intersection(INTERFACE):
                    self.assertIsNone(getattr(algorithm, name)())


class TestSchedulerInit(RegisteredTestCase):
    def make_scheduler(self, algorithm, *, enable_overlap: bool) -> Scheduler:
        """A scheduler that has only what the two steps of its start read."""
        rig = self.make_rig(algorithm="MINE")
        runner = SimpleNamespace(attn_backend=SimpleNamespace(needs_cpu_seq_lens=True))
        scheduler = Scheduler.__new__(Scheduler)
        vars(scheduler).update(
            device="cpu",
            server_args=get_server_args(),
            model_config=SimpleNamespace(hf_config=PretrainedConfig()),
            spec_algorithm=algorithm,
            req_to_token_pool=rig.req_to_token_pool,
            token_to_kv_pool_allocator=rig.allocator,
            draft_worker=None,
            tp_worker=SimpleNamespace(model_runner=runner),
            forward_stream=torch.cpu.current_stream(),
            enable_overlap=enable_overlap,
            enable_unified_memory=False,
        )
        return scheduler

    def test_starts_without_disaggregation(self):
        scheduler = self.make_scheduler(self.register(), enable_overlap=True)
        scheduler.init_disaggregation()
        self.assertEqual(scheduler.disaggregation_mode, DisaggregationMode.NULL)

    def test_gets_a_relay_of_its_algorithm(self):
        for enable_overlap in (False, True):
            with self.subTest(enable_overlap=enable_overlap):
                algorithm = self.register()
                scheduler = self.make_scheduler(
                    algorithm, enable_overlap=enable_overlap
                )
                scheduler.init_overlap()
                self.assertIs(scheduler.future_map.spec_algo, algorithm)
                self.assertTrue(scheduler.future_map.needs_cpu_seq_lens)
                self.assertFalse(scheduler.future_map.needs_confidence_relay)


class TestRelay(CompleteTestCase):
    def stash(self, spec_class, **options) -> FutureMap:
        """The relay of an algorithm after a step with top-k."""
        algorithm = self.register(spec_class)
        rig = self.make_rig(algorithm="MINE")
        future_map = algorithm.create_future_map(
            torch.device("cpu"), rig.req_to_token_pool, **options
        )
        payload = RelayPayload(
            bonus_tokens=torch.tensor([7, 8]),
            topk_p=torch.tensor([[0.5], [0.25]]),
            topk_index=torch.tensor([[3], [4]]),
        )
        future_map.stash(ROWS, payload)
        return future_map

    def test_keeps_the_bonus_tokens_alone(self):
        future_map = self.stash(CustomSpecAlgo)
        self.assertEqual(future_map.output_tokens_buf[ROWS].tolist(), [7, 8])
        self.assertFalse(future_map.need_topk)

    def test_keeps_the_top_k_of_a_subclass_like_eagle(self):
        future_map = self.stash(EagleLike)
        self.assertEqual(future_map.topk_index_buf[ROWS].tolist(), [[3], [4]])

    def test_is_configured_as_asked(self):
        future_map = self.stash(
            CustomSpecAlgo, needs_cpu_seq_lens=False, needs_confidence_relay=True
        )
        self.assertFalse(future_map.needs_cpu_seq_lens)
        self.assertTrue(future_map.needs_confidence_relay)


if __name__ == "__main__":
    unittest.main()
