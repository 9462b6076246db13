"""DataParallel over processes: a chapter judged with real ones."""
