"""The documentation site: pages, the programs that build it, and those that check its code."""
