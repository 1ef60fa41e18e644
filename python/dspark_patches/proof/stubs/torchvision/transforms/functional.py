"""Stand-in: see the package."""

from .._absent import resolver
from ._modes import InterpolationMode as InterpolationMode

__getattr__ = resolver(__name__)
