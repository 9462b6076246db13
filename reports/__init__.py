"""Published results and the code that publishes them."""
