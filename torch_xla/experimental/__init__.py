"""What is newer than the rest: `eager_mode` and others."""
