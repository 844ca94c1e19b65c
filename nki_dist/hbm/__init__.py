"""HBM stacks: their layout, and shared_hbm in the object store of Ray."""
