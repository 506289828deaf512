"""What is missing from a table, by what is there."""
