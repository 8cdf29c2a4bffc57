"""One model in several processes, each on a GPU of its own (tensor parallelism)."""
