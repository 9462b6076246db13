"""Chapter replicate: copies of a module on several devices."""
