"""Running programs on simulated cores, in any process: linking, scheduling, messages, races."""
