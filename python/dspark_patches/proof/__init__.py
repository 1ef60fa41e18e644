"""Regression tests run in trees, and what that proves."""
