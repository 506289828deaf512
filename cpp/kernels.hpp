// What the compiled core offers to its bindings: plain structs and one table of functions per instruction set.
#pragma once
#include <cstdint>

namespace lowsparse {

// What a sweep does with each column, given U.
enum class Rule : int {
    fit = 0,     // v only
    manpg = 1,   // v, then S and the gradient both from v            (Algorithm 1)
    amanpg = 2,  // v, S, then v again for the new S and the gradient (Algorithm 2)
};

// What a residual e costs; c is its scale, p the exponent of a power (the formulas stand in lowsparse/losses.py).
enum class LossKind : int { squared, l1, huber, pseudo_huber, cauchy, geman_mcclure, welsch, tukey, power };
struct Loss {
    LossKind kind;
    double c, p;
};

// The observed entries by column.
struct Columns {
    int64_t m, n, nnz;
    const int64_t* indptr;
    const int32_t* rows;
    const void* values;
    bool single;  // values (and S) are float, else double
};

struct SweepArgs {
    Columns columns;
    int r, padded;           // padded: doubles from one row of U, G to the next
    const double* U;         // (m + 1) x padded; the last row and the padding are zero
    const void* S;           // nnz
    void* S_out;             // nnz, not S itself; unused by Rule::fit
    double* V;               // n x r
    const double* V_previous;  // n x r, or null: to compare V with V_previous rotation
    const double* rotation;    // r x r
    double gamma, t_S, lambda2;
    Rule rule;
};

struct SweepSums {
    double smooth_in = 0;   // f at (U, S)
    double smooth_out = 0;  // f at (U, S_out), by Rule::amanpg alone
    double l1 = 0;          // |S_out|_1
    double dS2 = 0;         // |S_out - S|^2
    double dV2 = 0;         // |V - V_previous rotation|^2
};

struct GramProductArgs {
    Columns columns;
    int padded;       // columns of Q and Y, a multiple of four
    const double* Q;  // m x padded
};

constexpr int magnitude_bins = 1024;

struct RegressArgs {
    Columns columns;
    int r, padded;
    const double* U;            // (m + 1) x padded; the last row and the padding are zero
    const double* V_in;         // n x r, or null for zeros: the first weights come from it
    double* V;                  // n x r
    Loss loss;                  // of the weights, c in the last fit
    double first_c;             // c in the first fit
    int n_reweight;             // weighted least-squares solves per column
    double shrink;              // the coefficients of a column whose weights sum up to less than 2 r
    double ridge;               // times the mean weight of a column: added to the diagonal of its normal equations
    double largest;             // |v|, if they sum up to less than 1.25 r + 1: beyond, it is given v = 0
    double bound;               // how many residuals of each column are at most this, before the last fit
    int64_t* inside;            // n
    double per_unit;            // how many e * per_unit there are of each magnitude, e before the first fit,
    int64_t sampling;           // 2^k - 1: in one group of four entries of 2^k
};

struct EntriesArgs {
    Columns columns;
    int r, padded;
    const double* U;  // (m + 1) x padded; the last row and the padding are zero
    const double* V;  // n x r
    bool minus_values;
    double* out;      // nnz: U V, or U V - x
};

struct ProductArgs {
    Columns columns;  // its values are not used
    int r, padded;
    const double* y;       // nnz
    const double* factor;  // V (n x r) for Sp(y) V, U ((m + 1) x padded) for Sp(y)^T U
};

struct GradientArgs {
    Columns columns;
    Loss loss;
    int r, padded;
    const double* U;  // (m + 1) x padded
    const double* V;  // n x r
    double* V_out;    // n x r: the derivative with respect to V
};

struct CurvatureArgs {
    Columns columns;
    Loss loss;
    int r, padded;
    const double* U;  // (m + 1) x padded
    const double* V;  // n x r
    const double* B;  // n x r: the direction is U B
};

// One pass of an augmented Lagrangian: v = c + U^T w for each column, e = U v - x,
// L+ = clip(L + beta e, 1), w+ = (L - L+) / beta - L+ / next_beta.
struct AscendArgs {
    Columns columns;
    int r, padded;
    const double* U;           // (m + 1) x padded
    const double* C;           // n x r
    double* V;                 // n x r
    const double* multiplier;  // nnz: L
    const double* w;           // nnz
    double* multiplier_out;    // nnz: L+
    double* w_out;             // nnz: w+
    double beta, next_beta;
};

struct AscendSums {
    double l1 = 0;    // |e|_1
    double gap2 = 0;  // |L+ - L|^2 / beta^2
};

struct GramsArgs {
    Columns columns;
    int r, padded;
    const double* U;  // (m + 1) x padded
    double* out;      // n x r x r
};

// Of each column, fits to r of its entries at a time (see subsets.hpp).
struct SubsetArgs {
    Columns columns;
    int r;
    const double* U;  // m x r
    const uint64_t* seeds;  // n: of what is drawn
    int64_t draws;
    double c;
    double bound;  // residuals up to this are those of entries that are right
    double clean_draws;  // draws end when so many can be expected to have had none but right ones
    double* V;     // n x r: the best; columns without one keep what they have
};

struct TrackArgs {
    Columns columns;
    int r;
    double rho;             // growth of tau from one ADMM iteration to the next
    int min_inner, max_inner;  // ADMM iterations of a column, by level
    double tolerance;       // they end when |U w + s - v| is at most this times |v|
    double mu_min, mu_max;  // mu between them stays on its level
    int levels;             // the highest
    double step;            // a constant angle, or 0: by mu and level
    bool learn;             // else U stays as it is
};

// What the next step depends on. U is held by columns, each of track_length(m) doubles; what is beyond m is zero.
struct TrackState {
    double* U;      // r of them
    double* gamma;  // one: the direction of the last step outside U, of length 1 or 0
    double* w;      // r: and inside
    double mu;
    int64_t level;
    double scale;  // C; 0 before the first step
};

constexpr int64_t track_length(int64_t m) { return (m + 3) / 4 * 4; }

// doubles of scratch memory; `longest` is the number of entries of the column that has most
constexpr int64_t track_memory(int64_t m, int r, int64_t longest) {
    return (r + 3) * track_length(longest) + track_length(m) + int64_t(r) * r + 4 * int64_t(r);
}

// Rows whose missing entries are to be at their conditional means (lowsparse/series/normal.py).
struct ConditionArgs {
    int n;
    const double* K;         // n x n
    const bool* missing;     // rows x n
    const double* pull;      // rows x n: K times the row with 0 where it is missing
    double* X;               // rows x n: missing entries are written
    double* total;           // n x n, or null: the sum of the conditional covariances is added
};

// doubles of scratch memory
constexpr int64_t condition_memory(int64_t n) { return 2 * n * (n + 3) + 6 * (n + 3); }

// Missing readings to be predicted from their neighbours in the series (lowsparse/series/bridging.py).
struct BridgeArgs {
    int64_t lags;                // 0 ... lags - 1
    const double* correlations;  // series x lags
    const int64_t *moments, *series;
    int neighbours_each;
    const int32_t* neighbours;  // their moments, -1 where there is none
    double noise;               // of a reading
    double* weights;            // of the neighbours
};

constexpr int most_neighbours = 32;  // a multiple of four

// Entries of series to be predicted by their neighbours, with the weights of the system of each (bridge).
struct WeighArgs {
    int64_t n;              // series
    const double *R, *bounds;  // moments x series; of each series
    const int64_t *series, *system;  // of each entry
    int neighbours_each;
    const int32_t* neighbours;  // moments; -1: none
    const double* weights;      // systems x neighbours
    double* out;
};

struct Kernels {
    const char* isa;
    int (*padded)(int r);
    int (*row_length)(int r);
    int64_t (*sweep_memory)(int r);  // doubles of scratch memory for one thread
    // Columns begin..end-1: fills V and S_out there, adds to G ((m + 1) x padded), VVt (r rows of row_length) and the sums.
    void (*sweep)(const SweepArgs&, int64_t begin, int64_t end, double* G, double* VVt, SweepSums&, double* memory);
    // Y += A_block A_block^T Q over the columns begin..end-1 of the zero-filled matrix A.
    void (*gram_product)(const GramProductArgs&, int64_t begin, int64_t end, double* Y);
    int64_t (*regress_memory)(int r);  // doubles of scratch memory for one thread
    // Columns begin..end-1: fills V there, adds to counts (magnitude_bins).
    void (*regress)(const RegressArgs&, int64_t begin, int64_t end, int64_t* counts, double* memory);
    // Columns begin..end-1 of out.
    void (*entries)(const EntriesArgs&, int64_t begin, int64_t end);
    // Columns begin..end-1: adds Sp(y) V to out ((m + 1) x padded), respectively fills Sp(y)^T U (n x r) there.
    void (*product)(const ProductArgs&, int64_t begin, int64_t end, double* out);
    void (*product_transposed)(const ProductArgs&, int64_t begin, int64_t end, double* out);
    // Columns begin..end-1: adds to G ((m + 1) x padded), fills V_out there, gives back the sum of the loss.
    double (*gradient)(const GradientArgs&, int64_t begin, int64_t end, double* G);
    double (*curvature)(const CurvatureArgs&, int64_t begin, int64_t end);
    void (*ascend)(const AscendArgs&, int64_t begin, int64_t end, double* G, AscendSums&);
    void (*grams)(const GramsArgs&, int64_t begin, int64_t end);
    int64_t (*subset_memory)(int r, int64_t longest);  // doubles of scratch memory for one thread
    // Columns begin..end-1 of V.
    void (*subsets)(const SubsetArgs&, int64_t begin, int64_t end, double* memory);
    // The columns order[0..count-1], one after the other; W (count x r) gets their coefficients on U as it was before each.
    void (*track)(const TrackArgs&, const int64_t* order, int64_t count, TrackState&, double* W, int64_t longest,
                  double* memory);
    // Rows begin..end-1 of X; `missing` has room for 2 n.
    void (*condition)(const ConditionArgs&, int64_t begin, int64_t end, int32_t* missing, double* memory);
    // Systems begin..end-1 of the weights.
    void (*bridge)(const BridgeArgs&, int64_t begin, int64_t end);
    // Entries begin..end-1 of out.
    void (*weigh)(const WeighArgs&, int64_t begin, int64_t end);
    // A bit for each of n numbers, set if it is not zero; a zero with a sign counts as none.
    void (*nonzero_bits)(const void* x, bool single, int64_t n, uint64_t* bits);
    // Rows begin..end-1 of G = sum + U W, and gram = G^T G over them; W and gram are r x r.
    void (*finish_gradient)(const double* sum, const double* U, const double* W, int64_t begin, int64_t end, int r,
                            int padded, double* G, double* gram);
};

namespace baseline {
extern const Kernels kernels;
}
namespace v3 {
extern const Kernels kernels;
}
namespace v4 {
void wide_sweep(const SweepArgs&, int64_t begin, int64_t end, double* G, double* VVt, SweepSums&, double* memory);
}

}  // namespace lowsparse
