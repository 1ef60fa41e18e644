"""What stands on a machine: found, told and changed."""
