/* Newton's method for an objective of gaps, a mean(d)^2 + b mean(d^2) + c NLL, in (v, w): what `solve/two.py` does with the objective of
 * `calibrators/gaps.py`, step for step, for as long as one ring holds every scale. The reasons are given there. */

typedef struct {
    const double *c, *r, *label_gap, *correct, *weight; /* the ring; numbers of every sample */
    Py_ssize_t n_powers, n;
    double middle, reach, least, most, shares[3]; /* of the ring in log scale; of r; a, b and c */
    double *confidence, seen[2];                  /* what was found last, and where */
    Py_ssize_t n_evaluations;
} Gaps;

typedef struct {
    double value, g[2], vv, vw, ww;
} Curved;

/* What a descent goes by: bounds of v and of w, the decrease that a step must promise, and the rules of `solve/two.py`. */
typedef struct {
    double bounds[4], tolerance, longest, rounding;
    const double *shares_of_step;
    Py_ssize_t n_shares;
} Rules;

/* Says whether the ring holds every scale. */
static int curved_at(Gaps *f, const double x[2], Curved *at)
{
    double s[GAP_SUMS], most = (1 - x[1]) * f->most + x[1], least = (1 - x[1]) * f->least + x[1];
    const double low = x[0] - log(most > SMALLEST_MIX ? most : SMALLEST_MIX);
    const double high = x[0] - log(least > SMALLEST_MIX ? least : SMALLEST_MIX);
    if (!(f->middle - f->reach <= low && high <= f->middle + f->reach))
        return 0;
    gaps(f->c, f->n_powers, f->n, 0, f->n, f->r, x[0], x[1], f->middle, f->label_gap, f->correct, f->weight, f->shares[1], f->shares[2],
         s, f->confidence);
    f->seen[0] = x[0], f->seen[1] = x[1];
    f->n_evaluations++;
    const double a = 2 * f->shares[0], *rest = s + 6;
    at->value = f->shares[0] * s[0] * s[0] + rest[0];
    at->g[0] = a * s[0] * s[1] + rest[1];
    at->g[1] = a * s[0] * s[2] + rest[2];
    at->vv = a * (s[1] * s[1] + s[0] * s[3]) + rest[3];
    at->vw = a * (s[1] * s[2] + s[0] * s[4]) + rest[4];
    at->ww = a * (s[2] * s[2] + s[0] * s[5]) + rest[5];
    return 1;
}

/* Minus the inverse of the Hessian, with the sizes of its eigenvalues, times the gradient. */
static void step_in_both(const Curved *at, double step[2])
{
    const double determinant = at->vv * at->ww - at->vw * at->vw;
    if (at->vv > 0 && determinant > 1e-12 * at->vv * at->ww) {
        step[0] = (at->vw * at->g[1] - at->ww * at->g[0]) / determinant;
        step[1] = (at->vw * at->g[0] - at->vv * at->g[1]) / determinant;
        return;
    }
    const double middle = (at->vv + at->ww) / 2, away = hypot((at->vv - at->ww) / 2, at->vw);
    const double angle = atan2(2 * at->vw, at->vv - at->ww) / 2, cosine = cos(angle), sine = sin(angle);
    const double least = fmax(1e-9 * (fabs(middle) + away), 1e-300);
    const double along = -(cosine * at->g[0] + sine * at->g[1]) / fmax(fabs(middle + away), least);
    const double across = -(cosine * at->g[1] - sine * at->g[0]) / fmax(fabs(middle - away), least);
    step[0] = cosine * along - sine * across;
    step[1] = sine * along + cosine * across;
}

static void newton_step(const double x[2], const Curved *at, const Rules *rules, double step[2])
{
    int is_free[2];
    for (int k = 0; k < 2; k++) {
        const double low = rules->bounds[2 * k], high = rules->bounds[2 * k + 1];
        is_free[k] = !((x[k] <= low && at->g[k] > 0) || (x[k] >= high && at->g[k] < 0) || low == high);
    }
    step[0] = step[1] = 0;
    if (is_free[0] && is_free[1])
        step_in_both(at, step);
    else if (is_free[0])
        step[0] = -at->g[0] / fmax(fabs(at->vv), 1e-300);
    else if (is_free[1])
        step[1] = -at->g[1] / fmax(fabs(at->ww), 1e-300);
    const double shorten = fmax(1, fmax(fabs(step[0]), fabs(step[1])) / rules->longest);
    step[0] /= shorten, step[1] /= shorten;
}

