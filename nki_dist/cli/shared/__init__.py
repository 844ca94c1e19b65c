"""What several commands use; none itself."""
