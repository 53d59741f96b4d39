#pragma once
// Knobs of the cuBLASLt stand-in for tests in one process; DIFFUSE_STANDIN_CUBLASLT holds the same words.
//
//   uneven      a product of more than 64 rows sums in another order, and so gives rows other bits
//   split-only  every algorithm that is offered splits the summed dimension
//   none        no algorithm is offered
//   wrong       every product is a 64th too large, the same for every row
//
// Its heuristics give algorithms first that split the summed dimension, that reduce, or that are marked as
// not supported, whatever the preference says: a caller that takes the first one gets an error when it runs
// it.

#include <string>

namespace standin {

void set_cublaslt(const std::string& word);  // "" : as it should be
// What was wrong with the last call that was answered with an error.
std::string cublaslt_problem();

}  // namespace standin