static void between(const double bounds[4], double x[2])
{
    for (int k = 0; k < 2; k++)
        x[k] = fmin(fmax(x[k], bounds[2 * k]), bounds[2 * k + 1]);
}

/* From x to the minimum next to it. Returned is 1 if it converged, 0 if not, -1 if the ring did not hold every scale on the way. */
static int descend(Gaps *f, const Rules *rules, double x[2], Curved *at)
{
    f->n_evaluations = 0;
    between(rules->bounds, x);
    if (!curved_at(f, x, at))
        return -1;
    for (int round = 0; round < 100; round++) {
        double step[2], trial[2];
        Curved there;
        newton_step(x, at, rules, step);
        const double gain = -(at->g[0] * step[0] + at->g[1] * step[1]) / 2;
        if (gain <= rules->tolerance * fabs(at->value))
            return 1;
        Py_ssize_t k = 0;
        for (; k < rules->n_shares; k++) {
            for (int j = 0; j < 2; j++)
                trial[j] = x[j] + rules->shares_of_step[k] * step[j];
            between(rules->bounds, trial);
            if (!curved_at(f, trial, &there))
                return -1;
            if (there.value < at->value)
                break;
        }
        if (k == rules->n_shares)
            return gain <= rules->rounding * fabs(at->value);
        x[0] = trial[0], x[1] = trial[1], *at = there;
    }
    return 0;
}

/* The minimum of one norm, its mean and the ECE there: what `Search.minimum` does, which says why. `start` is where the norms before lead
 * to, NULL for the first one; `temperature` is the best log scale of w = 1 and the objective there. */
typedef struct {
    double x[2], value, mean, ece;
    Py_ssize_t n_evaluations;
    int converged;
} NormMinimum;

static int keep_lower(Gaps *f, const Rules *rules, const double start[2], NormMinimum *best, int is_first)
{
    double x[2] = {start[0], start[1]};
    Curved at;
    const int converged = descend(f, rules, x, &at);
    if (converged >= 0 && (is_first || at.value < best->value)) {
        best->x[0] = x[0], best->x[1] = x[1], best->value = at.value;
        best->n_evaluations = f->n_evaluations, best->converged = converged;
    }
    return converged >= 0;
}

/* `relative` has room for n numbers, `sums` for 3 x n_bins. Says whether the ring held every scale on the way. */
static int norm_minimum(Gaps *f, const Rules *rules, const double *norm, const double *start, const double temperature[2],
                        const double *cold_shares, Py_ssize_t n_cold, Py_ssize_t n_bins, double edge, double *relative, double *sums,
                        NormMinimum *best)
{
    const double mean = dot(f->weight, norm, f->n);
    best->mean = mean != 0 ? mean : 1;
    divide(norm, best->mean, f->n, relative);
    ends_double(relative, 0, f->n, &f->least, &f->most);
    f->r = relative;
    if (start && !keep_lower(f, rules, start, best, 1))
        return 0;
    const int from_cold = !start || best->value > temperature[1];
    for (Py_ssize_t k = 0; from_cold && k < n_cold; k++) {
        const double cold[2] = {temperature[0], cold_shares[k]};
        if (!keep_lower(f, rules, cold, best, !start && k == 0))
            return 0;
    }
    Curved at;
    if ((f->seen[0] != best->x[0] || f->seen[1] != best->x[1]) && !curved_at(f, best->x, &at))
        return 0;
    memset(sums, 0, 3 * n_bins * sizeof *sums);
    bin(f->confidence, f->correct, f->weight, 0, f->n, n_bins, edge, sums);
    double gap = 0, weight = 0;
    for (Py_ssize_t b = 0; b < n_bins; b++)
        gap += fabs(sums[2 * n_bins + b] - sums[n_bins + b]), weight += sums[b];
    best->ece = gap / weight;
    return 1;
}
