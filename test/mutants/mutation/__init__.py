"""Mutants of what a series adds to a release, and what its tests say of them."""
