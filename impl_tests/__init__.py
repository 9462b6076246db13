"""What tests impl, and nobody else: its modules, and wrong versions of it."""
