"""Trees of files: a release's, with parts of a series in them."""
