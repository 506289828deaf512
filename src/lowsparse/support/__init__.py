"""What every floor uses: whole files or none, numbers as text, JSON, HTML, sizes of memory."""
