// GRASTA's tracker over many columns, one after the other: an l1 regression of the column on U by ADMM, then a step of U
// along a geodesic of rank one. Every step depends on the one before, so there are no threads. The NumPy version, with the
// formulas and their reasons, is lowsparse/tracking.py; the order of operations is the same up to that of sums.
#pragma once
#include "kernels.hpp"
#include "normal.hpp"
#include "pack.hpp"

#include <cmath>

namespace lowsparse {
namespace LOWSPARSE_ISA {

constexpr double track_pi = 3.14159265358979323846;

inline double dot(const double* a, const double* b, int64_t length) {  // a multiple of four
    pack s = splat(0.0);
    for (int64_t k = 0; k < length; k += 4) s += load(a + k) * load(b + k);
    return sum(s);
}

// y = 0, w = argmin |B w - v|_1 by ADMM, B^T in r rows of `length`. G is the Gram matrix's unit upper triangle times D,
// `inverse` 1 / D. Gives back the number of iterations, or 0 if the first fit was exact.
inline int track_regress(const TrackArgs& args, int max_iter, const double* B, const double* v, double size, int64_t length,
                         const double* G, const double* inverse, double* w, double* b, double* y, double* d) {
    const int r = args.r;
    const pack one = splat(1.0);
    double sigma = size / 1.25;  // 1 / tau
    for (int a = 0; a < r; ++a) w[a] = 0.0;
    for (int64_t k = 0; k < length; k += 4) {
        store(y + k, splat(0.0));
        store(d + k, load(v + k));
    }
    int iteration = 0;
    while (iteration < max_iter && sigma > 1e-16 * size) {
        // w += (B^T B)^-1 B^T d
        for (int a = 0; a < r; ++a) b[a] = dot(B + a * length, d, length);
        for (int a = 0; a < r; ++a) {
            b[a] *= inverse[a];
            for (int c = a + 1; c < r; ++c) b[c] -= G[a * r + c] * b[a];
        }
        for (int a = r - 1; a >= 0; --a) {
            double known = 0.0;
            for (int c = a + 1; c < r; ++c) known += G[a * r + c] * b[c];
            b[a] -= inverse[a] * known;
            w[a] += b[a];
        }
        const double following = sigma / args.rho;
        const pack now = splat(sigma), tau = splat(1.0 / sigma), both = splat(sigma + following);
        pack moved = splat(0.0);
        for (int64_t k = 0; k < length; k += 4) {
            pack q = load(v + k);
            for (int a = 0; a < r; ++a) q -= splat(w[a]) * load(B + a * length + k);
            const pack old = load(y + k), held = now * old;
            const pack fresh = splat(0.0) - clip((q - held) * tau, one);
            const pack h = fresh - old;
            moved += h * h;
            store(d + k, held - both * fresh);
            store(y + k, fresh);
        }
        const double h = sigma * std::sqrt(sum(moved));
        sigma = following;
        ++iteration;
        if (h <= args.tolerance * size) return iteration == 1 ? 0 : iteration;
    }
    return iteration;
}

inline int track_inner(const TrackArgs& args, int64_t level) {
    const int64_t inner = level < 4    ? args.min_inner
                          : level < 7  ? 2 * int64_t(args.min_inner)
                          : level < 10 ? 4 * int64_t(args.min_inner)
                          : level < 14 ? 8 * int64_t(args.min_inner)
                                       : args.max_inner;
    return int(inner < args.max_inner ? inner : args.max_inner);
}

// The columns order[0..count-1]; W (count x r) gets their coefficients on U as it was before each.
template <class T>
void track_columns(const TrackArgs& args, const int64_t* order, int64_t count, TrackState& state, double* W,
                   int64_t longest, double* memory) {
    const int r = args.r;
    const int64_t m = args.columns.m, height = track_length(m);
    double* B = memory;
    double* v = B + r * track_length(longest);
    double* y = v + track_length(longest);
    double* d = y + track_length(longest);
    double* gamma = d + track_length(longest);
    double* G = gamma + height;
    double *inverse = G + r * r, *b = inverse + r;
    for (int64_t which = 0; which < count; ++which) {
        const int64_t j = order[which], first = args.columns.indptr[j], entries = args.columns.indptr[j + 1] - first;
        const int64_t length = track_length(entries);
        const int32_t* rows = args.columns.rows + first;
        const T* x = static_cast<const T*>(args.columns.values) + first;
        double* w = W + which * r;
        for (int a = 0; a < r; ++a) w[a] = 0.0;
        for (int64_t k = 0; k < length; ++k) v[k] = k < entries ? double(x[k]) : 0.0;
        const double size = std::sqrt(dot(v, v, length));
        if (!(size > 0.0)) continue;
        for (int a = 0; a < r; ++a) {
            const double* u = state.U + a * height;
            for (int64_t k = 0; k < length; ++k) B[a * length + k] = k < entries ? u[rows[k]] : 0.0;
        }
        for (int a = 0; a < r; ++a)
            for (int c = a; c < r; ++c) G[a * r + c] = dot(B + a * length, B + c * length, length);
        for (int a = 0; a < r; ++a) inverse[a] = pivot_tolerance * G[a * r + a];
        for (int a = 0; a < r; ++a) {
            inverse[a] = G[a * r + a] > inverse[a] ? 1.0 / G[a * r + a] : 0.0;
            for (int c = a + 1; c < r; ++c) {
                const double l = G[a * r + c] * inverse[a];
                for (int e = c; e < r; ++e) G[c * r + e] -= l * G[a * r + e];
            }
        }
        const int iterations =
            track_regress(args, track_inner(args, state.level), B, v, size, length, G, inverse, w, b, y, d);
        if (!args.learn || iterations == 0 || entries < r) continue;

        // Gamma = y - U U^T y
        for (int a = 0; a < r; ++a) b[a] = dot(B + a * length, y, length);
        for (int64_t i = 0; i < height; i += 4) {
            pack g = splat(0.0);
            for (int a = 0; a < r; ++a) g -= splat(b[a]) * load(state.U + a * height + i);
            store(gamma + i, g);
        }
        for (int64_t k = 0; k < entries; ++k) gamma[rows[k]] += y[k];
        double inside = 0.0;
        for (int a = 0; a < r; ++a) inside += w[a] * w[a];
        inside = std::sqrt(inside);
        const double outside = std::sqrt(dot(gamma, gamma, height));
        if (!(outside > 1e-12 && inside > 0.0)) continue;
        const double slope = outside * inside;
        if (!(state.scale > 0.0)) state.scale = 0.5 * track_pi * (1.0 + args.mu_min) / slope;

        // how much this step and the one before agree
        for (int64_t i = 0; i < height; i += 4) store(gamma + i, load(gamma + i) * splat(1.0 / outside));
        double agreement = 0.0;
        for (int a = 0; a < r; ++a) {
            b[a] = w[a] / inside;
            agreement += state.w[a] * b[a];
            state.w[a] = b[a];
        }
        agreement *= dot(state.gamma, gamma, height);
        for (int64_t i = 0; i < height; i += 4) store(state.gamma + i, load(gamma + i));

        state.mu = std::fmax(state.mu + std::tanh(-agreement / 0.2), args.mu_min);
        double t = std::fmin(std::ldexp(state.scale, -int(state.level)) * slope / (1.0 + state.mu), track_pi / 3.0);
        if (args.step > 0.0) {
            t = args.step;
        } else if (state.mu <= args.mu_min) {
            if (state.level > 1) --state.level;
            state.mu = args.mu_min + 2.0;
        } else if (state.mu > args.mu_max) {
            if (state.level < args.levels) {
                ++state.level;
                state.mu = (args.mu_max - 1.0) / 2.0;
            } else {
                state.mu = args.mu_max;
            }
        }

        // U += ((cos t - 1) U w - sin t Gamma) w^T for unit w and Gamma
        const double half = std::sin(0.5 * t);
        const pack cosine = splat(-2.0 * half * half), out = splat(std::sin(t));
        for (int64_t i = 0; i < height; i += 4) {
            pack p = splat(0.0);
            for (int a = 0; a < r; ++a) p += splat(b[a]) * load(state.U + a * height + i);
            p = cosine * p - out * load(gamma + i);
            for (int a = 0; a < r; ++a) {
                double* u = state.U + a * height + i;
                store(u, load(u) + splat(b[a]) * p);
            }
        }
    }
}

}  // namespace LOWSPARSE_ISA
}  // namespace lowsparse
