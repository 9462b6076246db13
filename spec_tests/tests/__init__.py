"""Rules for all files of the suite."""
