"""Tables in time: gaps and bad readings of many series at once. Rows are moments in order, columns are series."""
