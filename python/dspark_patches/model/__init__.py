"""What a release, a patch and a series are."""
