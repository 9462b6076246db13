"""What callers may pass: valid arguments, smallest and dullest first when shrunk."""
