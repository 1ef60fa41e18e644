"""What a series would do on a tree that is no known base."""
