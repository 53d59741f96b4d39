#pragma once
// Elementary functions in double that give the same bits on every machine: only IEEE additions,
// multiplications and divisions in a fixed order (libm's differ between versions and processors). Accurate to
// about 1e-15 relative, and for sin and cos up to |x| = 1e6. For tables and sampling; kernels have their own
// vector forms.

namespace diffuse::exact {

double exp(double x);
double log(double x);                      // x > 0, else NaN (minus infinity at 0)
double pow(double base, double exponent);  // base > 0
double sin(double x);
double cos(double x);

}  // namespace diffuse::exact
