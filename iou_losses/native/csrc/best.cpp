// The similarities that the library finds the best partner by, a C ABI: pointers in, pointers out.

#include "best.h"

#include "formulas.h"

BEST(iou)
BEST(giou)
BEST(diou)
BEST(ciou)
