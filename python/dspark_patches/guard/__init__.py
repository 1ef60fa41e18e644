"""What patches make code do, and whether a tree does that in other places."""
