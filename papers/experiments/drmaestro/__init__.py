"""DRMaestro's experiments (Amaral's thesis, section 5.6) in a simulator."""
