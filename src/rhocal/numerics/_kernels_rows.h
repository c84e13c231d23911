/* The kernels over rows of logits. Included once for float and once for double, with three macros:
 *
 * REAL       the type of the logits
 * WIDTH      how many of them make a vector
 * TYPED(x)   the name of a function, type or constant for that type: x_float or x_double
 *
 * and one of its own:
 *
 * EACH_LANE  before a statement: do it for every lane l of a vector, in one instruction where there is one
 */

#define EACH_LANE _Pragma("omp simd") for (int l = 0; l < WIDTH; l++)

#include "_kernels_blocks.h"
#include "_kernels_plain.h"
#include "_kernels_scan.h"
#include "_kernels_norms.h"
#include "_kernels_curves.h"
#include "_kernels_softmax.h"
#include "_kernels_class_sums.h"

#undef EACH_LANE
