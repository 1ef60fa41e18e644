"""A series on a tree that is no release."""
