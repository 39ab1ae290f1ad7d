"""State larger than memory: what is written out, what waits for it, and how it comes back."""
