// Losses of residuals: slopes and weights, in place, over stretches whose length is a multiple of four.
#pragma once
#include "kernels.hpp"
#include "pack.hpp"

#include <cmath>

namespace lowsparse {
namespace LOWSPARSE_ISA {

LS_INLINE pack root(pack a) { return pack{std::sqrt(a[0]), std::sqrt(a[1]), std::sqrt(a[2]), std::sqrt(a[3])}; }

template <class Function>
LS_INLINE pack each(pack a, Function f) {
    return pack{f(a[0]), f(a[1]), f(a[2]), f(a[3])};
}

// body(w) with w the weight as a function of e, for the loss at hand
template <class Body>
LS_INLINE void with_weight(const Loss& loss, Body body) {
    const pack one = splat(1.0), per_c = splat(1.0 / loss.c), c = splat(loss.c);
    const auto squared = [=](pack e) LS_ALWAYS {
        const pack t = e * per_c;
        return t * t;
    };
    switch (loss.kind) {
        case LossKind::squared: return body([=](pack) LS_ALWAYS { return one; });
        case LossKind::l1: return body([=](pack e) LS_ALWAYS { return quotient(one, absolute(e)); });
        case LossKind::huber: return body([=](pack e) LS_ALWAYS { return quotient(c, larger(absolute(e), c)); });
        case LossKind::pseudo_huber: return body([=](pack e) LS_ALWAYS { return quotient(one, root(one + squared(e))); });
        case LossKind::cauchy: return body([=](pack e) LS_ALWAYS { return quotient(one, one + squared(e)); });
        case LossKind::geman_mcclure:
            return body([=](pack e) LS_ALWAYS {
                const pack w = quotient(one, one + squared(e));
                return w * w;
            });
        case LossKind::welsch:
            return body([=](pack e) LS_ALWAYS { return each(squared(e), [](double t) { return std::exp(-t); }); });
        case LossKind::tukey:
            return body([=](pack e) LS_ALWAYS {
                const pack w = larger(one - squared(e), splat(0.0));
                return w * w;
            });
        case LossKind::power: {
            const double exponent = 0.5 * loss.p - 1.0;
            return body([=](pack e) LS_ALWAYS {
                return each(squared(e), [=](double t) { return std::pow(1.0 + t, exponent); });
            });
        }
    }
}

// w(e) in place of e
inline void weights(const Loss& loss, double* e, int64_t n) {
    with_weight(loss, [=](auto weight) LS_ALWAYS {
        for (int64_t k = 0; k < n; k += 4) store(e + k, weight(load(e + k)));
    });
}

// The value of one residual, given t = (e / c)^2
LS_INLINE double loss_value(const Loss& loss, double e, double t) {
    const double c2 = loss.c * loss.c;
    switch (loss.kind) {
        case LossKind::squared: return 0.5 * e * e;
        case LossKind::l1: return std::fabs(e);
        case LossKind::huber: return t <= 1.0 ? 0.5 * e * e : loss.c * std::fabs(e) - 0.5 * c2;
        case LossKind::pseudo_huber: return c2 * t / (std::sqrt(1.0 + t) + 1.0);
        case LossKind::cauchy: return 0.5 * c2 * std::log1p(t);
        case LossKind::geman_mcclure: return 0.5 * e * e / (1.0 + t);
        case LossKind::welsch: return -0.5 * c2 * std::expm1(-t);
        case LossKind::tukey: return t >= 1.0 ? c2 / 6.0 : c2 / 6.0 * t * (3.0 - 3.0 * t + t * t);
        case LossKind::power: return c2 / loss.p * std::expm1(0.5 * loss.p * std::log1p(t));
    }
    return 0.0;
}

// The losses whose slopes are cheap enough to be computed on the way: psi(e), and rho(e) is added to `total`.
struct SignSlope {
    explicit SignSlope(const Loss&) {}
    LS_INLINE pack operator()(pack e, pack& total) const {
        total += absolute(e);
        return sign(e);
    }
};
struct PseudoHuberSlope {  // with q = sqrt(1 + (e/c)^2): e^2 / (q + 1) and e / q, by one division
    pack per_c;
    explicit PseudoHuberSlope(const Loss& loss) : per_c(splat(1.0 / loss.c)) {}
    LS_INLINE pack operator()(pack e, pack& total) const {
        const pack one = splat(1.0), t = e * per_c, q = root(one + t * t), over = quotient(e, q * (q + one));
        total += e * q * over;
        return (q + one) * over;
    }
};

// psi(e) in place of e; gives back the sum of rho(e)
inline double slopes(const Loss& loss, double* e, int64_t n) {
    const auto at_once = [=](auto slope) {
        pack total = splat(0.0);
        for (int64_t k = 0; k < n; k += 4) store(e + k, slope(load(e + k), total));
        return sum(total);
    };
    if (loss.kind == LossKind::l1) return at_once(SignSlope(loss));
    if (loss.kind == LossKind::pseudo_huber) return at_once(PseudoHuberSlope(loss));
    double value = 0.0;
    for (int64_t k = 0; k < n; ++k) value += loss_value(loss, e[k], (e[k] / loss.c) * (e[k] / loss.c));
    with_weight(loss, [=](auto weight) LS_ALWAYS {
        for (int64_t k = 0; k < n; k += 4) store(e + k, load(e + k) * weight(load(e + k)));
    });
    return value;
}

}  // namespace LOWSPARSE_ISA
}  // namespace lowsparse
