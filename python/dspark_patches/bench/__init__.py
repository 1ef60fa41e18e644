"""The reported figures, made again on a CPU: before and after the patches.

A simulated decode node (``test/model/decode_simulator``) runs in a process per
tree, with the tree's own scheduler, pools and prefix caches. Here trees are
made, processes driven, and their records collected, tabled and drawn.
"""
