"""The kit's CPU stand-ins do what the Triton kernels do.

The kernels run under Triton's interpreter, which has to be chosen before they
are imported: in a process of its own. A release whose allocator can extend without
Triton has no stand-in for that kernel.
"""

import os
import random
import subprocess
import sys
import unittest
from unittest.mock import patch

import torch

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.kits import spec_decode_kernels
from sglang.test.kits.spec_decode_kernels import cpu_stand_ins
from sglang.test.kits.spec_decode_pools import make_full_allocator
from sglang.test.test_utils import CustomTestCase

# isort: split
from sglang.srt.mem_cache import allocation
from sglang.srt.mem_cache.allocator import paged

register_cpu_ci(est_time=30, suite="base-a-test-cpu")

COMPARE = "--compare"
PAGE_SIZES = (2, 16, 64, 128, 256)
CASES_PER_PAGE_SIZE = 12
EXTENDS = hasattr(spec_decode_kernels, "_AllocExtend")


class TestKernelStandIns(CustomTestCase):
    def test_equal_to_the_interpreted_kernels(self):
        compared = subprocess.run(
            [sys.executable, "-W", "ignore", os.path.abspath(__file__), COMPARE],
            env=os.environ | {"TRITON_INTERPRET": "1"},
            capture_output=True,
            text=True,
        )
        self.assertEqual(compared.returncode, 0, compared.stderr[-2000:])
        cases = len(PAGE_SIZES) * CASES_PER_PAGE_SIZE
        self.assertEqual(compared.stdout.splitlines()[-1], f"{cases} cases equal")

    def test_installed_and_taken_out(self):
        kernel, assign = (
            paged.alloc_extend_kernel,
            allocation.assign_req_to_token_pool_func,
        )
        with cpu_stand_ins():
            self.assertEqual(paged.alloc_extend_kernel is not kernel, EXTENDS)
            self.assertIsNot(allocation.assign_req_to_token_pool_func, assign)
        self.assertIs(paged.alloc_extend_kernel, kernel)
        self.assertIs(allocation.assign_req_to_token_pool_func, assign)

    if not EXTENDS:

        def test_allocators_do_without_triton_on_a_gpu(self):
            from sglang.srt.platforms.cuda import CudaSRTPlatform

            with patch.object(paged, "current_platform", CudaSRTPlatform()):
                self.assertTrue(make_full_allocator(64, 16).use_triton_kernels)
                with cpu_stand_ins():
                    self.assertFalse(make_full_allocator(64, 16).use_triton_kernels)
                self.assertTrue(make_full_allocator(64, 16).use_triton_kernels)


def compare() -> int:
    """Run kernels and stand-ins on the same random batches; 0 if they agree."""
    rng = random.Random(0)
    cases = 0
    for page_size in PAGE_SIZES:
        for _ in range(CASES_PER_PAGE_SIZE):
            batch = random_batch(rng, page_size)
            slots = allocate(batch, page_size)
            with cpu_stand_ins():
                stand_in_slots = allocate(batch, page_size)
            table = assign(batch, slots)
            with cpu_stand_ins():
                stand_in_table = assign(batch, slots)
            if not torch.equal(slots, stand_in_slots):
                print(f"slots differ: {page_size=} {batch=}", file=sys.stderr)
                return 1
            if not torch.equal(table, stand_in_table):
                print(f"tables differ: {page_size=} {batch=}", file=sys.stderr)
                return 1
            cases += 1
    print(f"{cases} cases equal")
    return 0


def random_batch(rng: random.Random, page_size: int) -> dict:
    """Lengths before and after, the slot of the last token, and free pages."""
    bs = rng.choice((1, 2, 5, 33))
    before = [rng.choice((0, rng.randrange(4 * page_size))) for _ in range(bs)]
    after = [n + rng.choice((0, 1, 7, page_size, 3 * page_size + 1)) for n in before]
    pages = [rng.randrange(1, 1000) for _ in range(bs)]
    last_loc = [
        page * page_size + (n - 1) % page_size if n else -1
        for page, n in zip(pages, before)
    ]
    return dict(
        prefix_lens=torch.tensor(before, dtype=rng.choice((torch.int32, torch.int64))),
        seq_lens=torch.tensor(after, dtype=torch.int64),
        last_loc=torch.tensor(last_loc, dtype=torch.int64),
        free_pages=torch.tensor(rng.sample(range(1000, 9000), 8 * bs)),
        rows=torch.tensor(rng.sample(range(64), bs)),
    )


def allocate(batch: dict, page_size: int) -> torch.Tensor:
    before, after = batch["prefix_lens"], batch["seq_lens"]
    slots = torch.empty(int((after - before).sum()), dtype=torch.int64)
    bs = len(before)
    paged.alloc_extend_kernel[(bs,)](
        before,
        after,
        batch["last_loc"],
        batch["free_pages"],
        slots,
        1 << (bs - 1).bit_length(),
        page_size,
    )
    return slots


def assign(batch: dict, slots: torch.Tensor) -> torch.Tensor:
    table = torch.zeros((64, 2048), dtype=torch.int32)
    allocation.assign_req_to_token_pool_func(
        batch["rows"],
        table,
        batch["prefix_lens"],
        batch["seq_lens"],
        slots,
        len(batch["rows"]),
    )
    return table


if __name__ == "__main__":
    if COMPARE in sys.argv:
        sys.exit(compare())
    unittest.main()
