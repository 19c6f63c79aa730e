"""Measured figures beside their bars: `make bench`."""
