"""GENIE (Chen et al., TPDS): jobs are shaped and the queue ordered so that deadlines hold."""
