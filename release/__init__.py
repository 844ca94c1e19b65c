"""Making distributions, and testing them where nothing of the checkout is in reach."""
