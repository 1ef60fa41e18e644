"""What upstream's CI says of a tree on a CPU."""
