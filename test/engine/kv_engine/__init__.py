"""SGLang's own scheduler and event loop in one process, with KV that is read.

Everything is the release's but the models' forwards, which write each token's
identity into the KV pools and read it back through the release's mapping, and
the sockets, whose other end is in the same process.
"""

import os

# Read as the release's modules are imported: upstream's own switch for a CPU.
os.environ["SGLANG_USE_CPU_ENGINE"] = "1"

from sglang.test.test_utils import maybe_stub_sgl_kernel  # noqa: E402

# No wheel of these kernels is for a CPU; the few that run have stand-ins.
maybe_stub_sgl_kernel()
