"""The other side of ``kv_engine``: which loads, in which trees, and the tables."""
