// Losses of residuals: value, slope and weight (see lowsparse/losses.py, whose numbers these are).
#pragma once

enum class Kind { squared, l1, huber, pseudo_huber, cauchy, geman_mcclure, welsch, tukey, power };

struct Loss {
    int kind;
    double c, p, per_c;

    __device__ Loss(int kind, double c, double p) : kind(kind), c(c), p(p), per_c(1.0 / c) {}
    __device__ double weight(double e) const {
        const double t = (e * per_c) * (e * per_c);
        switch (Kind(kind)) {
            case Kind::squared: return 1.0;
            case Kind::l1: return 1.0 / fabs(e);
            case Kind::huber: return c / fmax(fabs(e), c);
            case Kind::pseudo_huber: return 1.0 / sqrt(1.0 + t);
            case Kind::cauchy: return 1.0 / (1.0 + t);
            case Kind::geman_mcclure: return 1.0 / ((1.0 + t) * (1.0 + t));
            case Kind::welsch: return exp(-t);
            case Kind::tukey: return t < 1.0 ? (1.0 - t) * (1.0 - t) : 0.0;
            case Kind::power: return pow(1.0 + t, 0.5 * p - 1.0);
        }
        return 0.0;
    }
    __device__ double slope(double e) const {
        if (Kind(kind) == Kind::l1) return e > 0.0 ? 1.0 : e < 0.0 ? -1.0 : 0.0;
        return e * weight(e);
    }
    __device__ double value(double e) const {
        const double t = (e / c) * (e / c), c2 = c * c;
        switch (Kind(kind)) {
            case Kind::squared: return 0.5 * e * e;
            case Kind::l1: return fabs(e);
            case Kind::huber: return t <= 1.0 ? 0.5 * e * e : c * fabs(e) - 0.5 * c2;
            case Kind::pseudo_huber: return c2 * t / (sqrt(1.0 + t) + 1.0);
            case Kind::cauchy: return 0.5 * c2 * log1p(t);
            case Kind::geman_mcclure: return 0.5 * e * e / (1.0 + t);
            case Kind::welsch: return -0.5 * c2 * expm1(-t);
            case Kind::tukey: return t >= 1.0 ? c2 / 6.0 : c2 / 6.0 * t * (3.0 - 3.0 * t + t * t);
            case Kind::power: return c2 / p * expm1(0.5 * p * log1p(t));
        }
        return 0.0;
    }
};
