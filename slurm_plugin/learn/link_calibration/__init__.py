"""Bandwidths measured on site, by nccl-tests or rccl-tests, as the model `calibrated`.

`nccl_log` reads one log, `gather` puts the logs of one kind of machine together, `model_file`
writes the fitted model and gives it to a topology.
"""
