"""Stand-in: see the package."""

from .._absent import resolver
from . import functional as functional
from . import v2 as v2
from ._modes import InterpolationMode as InterpolationMode

__getattr__ = resolver(__name__)
