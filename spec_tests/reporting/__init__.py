"""Read published runs, compare them and write them as a static site."""
