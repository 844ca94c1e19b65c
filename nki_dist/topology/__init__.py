"""Where ranks, chips and instances sit, and the links between them: values."""
