"""Published results, and the code that publishes them and builds pages."""
