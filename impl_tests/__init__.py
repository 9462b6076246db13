"""Tests of impl, and programs that test these tests. README.md lists the files and commands."""
