"""MAPA's evaluation (Ranganath et al., SC'21, sections 4.1, 5.3 and 5.4) run again.

Execution times are a reconstruction (`papers.experiments.mapa.reconstruction`), since the
paper draws them but prints few.
"""
