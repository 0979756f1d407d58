"""What shows what happened."""
