"""What users call: kernels and worlds; it takes arguments in, has them run, and gives results out.

Begin in `kernel` (`nki.jit`, `kernel[grid](...)`) and `world`; `session` is what outlives a launch.
"""
