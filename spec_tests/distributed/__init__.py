"""Chapter distributed: DataParallel over processes, tested with real processes."""
