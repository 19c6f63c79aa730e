"""Fits a bandwidth model to a site's own nccl-tests and rccl-tests logs."""
