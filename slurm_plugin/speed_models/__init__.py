"""Profiles of jobs: the database of performance models, and pictures of them."""
