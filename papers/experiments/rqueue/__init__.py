"""The R queue's experiments (PDCAT 2014, section IV) on a synthetic year of TSUBAME2.5."""
