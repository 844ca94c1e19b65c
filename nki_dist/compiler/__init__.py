"""From a kernel to programs: tracing, passes, the file format."""
