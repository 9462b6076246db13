"""Published results, and the program that publishes them."""
