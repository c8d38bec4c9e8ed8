// The similarities that the library suppresses duplicates by, a C ABI: pointers in, pointers out.

#include "suppress.h"

#include "formulas.h"

SUPPRESS(iou)
SUPPRESS(giou)
SUPPRESS(diou)
SUPPRESS(ciou)
