"""Chapter replicate: one module on several devices."""
