// The similarity matrices that the library offers, a C ABI: pointers in, pointers out.

#include "matrix.h"

#include "formulas.h"

MATRIX(iou)
MATRIX(giou)
MATRIX(diou)
MATRIX(ciou)
