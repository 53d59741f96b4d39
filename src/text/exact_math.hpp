#pragma once
// exp and log whose bits do not depend on the machine: plain IEEE additions, multiplications and divisions in
// a fixed order. No FMA (the project builds with -ffp-contract=off), no table, no libm. Results
// are within 1e-15 of the truth, relatively.

namespace diffuse {

// 0 below -708 (no subnormal results), infinity above 709. `x` must not be NaN.
double exact_exp(double x);

// `x` must be positive, finite and not subnormal.
double exact_log(double x);

}  // namespace diffuse
