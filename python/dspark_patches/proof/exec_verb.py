"""``dspark-patches exec``: Python, with a tree as its sglang."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from ..errors import Usage
from . import runner


@click.command(
    name="exec",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("tree", type=click.Path(path_type=Path, file_okay=False, exists=True))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, required=True)
def command(tree: Path, arguments: tuple[str, ...]) -> None:
    """Run Python with ARGUMENTS, TREE being the sglang that it imports.

    TREE is a folder that holds python/sglang, such as one that `verify --keep`
    left or a checkout. Python runs in TREE and takes this process's place.

    \b
    Examples:
      dspark-patches exec /tmp/trees/v0.5.16/patched \\
          test/registered/unit/spec/test_x.py -f
      dspark-patches exec ~/sglang -c "import sglang; print(sglang.__file__)"
    """
    root = tree.resolve()
    if not (root / "python" / "sglang").is_dir():
        raise Usage(
            f"{tree} holds no python/sglang",
            next_step="make a tree with `dspark-patches verify RELEASE --keep DIR`",
        )
    environment = runner.environment(root)
    os.chdir(root)
    os.execve(sys.executable, [sys.executable, *arguments], environment)
