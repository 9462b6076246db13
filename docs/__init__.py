"""The documentation site: pages, and the programs that build and check them. See README.md."""
