#include "mig.h"

#include "../claims.h"

CLAIM(mig_profiles_are_recognised)
{
	CHECK(gt_is_mig("1g.5gb") && gt_is_mig("a100_3g.20gb"));
	CHECK(gt_is_mig("nvidia_a100-sxm4-40gb_1g.10gb+me"));
	CHECK(!gt_is_mig("a100") && !gt_is_mig("v100-sxm2-16gb"));
	CHECK(!gt_is_mig(NULL) && !gt_is_mig("") && !gt_is_mig("g.5gb"));
}
