#include "part.h"

#include "../claims.h"

CLAIM(mig_profiles_are_recognised)
{
	CHECK(gt_is_part("1g.5gb") && gt_is_part("a100_3g.20gb"));
	CHECK(gt_is_part("nvidia_a100-sxm4-40gb_1g.10gb+me"));
	CHECK(!gt_is_part("a100") && !gt_is_part("v100-sxm2-16gb"));
	CHECK(!gt_is_part(NULL) && !gt_is_part("") && !gt_is_part("g.5gb"));
}

CLAIM(amds_modes_are_recognised)
{
	CHECK(gt_is_part("cpx") && gt_is_part("mi300x_cpx") && gt_is_part("mi300a-tpx"));
	CHECK(gt_is_part("dpx_nps2") && gt_is_part("mi300x_qpx_nps4"));
	CHECK(!gt_is_part("mi300x") && !gt_is_part("spx") && !gt_is_part("px"));
	CHECK(!gt_is_part("rcpx") && !gt_is_part("3cpx") && !gt_is_part("cpx_nps9"));
	CHECK(!gt_is_part("_nps4") && !gt_is_part("x_nps4") && !gt_is_part("cpx_nps"));
}
