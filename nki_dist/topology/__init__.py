"""Where ranks, chips and instances sit, and which links lie between them: values, nothing runs."""
