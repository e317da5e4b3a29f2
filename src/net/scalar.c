/* SPDX-License-Identifier: MIT */
/* Series, cut where the next term is below 2^-56 of the first. */
#include "net/scalar.h"

#include <assert.h>
#include <math.h>

static const double pi = 3.14159265358979323846;

/* x = m * 2^e with m in [sqrt 1/2, sqrt 2); log m = 2 artanh s with s = (m - 1) / (m + 1). */
double weir__log(double x) {
    enum { TERMS = 11 };
    int e;
    double m = frexp(x, &e); /* exact */
    assert(x > 0);
    if (m < 0.70710678118654752440) m *= 2, e--;
    double s = (m - 1) / (m + 1), square = s * s, sum = 0;
    for (int k = TERMS - 1; k > 0; k--) sum = (sum + 1.0 / (2 * k + 1)) * square;
    /* ln 2 in two parts, the first with few enough bits that e * part is exact */
    return e * 0x1.62e42fefap-1 + (e * 0x1.cf79abc9e3b39p-40 + (2 * s * sum + 2 * s));
}

/* x = n ln 2 + r, |r| <= ln 2 / 2; ln 2 in two parts as above. */
double weir__exp(double x) {
    enum { TERMS = 14 };
    assert(x >= -700 && x <= 700);
    double n = floor(x * 1.44269504088896340736 + 0.5), sum = 1;
    double r = (x - n * 0x1.62e42fefap-1) - n * 0x1.cf79abc9e3b39p-40;
    for (int k = TERMS; k > 0; k--) sum = 1 + sum * r / k;
    return ldexp(sum, (int)n);
}

/* By halves of the terms' signs and factorials: x^2 / ((n + 1)(n + 2)) from term to term. */
static double series(double square, int first, int last) {
    double sum = 1;
    for (int n = last; n >= first; n -= 2) sum = 1 - square / (n * (n - 1)) * sum;
    return sum;
}

static double cos_near(double x) {
    return series(x * x, 2, 18);
}

static double sin_near(double x) {
    return x * series(x * x, 3, 19);
}

/** The angle as so many quarters and what is left, at most an eighth of a turn. */
static double in_quarters(double turns, int *quarters) {
    assert(turns >= 0 && turns <= 1);
    *quarters = (int)(4 * turns + 0.5);
    return 2 * pi * (turns - *quarters * 0.25);
}

double weir__cos_of_turns(double turns) {
    int quarters;
    double x = in_quarters(turns, &quarters);
    double value = quarters % 2 == 0 ? cos_near(x) : sin_near(x);
    return quarters % 4 == 1 || quarters % 4 == 2 ? -value : value;
}

double weir__sin_of_turns(double turns) {
    int quarters;
    double x = in_quarters(turns, &quarters);
    double value = quarters % 2 == 0 ? sin_near(x) : cos_near(x);
    return quarters % 4 >= 2 ? -value : value;
}

double weir__power(double base, uint64_t exponent) {
    double power = 1;
    assert(base >= 0 && base <= 1);
    for (; exponent > 0; exponent /= 2, base *= base)
        if (exponent % 2 == 1) power *= base;
    return power;
}
