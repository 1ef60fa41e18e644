"""An overload: more requests than the pools of a node hold, until all have ended.

    PYTHONPATH=TREE/python:... python overload.py [--cache KIND] [--page-size N]

prints what became of them as one JSON object. Run it on a release and on the
patched release; only the tree on the path differs.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import sys
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parent))

from decode_simulator.config import NodeConfig  # noqa: E402
from decode_simulator.forward import Uniform  # noqa: E402
from decode_simulator.node import Node  # noqa: E402

WINDOW = 128
SWA_RATIO = 0.1


@dataclass(frozen=True)
class Overload:
    """Requests of different lengths that all arrive at once.

    Attributes:
        cache, page_size, algorithm: of the node.
        full_size: its full-attention pool, in tokens; the SWA pool is a tenth.
        requests: how many there are, and as many rows has the request table.
        prompt_len, output_len: the longest; each is drawn from half to all of it.
        shared_prompts: how many different prompts there are; 0 for one each.
        disaggregation: ``null``, or ``decode`` for the decode side of a pair.
        host_copy: whether the KV pool can copy to the host, 1 or 0.
        seed: of the lengths and of what the forwards accept.
    """

    cache: str = "chunk"
    page_size: int = 1
    algorithm: str = "DSPARK"
    full_size: int = 65_536
    requests: int = 96
    prompt_len: int = 64
    output_len: int = 600
    shared_prompts: int = 0
    disaggregation: str = "null"
    host_copy: int = 1
    seed: int = 0


@dataclass(frozen=True)
class Outcome:
    """What became of the requests, as counts.

    Attributes:
        hit_rate: the part of all prompt tokens that the prefix cache held.
        died: the exception that ended the server, or nothing.
    """

    finished: int
    aborted: int
    retracted: int
    decode_steps: int
    reprefilled_tokens: int
    hit_rate: float
    died: str


def run(load: Overload) -> Outcome:
    """Serve ``load`` to the end."""
    lengths = random.Random(load.seed)
    swa_size = int(load.full_size * SWA_RATIO) // load.page_size * load.page_size
    config = NodeConfig(
        full_size=load.full_size,
        swa_size=swa_size,
        page_size=load.page_size,
        sliding_window=WINDOW,
        cache=load.cache,
        algorithm=load.algorithm,
        max_reqs=load.requests,
        max_context_len=load.prompt_len + load.output_len,
        disaggregation=load.disaggregation,
    )
    host_copy = nullcontext() if load.host_copy else _without_host_copy()
    died = ""
    with host_copy, Node(config, Uniform(load.seed)) as node:
        for number in range(load.requests):
            prompts = load.shared_prompts or load.requests
            node.submit(
                rid=f"r{number}",
                first_token=number % prompts * 2 + 1,
                prompt_len=lengths.randint(load.prompt_len // 2, load.prompt_len),
                max_new_tokens=lengths.randint(load.output_len // 2, load.output_len),
            )
        try:
            while not node.idle:
                node.turn()
        except Exception as error:
            died = f"{type(error).__name__}: {error}".splitlines()[0]
        counters = node.counters
        return Outcome(
            finished=len(counters.finished),
            aborted=len(counters.aborted),
            retracted=counters.retracted,
            decode_steps=counters.decode_steps,
            reprefilled_tokens=counters.reprefilled_tokens,
            hit_rate=round(counters.hit_rate, 4),
            died=died,
        )


def _without_host_copy():
    """Pools raise from ``get_cpu_copy``, as those that have none do."""
    from sglang.srt.mem_cache.memory_pool import KVCache
    from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool

    return patch.object(SWAKVPool, "get_cpu_copy", KVCache.get_cpu_copy)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    defaults = Overload()
    for name, value in asdict(defaults).items():
        option = "--" + name.replace("_", "-")
        parser.add_argument(option, type=type(value), default=value)
    load = Overload(**vars(parser.parse_args()))
    logging.disable(logging.WARNING)
    print(json.dumps({"load": asdict(load), "outcome": asdict(run(load))}))


if __name__ == "__main__":
    main()
