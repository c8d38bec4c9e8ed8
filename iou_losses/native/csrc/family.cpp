// The other losses of the family. A C ABI: pointers in, pointers out.

#include "family.h"
#include "paired.h"

PAIRED(log_iou_cost, false)
PAIRED(square_iou_cost, false)
PAIRED(eiou_cost, false)
PAIRED(focal_eiou_cost, false)
PAIRED(extended_iou_cost, false)
PAIRED(siou_cost, false)
PAIRED(alpha_iou_cost, false)
PAIRED(alpha_giou_cost, false)
PAIRED(alpha_diou_cost, false)
PAIRED(alpha_ciou_cost, false)
PAIRED(wiou_cost, false)
PAIRED(wiou2_cost, false)
PAIRED(wiou3_cost, false)
PAIRED(mpdiou_cost, false)
PAIRED(shape_iou_cost, false)
PAIRED(piou_cost, false)
PAIRED(piou2_cost, false)
PAIRED(nwd_cost, false)
PAIRED(sca_cost, false)
PAIRED(bounded_iou_cost, false)
PAIRED(interp_iou_cost, false)
PAIRED(dynamic_interp_iou_cost, false)
PAIRED(gcd_cost, false)
