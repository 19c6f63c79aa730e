/* Is a GRES type name one of NVIDIA's MIG profiles ("1g.5gb", "a100_3g.20gb")? */
#ifndef GT_MIG_H
#define GT_MIG_H

#include <stdbool.h>

extern bool gt_is_mig(const char *type_name);

#endif
