"""Published runs as a static site: what is read, how it is compared, how it is drawn."""
