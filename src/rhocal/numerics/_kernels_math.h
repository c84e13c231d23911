/* What every loop uses: how it is compiled, the sizes that choose an algorithm, and elementary functions that the compiler
 * can turn into vector instructions.
 *
 * CLONES   stands before a loop that an entry calls: there is one copy of it for each generation of processors, and the
 *          copy is chosen when the module is loaded
 * INLINE   stands before a function that such a loop calls: it must become part of each copy
 */

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
#if __GNUC__ >= 12
#define CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#endif
#else
#define CLONES
#endif

#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline))
#elif defined(_MSC_VER)
#define INLINE static __forceinline
#else
#define INLINE static inline
#endif

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

/* Numbers of an array that is only read. It may begin at any address: arrays that come from files or other processes often
 * lie at odd ones. Elsewhere than in GNU C, the processors that matter read them all the same. */
#if defined(__GNUC__)
#define ANY_ADDRESS __attribute__((aligned(1)))
#else
#define ANY_ADDRESS
#endif
typedef float In_float ANY_ADDRESS;
typedef double In_double ANY_ADDRESS;
typedef int64_t In_int64 ANY_ADDRESS;
typedef uint16_t In_half ANY_ADDRESS;

enum {
    FEW_COLUMNS = 64,       /* up to here sums over a row are in double: so few roundings do not average out */
    LONG_ROW = 256,         /* from here on rows are read one after the other (see `_kernels_blocks.h`) */
    PIECE = 64,             /* vectors that are summed in the type of the logits before their sum is added in double */
    GROUPS = 64,            /* maxima of a row that bound its k largest entries */
    MANY_COLUMNS = 1000000, /* up to here the cube of the number of columns is far from the ends of single precision */
    MAX_SUMS = 15,          /* sums over a row that one pass can take */
    N_NORMS = 9,            /* norms that one pass takes */
    ROWS_IN_A_SUM = 32,     /* rows whose columns are added up in the type of the logits before their sum is added in double */
    LANES = 16,             /* samples that are worked on at a time */
};

INLINE Py_ssize_t min_size(Py_ssize_t a, Py_ssize_t b)
{
    return a < b ? a : b;
}

/* Of each function there is one for float and one for double: a template calls TYPED(exp). */
INLINE float fourth_root_float(float x)
{
    return sqrtf(sqrtf(x));
}

INLINE double fourth_root_double(double x)
{
    return sqrt(sqrt(x));
}

INLINE float next_above_float(float x)
{
    return nextafterf(x, INFINITY);
}

INLINE double next_above_double(double x)
{
    return nextafter(x, INFINITY);
}

static const float largest_inverse_float = 3e38f; /* twice that is infinite */
static const double largest_inverse_double = 1e308;

static const float almost_one_float = 0.999999f; /* some roundings below 1 */
static const double almost_one_double = 0.99999999999999;

/* exp(x) for x up to 80 (700): 2^n exp(r) with |r| <= log(2) / 2. (exp(r) - 1 - r) / r^2 is the Chebyshev fit of degree 4 (9 in
 * double), with a relative error of 8e-9 (2e-17). n is rounded by adding 1.5 * 2^23 (2^52), whose low bits then hold it.
 * Below the clamp the result would not be a normal number. */
INLINE float exp_float(float x)
{
    x = x < -86.0f ? -86.0f : x;
    float shifted = x * 1.44269504f + 12582912.0f;
    float n = shifted - 12582912.0f;
    float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 0.00139262508f;
    p = p * r + 0.00836323288f;
    p = p * r + 0.0416665542f;
    p = p * r + 0.166665767f;
    p = p * r + 0.5f;
    p = p * r * r + r + 1.0f;
    uint32_t exponent, bits;
    memcpy(&exponent, &shifted, 4);
    memcpy(&bits, &p, 4);
    bits += exponent << 23;
    memcpy(&p, &bits, 4);
    return p;
}

INLINE double exp_double(double x)
{
    x = x < -700.0 ? -700.0 : x;
    double shifted = x * 1.442695040888963407 + 6755399441055744.0;
    double n = shifted - 6755399441055744.0;
    double r = (x - n * 0.693145751953125) - n * 1.42860682030941723e-6;
    double p = 2.5100472505694996003e-8;
    p = p * r + 2.7620201591031548792e-7;
    p = p * r + 2.7557268276905696187e-6;
    p = p * r + 0.000024801521057868205199;
    p = p * r + 0.00019841269863171556026;
    p = p * r + 0.0013888888917367080562;
    p = p * r + 0.0083333333333300381973;
    p = p * r + 0.041666666666623820532;
    p = p * r + 0.1666666666666666746;
    p = p * r + 0.5;
    p = p * r * r + r + 1.0;
    uint64_t exponent, bits;
    memcpy(&exponent, &shifted, 8);
    memcpy(&bits, &p, 8);
    bits += exponent << 52;
    memcpy(&p, &bits, 8);
    return p;
}

/* log(x) for normal x > 0: x = 2^k (1 + s) / (1 - s) with |s| < 0.172;
 * log((1 + s) / (1 - s)) = 2 (s + s^3/3 + ... + s^19/19). log(2) is the sum of two numbers, the first of which times k is
 * exact. */
INLINE double log_double(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, 8);
    bits -= 0x3fe6a09e667f3bcdULL; /* sqrt(1/2): what is left of the digits lies around 1 */
    double k = (double)(int32_t)((bits >> 52) ^ 0x800) - 2048.0;
    uint64_t rest = (bits & 0xfffffffffffffULL) + 0x3fe6a09e667f3bcdULL;
    double m;
    memcpy(&m, &rest, 8);
    double s = (m - 1) / (m + 1), q = s * s;
    double p = 1.0 / 19;
    p = p * q + 1.0 / 17;
    p = p * q + 1.0 / 15;
    p = p * q + 1.0 / 13;
    p = p * q + 1.0 / 11;
    p = p * q + 1.0 / 9;
    p = p * q + 1.0 / 7;
    p = p * q + 1.0 / 5;
    p = p * q + 1.0 / 3;
    p = p * q + 1.0;
    return k * 0.693147180369123816490 + (k * 1.90821492927058770002e-10 + 2 * s * p);
}
