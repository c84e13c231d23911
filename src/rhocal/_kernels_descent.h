/* Newton's method for an objective of gaps, a mean(d)^2 + b mean(d^2) + c NLL, in (v, w): what `solve/two.py` does with the objective of
 * `calibrators/gaps.py`, step for step, for as long as one ring holds every scale. The reasons are given there. */

typedef struct {
    const double *c, *r, *label_gap, *correct, *weight; /* the ring; numbers of every sample */
    Py_ssize_t n_powers, n;
    double middle, reach, least, most, shares[3]; /* of the ring in log scale; of r; a, b and c */
    double *confidence, seen[2];       /* what was found last, and where */
    Py_ssize_t n_evaluations;
} Gaps;

typedef struct {
    double value, g[2], vv, vw, ww;
} Curved;

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

/* `bounds` are those of v and of w. */
static void newton_step(const double x[2], const Curved *at, const double bounds[4], double longest, double step[2])
{
    int is_free[2];
    for (int k = 0; k < 2; k++) {
        const double low = bounds[2 * k], high = bounds[2 * k + 1];
        is_free[k] = !((x[k] <= low && at->g[k] > 0) || (x[k] >= high && at->g[k] < 0) || low == high);
    }
    step[0] = step[1] = 0;
    if (is_free[0] && is_free[1])
        step_in_both(at, step);
    else if (is_free[0])
        step[0] = -at->g[0] / fmax(fabs(at->vv), 1e-300);
    else if (is_free[1])
        step[1] = -at->g[1] / fmax(fabs(at->ww), 1e-300);
    const double shorten = fmax(1, fmax(fabs(step[0]), fabs(step[1])) / longest);
    step[0] /= shorten, step[1] /= shorten;
}

static void between(const double bounds[4], double x[2])
{
    for (int k = 0; k < 2; k++)
        x[k] = fmin(fmax(x[k], bounds[2 * k]), bounds[2 * k + 1]);
}

/* From x to the minimum next to it. Returned is 1 if it converged, 0 if not, -1 if the ring did not hold every scale on the way. */
static int descend(Gaps *f, double x[2], Curved *at, const double bounds[4], double tolerance, const double *shares_of_step,
                   Py_ssize_t n_shares, double longest, double rounding)
{
    between(bounds, x);
    if (!curved_at(f, x, at))
        return -1;
    for (int round = 0; round < 100; round++) {
        double step[2], trial[2];
        Curved there;
        newton_step(x, at, bounds, longest, step);
        const double gain = -(at->g[0] * step[0] + at->g[1] * step[1]) / 2;
        if (gain <= tolerance * fabs(at->value))
            return 1;
        Py_ssize_t k = 0;
        for (; k < n_shares; k++) {
            for (int j = 0; j < 2; j++)
                trial[j] = x[j] + shares_of_step[k] * step[j];
            between(bounds, trial);
            if (!curved_at(f, trial, &there))
                return -1;
            if (there.value < at->value)
                break;
        }
        if (k == n_shares)
            return gain <= rounding * fabs(at->value);
        x[0] = trial[0], x[1] = trial[1], *at = there;
    }
    return 0;
}
