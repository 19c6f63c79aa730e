"""The chapters of Amaral's thesis that are not of DRMaestro or SC17: section 3.3."""
