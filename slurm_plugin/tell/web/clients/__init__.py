"""What one client may take of the page's process: connections, turns, and bytes on their way."""
