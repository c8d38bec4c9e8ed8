// The losses most in use, and the IoU itself. A C ABI: pointers in, pointers out.

#include "formulas.h"
#include "paired.h"

PAIRED(iou, true)
PAIRED(iou_cost, true)
PAIRED(giou_cost, true)
PAIRED(diou_cost, true)
PAIRED(ciou_cost, true)
