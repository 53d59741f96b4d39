#pragma once
// Faults that tests inject into the stand-ins' libraries, and counts of the calls made to them. One mechanism
// for all: each function of a stand-in asks injected() under its own name before it does anything.
//
//   DIFFUSE_STANDIN_FAIL   "NAME:N[@RANK][=CODE]", several with commas between: the N-th call of NAME (from
//                          1) fails, with RANK only where OMPI_COMM_WORLD_RANK says so, and with CODE in
//                          place of the function's own error. NAME "*" counts the calls of all functions.
//   DIFFUSE_STANDIN_COUNTS a file; at exit it gets a line "NAME COUNT" for each function that was called
//                          (with ".RANK" behind its name where there are ranks).
//
// A function that releases something, or waits, does its work and then reports the fault.

#include <map>
#include <optional>
#include <string>

namespace standin {

// Counts one call. Empty: it is to go well; else the number that it fails with, `code` where none was named.
std::optional<int> injected(const char* function, int code);

// For tests in one process: replace what the environment said. Counting starts again.
void inject(const std::string& faults);
std::map<std::string, int> call_counts();
// True where an injected fault has happened since inject().
bool fault_happened();

// Misuse that a real library would answer with wrong data or a crash: says what it was and ends the process.
[[noreturn]] void violation(const std::string& what);

}  // namespace standin
