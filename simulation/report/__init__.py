"""What a simulated run leaves for people: metrics, tables, CSV, JSON, HTML and pictures."""
