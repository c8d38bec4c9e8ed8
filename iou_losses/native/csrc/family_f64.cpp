// The other losses of the family in float64. A C ABI: pointers in, pointers out.

#include "family.h"
#include "paired.h"

#define EXPORT_LOSS(NAME) PAIRED_OF(NAME, false, double, f64)
FAMILY(EXPORT_LOSS)
