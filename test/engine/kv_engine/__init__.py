"""SGLang's own scheduler and event loop in one process, with KV that is read.

Everything is the release's but the models' forwards, which write each token's
identity into the KV pools and read it back through the release's mapping, and
the sockets, whose other end is in the same process. ``plugin`` brings the same
forwards into a server's scheduler process.
"""
