"""A model of tables with missing entries and gross errors."""
