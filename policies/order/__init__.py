"""Shorter predicted work may pass: how long jobs will take, and who may go before whom."""
