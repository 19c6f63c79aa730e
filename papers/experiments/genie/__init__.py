"""GENIE's experiments (Chen et al., TPDS, section 7) on public measurements."""
