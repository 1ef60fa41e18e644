"""The reported figures, made again on a CPU: before and after the patches.

Each figure of :mod:`.figures` is some tasks for the decode simulator
(``test/model/decode_simulator``), one table and at most one picture. The simulator
runs in a process per tree, with the tree's own scheduler, pools and prefix caches.
"""
