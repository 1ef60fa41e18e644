"""What every task on a node has."""

from __future__ import annotations

import msgspec

from .config import NodeConfig
from .forward import Accepted, acceptance
from .node import Node


class NodeTask(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration; for ``accepted`` see :func:`.forward.acceptance`."""

    node: NodeConfig
    seed: int = 0
    accepted: Accepted = None

    def open(self) -> Node:
        """The node, to be entered."""
        return Node(self.node, acceptance(self))
