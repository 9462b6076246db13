"""Rules for all files of the repository."""
