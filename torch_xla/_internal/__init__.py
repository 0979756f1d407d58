"""What a few programs import although it is not public."""
