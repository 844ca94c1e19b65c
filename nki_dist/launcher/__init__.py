"""What users call: kernels, worlds, arguments in and results out."""
