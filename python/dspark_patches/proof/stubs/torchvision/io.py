"""Stand-in: see the package."""

from ._absent import resolver

__getattr__ = resolver(__name__)
