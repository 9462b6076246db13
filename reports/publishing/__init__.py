"""Write reports from saved runs, and build the pages that show the reports."""
