"""A decode node of one SGLang release, simulated on a CPU.

Admission, eviction, retraction, resumption, abort and finish run through the
release's own scheduler, batches, pools and prefix caches; only the forward is
simulated. It imports the sglang that is on the module path: any release, as released
or patched.

    with Node(NodeConfig(swa_size=77_824), Uniform(seed=0)) as node:
        node.submit(prompt_len=8, max_new_tokens=100_000)
        while not node.idle:
            node.turn()
        print(node.counters.finished, node.swa_used())
"""
