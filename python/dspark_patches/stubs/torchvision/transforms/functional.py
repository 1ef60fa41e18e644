"""Stand-in: see the package."""

from .._absent import resolver
from . import InterpolationMode  # noqa: F401

__getattr__ = resolver(__name__)
