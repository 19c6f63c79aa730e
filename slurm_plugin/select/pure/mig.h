/* Is a GRES type name one of NVIDIA's MIG profiles ("1g.5gb", "a100_3g.20gb")? */
#pragma once

#include <stdbool.h>

extern bool gt_is_mig(const char *type_name);
