"""Reports on a run: one HTML file that loads nothing from elsewhere."""
