"""Putting a series in and taking it out: all of it, or nothing."""
