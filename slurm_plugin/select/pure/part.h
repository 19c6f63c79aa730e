/*
 * Is a GRES type name one of a GPU's parts: a MIG profile of NVIDIA ("1g.5gb", "a100_3g.20gb"),
 * or a mode of AMD's partitions ("cpx", "mi300x_cpx_nps4")? As gres_topology/slices.py has it.
 */
#pragma once

#include <stdbool.h>

extern bool gt_is_part(const char *type_name);
