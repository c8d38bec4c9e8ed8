// The losses that the library offers, a C ABI: pointers in, pointers out.

#include "paired.h"

#include "formulas.h"

PAIRED(iou_cost)
PAIRED(giou_cost)
PAIRED(diou_cost)
PAIRED(ciou_cost)
