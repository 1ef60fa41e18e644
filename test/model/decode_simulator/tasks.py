"""What a node is asked to do: each task is a configuration in, a record out.

Every task is a pure function of its configuration and of the release that it runs
on, apart from the times that it measures.
"""

from __future__ import annotations

from typing import Union

from .cost import CheckCost, PrepareCost, RetractLoop
from .generation import Capacity, LongGeneration
from .load import Load
from .overload import Overload

Task = Union[
    LongGeneration, Capacity, Load, Overload, PrepareCost, CheckCost, RetractLoop
]
