"""What only the maintainers of the series need."""
