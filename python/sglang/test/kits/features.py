"""What SGLang releases differ in, for the files that all of them share.

Each name stands for a file of the release, below ``sglang``, or for a text in it.
A shared file asks ``if NAME:`` or ``X if NAME else Y``; the patches of a release
have the answer in its place, and never this file.
"""

HAS_SWA_RADIX_CACHE = "srt/mem_cache/swa_radix_cache.py"
HAS_CHUNK_CACHES = "srt/mem_cache/chunk_cache.py"
HAS_LENGTHS_IN_KV = "srt/managers/schedule_batch.py::    kv_committed_len: int"
HAS_COMPONENT_CURSORS = "srt/managers/schedule_batch.py::def get_evicted_seqlen("
HAS_CHECKPOINTS = "srt/mem_cache/common.py::def checkpoint_kv_cache("
HAS_PLATFORM_KERNELS = "srt/mem_cache/allocator/paged.py::current_platform"
HAS_RETRACTION_BACKUP = "srt/mem_cache/common.py::class RetractionBackup("
HAS_BACKUP_IN_KV = "srt/managers/schedule_batch.py::    retraction_backup: Optional"
HAS_RESTORE_KV_CACHE = "srt/mem_cache/common.py::def restore_kv_cache("
HAS_BEAM_COORDINATOR = "srt/managers/scheduler.py::self.beam_coordinator"
HAS_RUST_SERVER = "srt/managers/scheduler.py::self.rust_server"
HAS_SKIP_FINISHING = "srt/managers/scheduler.py::self.enable_skip_finishing_decode"
HAS_STAGE_METRICS = "srt/managers/scheduler.py::self.scheduler_stage_metrics"
HAS_RETAIN_FLOOR = "srt/mem_cache/base_prefix_cache.py::def swa_retain_floor("
HAS_TREE_CORE_OPTION = "srt/mem_cache/cache_init_params.py::tree_core_backend:"
HAS_SWA_RINGS = "srt/mem_cache/allocator/swa.py::def is_swa_req_ring("
HAS_PREFILL_SWA_OPTION = "srt/environ.py::SGLANG_OPT_RELEASE_PREFILL_SWA"
HAS_UNIFIED_TREE_CORE = "srt/mem_cache/unified_cache/unified_tree_core.py"
HAS_DECODE_CAPACITY = "srt/mem_cache/allocator/base.py::requests=None,"
